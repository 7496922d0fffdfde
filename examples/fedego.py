"""FedEgo: clients share a reduction layer; the server trains the other layers.

    python examples/fedego.py --dataset cora

Zhang et al., arXiv 2208.13685. Clients upload the first layer, and means over
batches of trees (Mixup). The server averages the layer and trains the head on
the means. A client takes ``(EMD / 2)^gamma`` of it; EMD compares the labels.
"""

from dataclasses import replace

import torch
from torch.func import functional_call

from fgl import ego, layer, tasks
from fgl.experiment import Run, cli
from fgl.federation import Broadcast, after, in_mode, minimise
from fgl.losses import soft_cross_entropy
from fgl.personalize import emd_share, interpolate, label_distribution, part, rest

LONG = {"lr": 5e-4, "rounds": 300}
PRESETS = {"dblp": LONG, "wiki_cs": LONG, "cora_full": {"lr": 5e-4}}


@layer
def fedego(
    fedavg,
    *,
    epochs=5,
    batch_size=32,
    gamma=0.5,
    weight=None,
    mash=ego.mash,
    shuffle=True,
    blur=lambda labels: labels,
):
    """FedEgo; `weight(own, all)` is the global head's share, `blur` changes labels."""
    ego.check_steps(epochs, batch_size)
    model, fanouts = fedavg.model, fedavg.model.fanouts
    weight = weight or emd_share(gamma)

    def mixed(params, message, graph):
        if "head" not in message:  # the first round
            return params
        own = label_distribution(graph.labels, graph.num_classes, graph.train_mask)
        share = weight(own, message["distribution"])
        head = rest(params, "reduction")
        return {**params, **interpolate(head, message["head"], share)}

    def receive(message, state, graph):
        params, context = fedavg.receive(message, state, graph)
        return mixed(params, message, graph), context

    def deploy(message, state, graph):
        return mixed(fedavg.deploy(message, state, graph), message, graph)

    def send(params, context, state, graph):
        sent, state = fedavg.send(params, context, state, graph)
        trees = ego.training_trees(graph, fanouts, shuffle=shuffle)
        r = functional_call(model, params, (graph.x,), {"reduce": True})
        y = torch.eye(graph.num_classes).to(r)[graph.labels]
        sent["model"] = part(params, "reduction")
        sent["embeddings"] = mash(r, trees, batch_size=batch_size)
        sent["labels"] = blur(mash(y, trees, batch_size=batch_size))
        return sent, state

    def loss(params, trees, labels):
        return soft_cross_entropy(functional_call(model, params, (trees,)), labels)

    def with_head(outbox, new, means, state):
        x, y = means.inbox.joined("embeddings"), means.inbox.joined("labels")
        steps = ego.tree_minibatches(x, y[:, 0], epochs, batch_size, fanouts=fanouts)
        head = state.get("head") or rest(state["model"], "reduction")
        how = {"optimizer": fedavg.train.optimizer, "state": state.get("optimizer")}
        with in_mode(model, True):
            head, _, adam = minimise(loss, head, steps, **how)
        sent = {**outbox[0], "head": head, "distribution": y.mean((0, 1))}
        state = {**new, "head": head, "optimizer": adam}
        return Broadcast(sent, means.num_clients), state

    how = {"most": fedavg.rules.max_examples, "base": fedavg.accept}
    changed = {"receive": receive, "deploy": deploy, "send": send}
    changed["aggregate"] = after(fedavg.aggregate, with_head, reads=("embeddings", "labels"))
    changed["accept"] = ego.mashed_check(fanouts, model.head.weight, **how)
    rules = replace(fedavg.rules, ragged=("embeddings", "labels"))
    return replace(fedavg, rules=rules, **changed)


def main(task=tasks.EgoNodes(dropout=0.5), run=Run(), gamma=0.5):
    """FedAvg of one layer; the server trains the head.

    Args:
        gamma: How fast the global head's share grows with EMD.
    """
    setting = task.load(run.seed)
    how = {"epochs": task.local.steps, "batch_size": task.batch_size}
    return run(fedego(setting.fedavg, **how, gamma=gamma), setting)


if __name__ == "__main__":
    cli(main, presets=PRESETS)

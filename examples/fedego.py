"""FedEgo: clients share a reduction layer; the server trains the rest.

    python examples/fedego.py --dataset cora

Zhang et al., arXiv 2208.13685. The first layer is averaged. Clients upload means
over batches of trees too (Mixup), of embeddings and labels; no batch is short. The
server trains the head on them. A client takes ``(EMD / 2)^gamma`` of that head, EMD
being how far its labels are from everybody's.
"""

from dataclasses import replace
from functools import cache, partial

import torch
from torch.func import functional_call

from fgl import ego, personalize, tasks
from fgl.checks import check_number
from fgl.experiment import Run, cli
from fgl.federation import Broadcast, in_mode, minimise
from fgl.losses import soft_cross_entropy
from fgl.personalize import interpolate, part, rest

LONG = {"lr": 5e-4, "rounds": 300}
PRESETS = {"dblp": LONG, "wiki_cs": LONG, "cora_full": {"lr": 5e-4}}


def fedego(fedavg, *, epochs=5, batch_size=32, gamma=0.5, weight=None, mash=ego.mash,
           shuffle=True, blur=lambda labels: labels):  # fmt: skip
    """FedEgo; `weight(own, all)` is the global head's share, `blur` changes labels."""
    check_number("gamma", gamma, above=0)
    ego.check_steps(epochs, batch_size)
    model, fanouts = fedavg.model, fedavg.model.fanouts
    sampler = cache(partial(ego.EgoSampler, fanouts=fanouts))
    emd = partial(personalize.mixing_coefficient, gamma=gamma)

    def mixed(params, message, graph):
        if "head" not in message:  # the first round
            return params
        y, mask = graph.y, graph.train_mask
        own = personalize.label_distribution(y, graph.num_classes, mask)
        share = (weight or emd)(own, message["distribution"])
        head = rest(params, "reduction")
        return {**params, **interpolate(head, message["head"], share)}

    def receive(message, state, graph):
        params, context = fedavg.receive(message, state, graph)
        return mixed(params, message, graph), context

    def deploy(message, state, graph):
        own = fedavg.deploy(message, state, graph)
        return mixed(own, message, graph)

    def send(params, context, state, graph):
        sent, state = fedavg.send(params, context, state, graph)
        r = functional_call(model, params, (graph.x,), {"reduce": True})
        y = torch.eye(graph.num_classes).to(r)[graph.y]
        nodes = graph.train_mask.nonzero().squeeze(1)
        nodes = nodes[torch.randperm(len(nodes))] if shuffle else nodes
        how = {"trees": sampler(graph)(nodes), "batch_size": batch_size}
        sent |= {"embeddings": mash(r, **how), "labels": blur(mash(y, **how))}
        return {**sent, "model": part(params, "reduction")}, state

    def loss(params, trees, labels):
        trees = ego.resample(trees, fanouts=fanouts)
        logits = functional_call(model, params, (trees,))
        return soft_cross_entropy(logits, labels)

    def aggregate(inbox, state):
        outbox, new = fedavg.aggregate(inbox, state)
        x, y = inbox.joined("embeddings"), inbox.joined("labels")
        steps = ego.tree_minibatches(x, y[:, 0], epochs, batch_size)
        head = state.get("head") or rest(state["model"], "reduction")
        how = {"optimizer": fedavg.train.optimizer}
        with in_mode(model, True):
            head, _, adam = minimise(loss, head, steps, state=state.get("optimizer"), **how)
        sent = {**outbox[0], "head": head, "distribution": y.mean((0, 1))}
        state = {**new, "head": head, "optimizer": adam}
        return Broadcast(sent, inbox.num_clients), state

    most = fedavg.max_examples
    accept = ego.mashed_check(fanouts, model.head.weight, most)
    changed = {"send": send, "accept": accept, "aggregate": aggregate}
    changed |= {"ragged": ("embeddings", "labels")}
    return replace(fedavg, receive=receive, deploy=deploy, **changed)


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

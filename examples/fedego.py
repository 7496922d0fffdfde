"""FedEgo: clients share a reduction layer; the server trains the rest.

    python examples/fedego.py --dataset cora

Zhang et al., FedEgo, arXiv 2208.13685. Only the first layer is
averaged. Besides it, clients upload mashed ego-graphs: means over
a batch of sampled trees of embeddings, and of labels (Mixup). The
server trains the head on them. A client mixes that head with its
own, the more the further its labels are from everybody's:
``lambda = (EMD / 2)^gamma``.
"""

from dataclasses import replace
from functools import cache, partial

import torch
from torch.func import functional_call

from fgl import ego, tasks
from fgl.checks import check_number
from fgl.experiment import Run, cli
from fgl.federation import Broadcast, in_mode, minimise
from fgl.losses import soft_cross_entropy
from fgl.personalize import interpolate, label_distribution, mixing_coefficient, part, rest

LONG = {"lr": 5e-4, "rounds": 300}
PRESETS = {"dblp": LONG, "wiki_cs": LONG, "cora_full": {"lr": 5e-4}}


def fedego(fedavg, *, epochs=5, batch_size=32, weight=None, gamma=0.5, mash=ego.mash):
    """FedEgo; `weight(own, everybody)` is the share of the global head."""
    check_number("gamma", gamma, above=0)
    check_number("epochs", epochs, at_least=0, integer=True)
    check_number("batch_size", batch_size, at_least=1, integer=True)
    model, fanouts = fedavg.model, fedavg.model.fanouts
    dtype, (num_classes, width) = model.head.weight.dtype, model.head.weight.shape
    sampler = cache(partial(ego.EgoSampler, fanouts=fanouts))
    mash = partial(mash, batch_size=batch_size)
    weight = weight or partial(mixing_coefficient, gamma=gamma)

    def mixed(params, message, graph):
        if "head" not in message:  # the first round
            return params
        own = label_distribution(graph.y, num_classes, graph.train_mask)
        share = weight(own, message["distribution"])
        return {**params, **interpolate(rest(params, "reduction"), message["head"], share)}

    def receive(message, state, graph):
        params, context = fedavg.receive(message, state, graph)
        return mixed(params, message, graph), context

    def deploy(message, state, graph):
        return mixed(fedavg.deploy(message, state, graph), message, graph)

    def send(params, context, state, graph):
        sent, state = fedavg.send(params, context, state, graph)
        sent["model"] = part(params, "reduction")
        r = functional_call(model, params, (graph.x,), {"reduce": True})
        y = torch.eye(num_classes, dtype=dtype, device=r.device)[graph.y]
        trees = sampler(graph)(graph.train_mask.nonzero().squeeze(1))
        sent |= {"embeddings": mash(r, trees), "labels": mash(y, trees)}
        return sent, state

    def loss(params, trees, labels):
        trees = ego.resample(trees, fanouts=fanouts)
        logits = functional_call(model, params, (trees,))
        return soft_cross_entropy(logits, labels)

    def aggregate(inbox, state):
        outbox, new = fedavg.aggregate(inbox, state)
        x = torch.cat([each["embeddings"] for each in inbox.values()])
        y = torch.cat([each["labels"] for each in inbox.values()])
        steps = ego.tree_minibatches(x, y[:, 0], epochs, batch_size)
        head = state.get("head") or rest(state["model"], "reduction")
        adam, kept = fedavg.train.optimizer, state.get("optimizer")
        with in_mode(model, True):
            head, _, kept = minimise(loss, head, steps, optimizer=adam, state=kept)
        sent = {**outbox[0], "head": head, "distribution": y.mean((0, 1))}
        new = {**new, "head": head, "optimizer": kept}
        return Broadcast(sent, inbox.num_clients), new

    shape = ego.levels(fanouts)[-1], width, num_classes
    accept = ego.mashed_check(shape=shape, dtype=dtype)
    told = {"send": send, "accept": accept, "aggregate": aggregate}
    return replace(fedavg, receive=receive, deploy=deploy, **told)


def main(task=tasks.EgoNodes(dropout=0.5), run=Run(), gamma=0.5):
    """FedAvg of one layer, a head trained on mashed ego-graphs, adaptive mixing.

    Args:
        gamma: How fast the global head's share grows with the distance of labels.
    """
    setting = task.load(run.seed)
    steps = {"epochs": task.local.steps, "batch_size": task.batch_size}
    return run(fedego(setting.fedavg, **steps, gamma=gamma), setting)


if __name__ == "__main__":
    cli(main, presets=PRESETS)

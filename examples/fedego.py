"""FedEgo: clients share a reduction layer; the server trains the rest.

    python examples/fedego.py --dataset cora
    python examples/fedego.py --gamma 0.25

Zhang et al., FedEgo, arXiv 2208.13685. Only the first layer is averaged.
Besides it, clients upload mashed ego-graphs: means over a batch of sampled
trees of embeddings, and of labels (Mixup). The server trains the head on
them. A client mixes that head with its own, the more the further its
labels are from everybody's: ``lambda = (EMD / 2)^gamma``.
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
from fgl.personalize import interpolate, label_distribution, mixing_coefficient, split_layers

LONG = {"lr": 5e-4, "rounds": 300}
PRESETS = {"dblp": LONG, "wiki_cs": LONG, "cora_full": {"lr": 5e-4}}


def fedego(fedavg, *, epochs=5, batch_size=32, weight=None, gamma=0.5, mash=ego.mash):
    """FedEgo; `weight(own, everybody)` says how much of the global head is taken."""
    check_number("gamma", gamma, above=0)
    model, split = fedavg.model, partial(split_layers, prefixes=["reduction"])
    sampler = cache(partial(ego.EgoSampler, fanouts=model.fanouts))
    weight = weight or partial(mixing_coefficient, gamma=gamma)

    def mixed(params, message, graph):
        if "head" not in message:  # the first round
            return params
        own = label_distribution(graph.y, model.head.out_features, graph.train_mask)
        share = weight(own, message["distribution"])
        return {**params, **interpolate(split(params)[1], message["head"], share)}

    def receive(message, state, graph):
        params, context = fedavg.receive(message, state, graph)
        return mixed(params, message, graph), context

    def deploy(message, state, graph):
        return mixed(fedavg.deploy(message, state, graph), message, graph)

    @torch.no_grad()
    def send(params, context, state, graph):
        message, state = fedavg.send(params, context, state, graph)
        r = functional_call(model, params, (graph.x,), {"reduce": True})
        trees = sampler(graph)(graph.train_mask.nonzero().squeeze(1))
        labels = torch.eye(graph.num_classes, device=r.device)[graph.y]
        message["embeddings"], message["labels"] = (
            mash(values, trees, batch_size=batch_size) for values in (r, labels)
        )
        return {**message, "model": split(params)[0]}, state

    def accept(message, client, state):
        shape = ego.levels(model.fanouts)[-1], model.head.in_features, model.head.out_features
        ego.check_mashed(message["embeddings"], message["labels"], shape=shape)

    def loss(params, trees, labels):
        logits = functional_call(model, params, (ego.resample(trees, fanouts=model.fanouts),))
        return soft_cross_entropy(logits, labels)

    def batches(trees, labels):  # every epoch a fifth of them, drawn anew
        for _ in range(epochs):
            order = torch.randperm(len(trees), device=trees.device)
            for chosen in order[: max(len(trees) // 5, 1)].split(batch_size):
                yield trees[chosen], labels[chosen, 0]

    def aggregate(inbox, state):
        outbox, new = fedavg.aggregate(inbox, state)
        x, y = (torch.cat([m[key] for m in inbox.values()]) for key in ("embeddings", "labels"))
        head = state.get("head") or split(state["model"])[1]
        with in_mode(model, True):
            how = {"optimizer": fedavg.train.optimizer, "state": state.get("optimizer")}
            head, _, kept = minimise(loss, head, batches(x, y), **how)
        sent = {**outbox[0], "head": head, "distribution": y.mean((0, 1))}
        return Broadcast(sent, inbox.num_clients), {**new, "head": head, "optimizer": kept}

    told = {"send": send, "accept": accept, "aggregate": aggregate}
    return replace(fedavg, receive=receive, deploy=deploy, **told)


def main(
    task: tasks.EgoNodes = tasks.EgoNodes(dropout=0.5),
    run: Run = Run(),
    gamma: float = 0.5,
):
    """FedAvg of a reduction layer, a head trained on mashed ego-graphs, adaptive mixing.

    Args:
        gamma: How fast the share of the global head grows with the distance of the labels.
    """
    setting = task.load(run.seed)
    steps = {"epochs": task.local.steps, "batch_size": task.batch_size}
    return run(fedego(setting.fedavg, **steps, gamma=gamma), setting)


if __name__ == "__main__":
    cli(main, presets=PRESETS)

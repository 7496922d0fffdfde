"""FedGL: FedAvg and what the server knows of all nodes.

    python examples/fedgl.py --dataset cora
    python examples/fedgl.py --neighbours 0    pseudo labels alone
    python examples/fedgl.py --alpha 0         the pseudo graph alone

FedGL, Information Sciences 2024. Clients overlap. They upload their
predictions and embeddings of nodes besides the model. The server fuses
them node by node, labels nodes of which it is sure, joins nodes that are
alike, and sends every client its part: more labels, and more edges.
"""

import copy
from dataclasses import replace

import torch
from torch.func import functional_call

from fgl import pseudo, tasks
from fgl.checks import check_number
from fgl.experiment import Run, cli
from fgl.federation import Ragged, together
from fgl.losses import cross_entropy
from fgl.nn import observed

PRESETS = {"wiki": {"threshold": 0.1, "alpha": 0.1}}


def fedgl(
    fedavg,
    num_nodes,
    *,
    alpha=0.2,
    beta=0.1,
    threshold=0.5,
    neighbours=100,
    symmetric=True,
    alike=lambda embeddings, predictions: embeddings,
):
    """FedGL; `alpha` 0: no pseudo labels, `neighbours` 0: no pseudo graph."""
    check_number("alpha", alpha, at_least=0)
    check_number("beta", beta, at_least=0)
    check_number("threshold", threshold, at_least=0, at_most=1)
    check_number("neighbours", neighbours, at_least=0, integer=True)
    reader = copy.deepcopy(fedavg.model).eval()

    def receive(message, state, graph):
        params, _ = fedavg.receive(message, state, graph)
        unknown = torch.full((graph.num_nodes,), -1, device=graph.device)
        context = {"labels": Ragged(message.get("labels", unknown))}
        if neighbours:
            edges = pseudo.from_edge_tensors(message, like=graph.adj)
            wide = pseudo.augmented_operator(graph.adj, edges, beta=beta, symmetric=symmetric)
            context["operator"] = Ragged(wide.as_operator())
        return params, context

    def widened(graph, context):
        return graph.with_adj(context["operator"].values) if neighbours else graph

    def loss(params, graph, context):
        with observed(fedavg.model) as seen:
            total = fedavg.loss(params, widened(graph, context), context)
        if not alpha:
            return total
        labels = context["labels"]
        known = (labels.values >= 0) & ~graph.train_mask & labels.mask
        told = labels.values.clamp(min=0)
        return total + alpha * cross_entropy(seen[-1].output, told, known)

    @torch.no_grad()
    def send(params, context, state, graph):
        message, state = fedavg.send(params, context, state, graph)
        logits = functional_call(reader, params, widened(graph, context).inputs)
        message |= {"node_id": graph.node_id, "embeddings": logits}
        return {**message, "predictions": logits.softmax(1)}, state

    def accept(message, client, state):
        pseudo.check_upload(message, num_nodes, fedavg.model.convs[-1].bias.numel())

    def aggregate(inbox, state):
        outbox, state = fedavg.aggregate(inbox, state)
        weight = inbox.stack("num_examples")
        ids, p, h = (
            [message[key] for message in inbox.values()]
            for key in ("node_id", "predictions", "embeddings")
        )
        p = pseudo.fuse(p, ids, weight, num_nodes)
        h = pseudo.fuse(h, ids, weight, num_nodes)
        labels = pseudo.pseudo_labels(p, threshold=threshold)
        similar = pseudo.pseudo_graph(alike(h, p), s=neighbours) if neighbours else None
        parts = {client: dict(inbox.sent[client]) for client in outbox}  # of the absent: the last
        for client, own in zip(inbox, ids, strict=True):
            if alpha:
                parts[client]["labels"] = labels[own]
            if neighbours:
                parts[client] |= pseudo.edge_tensors(pseudo.project(similar, own))
        return {k: {**part, **outbox[k]} for k, part in parts.items()}, state

    told = {"send": send, "accept": accept, "aggregate": aggregate}
    return replace(fedavg, receive=receive, loss=loss, **told)


def main(
    task: tasks.OverlappingNodes = tasks.OverlappingNodes(),
    run: Run = Run(rounds=300, patience=30),
    alpha: float = 0.2,
    beta: float = 0.1,
    threshold: float = 0.5,
    neighbours: int = 100,
    symmetric: bool = True,
):
    """FedAvg with global pseudo labels and a global pseudo graph.

    Args:
        alpha: Weight of the pseudo-label loss; 0 leaves the labels out.
        beta: Weight of the pseudo graph; the paper prints 1.
        threshold: A score above it is a label.
        neighbours: Neighbours of a node in the pseudo graph; 0 leaves the graph out.
        symmetric: Use (P + P^T) / 2 in place of the pseudo graph P.
    """
    setting = task.load(run.seed)
    num_nodes = int(setting.whole.node_id.max()) + 1
    weights = {"alpha": alpha, "beta": beta, "threshold": threshold}
    graph = {"neighbours": neighbours, "symmetric": symmetric}
    method = fedgl(setting.fedavg, num_nodes, **weights, **graph)
    score = together(setting.evaluate(method), pseudo.quality_of(setting.clients))
    return run(method, setting, evaluate=score)


if __name__ == "__main__":
    cli(main, presets=PRESETS)

"""Prototypes of a client's nodes: the mean embeddings of groups of nodes, as in FedDEP."""

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from ..federation import in_mode, training_examples
from ..graph import Graph
from ..nn import DeepNeighbours
from ..nn.deep_neighbours import DeepEncoder
from ..sampler import NeighbourSampler

ADAM = partial(torch.optim.Adam, lr=0.01, weight_decay=5e-4)
FANOUTS, BATCH = (5, 5), 64


def grouped(model: DeepNeighbours, graph: Graph, number: int, epochs: int) -> dict[str, Tensor]:
    """Group a client's nodes by their embeddings.

    The returned dict contains each group's mean embedding (``"prototypes"``), each group's number
    of nodes (``"counts"``), and each node's group (``"cluster"``).
    """
    sizes = graph.num_features, model.hidden_channels, int(graph.num_classes or 1)
    encoder = DeepEncoder(*sizes, dropout=model.classifier.dropout)
    rows = embeddings(encoder.to(graph.device, graph.x.dtype), graph, epochs)
    cluster = clusters(rows, number)
    means, counts = group_means(rows, cluster, number)
    return {"prototypes": means, "counts": counts.long(), "cluster": cluster}


def embeddings(encoder: DeepEncoder, graph: Graph, epochs: int) -> Tensor:
    """Embeddings ``[n, d]`` of all nodes, by an encoder trained on the client's labels.

    As in the public code, the cross-entropy gets probabilities, although it expects logits.
    """
    sampler, nodes = NeighbourSampler(graph, FANOUTS), training_examples(graph)
    adam = ADAM(encoder.parameters())
    with torch.enable_grad(), in_mode(encoder, True):
        for _ in range(epochs if len(nodes) else 0):
            order = nodes[torch.randperm(len(nodes), device=nodes.device)]
            for seeds in order.split(BATCH):
                batch = sampler.unchecked(seeds)
                answers = encoder(batch.x, batch.adj)[1][: len(seeds)]
                adam.zero_grad()
                cross_entropy(answers, graph.labels[seeds]).backward()
                adam.step()
    whole = sampler.unchecked(torch.arange(graph.num_nodes, device=graph.device))
    with torch.no_grad(), in_mode(encoder, False):
        rows: Tensor = encoder(whole.x, whole.adj)[0]
    return rows


@torch.no_grad()
def clusters(rows: Tensor, number: int, *, starts: int = 20, steps: int = 300) -> Tensor:
    """Groups of similar rows: the best of several k-means runs that start by k-means++.

    Args:
        rows: float ``[n, d]``.
        number: number of groups. With fewer rows than groups, some groups are empty.
        starts: number of starts.
        steps: largest number of steps per start.

    Returns:
        int64 ``[n]``, the group of each row.

    Example:
        >>> found = clusters(torch.tensor([[0.0], [9.0], [0.1], [9.1]]), 2)
        >>> found[0] == found[2] != found[1] == found[3]
        tensor(True)
    """
    best, best_labels = float("inf"), torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
    for _ in range(starts if min(len(rows), number) > 1 else 0):
        centres = first_centres(rows, min(len(rows), number))
        for _ in range(steps):
            apart, cluster = torch.cdist(rows, centres).min(1)
            means, count = group_means(rows, cluster, len(centres))
            means = torch.where(count[:, None] > 0, means, centres)
            if means.equal(centres):
                break
            centres = means
        if float(apart.square().sum()) < best:
            best, best_labels = float(apart.square().sum()), cluster
    return best_labels


def group_means(rows: Tensor, cluster: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """The mean row and the number of rows of each group; the mean of an empty group is 0.

    Example:
        >>> group_means(torch.tensor([[1.0], [3.0]]), torch.tensor([1, 1]), 2)
        (tensor([[0.],
                [2.]]), tensor([0., 2.]))
    """
    member = one_hot(cluster, number).to(rows.dtype)
    count = member.sum(0)
    return member.T @ rows / count.clamp(min=1)[:, None], count


def first_centres(rows: Tensor, number: int) -> Tensor:
    """Sample rows as first centres; rows far from earlier centres are more probable (k-means++)."""
    chosen = [int(torch.randint(len(rows), ()))]
    for _ in range(number - 1):
        apart = torch.cdist(rows, rows[chosen]).amin(1).square()
        weight = apart if bool(apart.sum() > 0) else torch.ones_like(apart)
        chosen.append(int(torch.multinomial(weight, 1)))
    return rows[chosen]

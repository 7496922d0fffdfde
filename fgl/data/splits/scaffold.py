"""Split of molecules by scaffold: ring systems of test molecules are new to training."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch

from ...graph import MASKS, Graph
from ...kinds import typed
from ..scaffolds import scaffold_groups
from .nodes import check_shares, warn_of_empty


@typed
def scaffold_split(
    graph: Graph, scaffolds: Sequence[Hashable], *, train: float = 0.8, val: float = 0.1
) -> Graph:
    """Molecules that share a scaffold train, validate or test together; nothing is drawn.

    The groups of `scaffold_groups`, the largest first, train as long as they fit into
    ``train n`` molecules; a group that does not fit validates where train and validation together
    stay within ``(train + val) n``, and is tested otherwise.

    Args:
        graph: a collection of n molecules.
        scaffolds: one a molecule, as `murcko_scaffolds` finds them, or any other ids.
        train, val: shares of the molecules.

    Returns:
        The collection with its three masks replaced; every molecule is in exactly one. A warning
        says which of them got none of its share.

    Raises:
        ValueError: unless there is a scaffold per molecule, and the shares are at least 0 and their
            sum at most 1.

    Example:
        >>> none = torch.zeros(2, 0, dtype=torch.int64)
        >>> graph = fgl.Graph(torch.ones(5, 1), none, batch=torch.arange(5))
        >>> graph = scaffold_split(graph, ["a", "b", "a", "a", "c"], train=0.6, val=0.2)
        >>> graph.train_mask.tolist(), graph.test_mask.tolist()
        ([True, False, True, True, False], [False, True, False, False, False])

    Source: Wu et al. 2018, MoleculeNet, https://arxiv.org/abs/1703.00564
    """
    n = graph.num_examples
    if len(scaffolds) != n:
        raise ValueError(f"Expected scaffolds to be {n}, one a molecule, but got {len(scaffolds)}")
    check_shares(train, val)
    masks = torch.zeros(len(MASKS), n, dtype=torch.bool)
    trained = validated = 0
    for group in scaffold_groups(scaffolds):
        if trained + len(group) <= train * n:
            role, trained = 0, trained + len(group)
        elif trained + validated + len(group) <= (train + val) * n:
            role, validated = 1, validated + len(group)
        else:
            role = 2
        masks[role, group] = True
    warn_of_empty((train, val, 1 - train - val > 1e-9), masks.sum(1).tolist())
    return graph.replace(**dict(zip(MASKS, masks.to(graph.device), strict=True)))

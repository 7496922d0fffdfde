"""Splits of nodes and molecules into training, validation and test examples."""

from collections.abc import Hashable, Sequence
from typing import Literal

import torch
from torch import Tensor

from ...checks import Natural, check_mask, reject_if
from ...graph import MASKS, Graph
from ...graph.fields import masks_of, present
from ...warn import warn
from ..scaffolds import scaffold_groups
from .reverses import units_of

# (train_per_class, num_val) of FGSSL: floor(0.6 n / num_classes) and round(0.2 n).
Split = Literal["class_capped", "random", "public"]
CLASS_CAPPED = {"cora": (232, 542), "citeseer": (332, 665), "pubmed": (3943, 3943)}


def split(graph: Graph, name: Split, *, dataset: str | None = None, seed: int = 0) -> Graph:
    """Split a graph by one of three methods, chosen by name.

    Args:
        graph: the graph.
        name: ``"class_capped"``, ``"random"`` or ``"public"``.
        dataset: name of the dataset, for ``"class_capped"`` only. If the name is a key of
            `CLASS_CAPPED`, the sizes are those in `CLASS_CAPPED`. Otherwise, the default sizes are
            used.
        seed: random seed; ``"public"`` does not use it.

    Raises:
        ValueError: if the name is unknown, or if the function of the method raises a ValueError.

    Example:
        >>> graph = fgl.data.splits.split(fgl.data.load("synthetic"), "random")
        >>> graph.num_train
        1625
    """
    if name == "class_capped":
        train_per_class, num_val = CLASS_CAPPED.get(dataset or "", (None, None))
        return class_capped_split(
            graph, train_per_class=train_per_class, num_val=num_val, seed=seed
        )
    return random_split(graph, seed=seed) if name == "random" else public_split(graph)


def class_capped_split(
    graph: Graph,
    *,
    train_per_class: Natural | None = None,
    num_val: int | None = None,
    num_test: Natural | None = None,
    seed: int = 0,
) -> Graph:
    """Split nodes with a limited number of training nodes per class.

    Of the nodes that are not training nodes, `num_val` are validation nodes, and the rest are test
    nodes. If a class has fewer nodes than the limit, all of its nodes are training nodes. The class
    distribution of the test nodes is therefore skewed (FGSSL). If nodes have types and the graph
    has masks, only types that occur in a mask are split.

    Args:
        graph: a graph with labels.
        train_per_class: largest number of training nodes per class. The default is ``floor(0.6
            num_nodes / num_classes)``.
        num_val: number of validation nodes. The default is ``round(0.2 num_nodes)``.
        num_test: largest number of test nodes. By default all remaining nodes are test nodes.
        seed: random seed.

    Returns:
        The graph with three new masks. If `num_test` is not given, every node is in exactly one
        mask. A warning names the masks without nodes.

    Raises:
        ValueError: if the graph has no labels, if it has pairs, if a number is negative, or if too
            few nodes are left for validation.

    Example:
        >>> y = torch.tensor([0, 0, 0, 0, 0, 1])
        >>> graph = fgl.Graph(torch.ones(6, 1), torch.tensor([[0], [1]]), y=y)
        >>> graph = fgl.data.splits.class_capped_split(graph, train_per_class=2, num_val=1)
        >>> int(graph.train_mask.sum()), int(graph.val_mask.sum()), int(graph.test_mask.sum())
        (3, 1, 2)

    Source: the loader of https://github.com/wgc-research/fgssl (the paper itself states a split of
    60/20/20)
    """
    labels = None if graph.y is None else graph.labels
    if labels is None or not graph.num_classes:
        raise ValueError("Expected graph to have labels, but got none")
    way = "random_split(graph) keeps copies of a pair together"
    of_pairs = graph.edge_label_index is not None
    reject_if(of_pairs, "examples to be nodes or graphs", f"edge_label_index: {way}")
    examples = _of_types(graph)
    n = len(examples)
    shares = (train_per_class != 0, num_val != 0, num_test != 0)
    if train_per_class is None:
        train_per_class = int(0.6 * n / graph.num_classes)
    if num_val is None:
        num_val = round(0.2 * n)
    order = examples[torch.randperm(n, generator=torch.Generator().manual_seed(seed))]
    y = labels.cpu()[order]
    train = torch.zeros(graph.num_examples, dtype=torch.bool)
    for label in range(graph.num_classes):
        train[order[y == label][:train_per_class]] = True
    rest = order[~train[order]]
    reject_if(not 0 <= num_val <= rest.numel(), f"num_val to be in [0, {rest.numel()}]", num_val)
    test = rest[num_val:][:num_test]
    parts = order[train[order]], rest[:num_val], test
    warn_of_empty(shares, [len(part) for part in parts])
    return _with_masks(graph, *parts)


def random_split(
    graph: Graph,
    *,
    train: float = 0.6,
    val: float = 0.2,
    seed: int = 0,
    among: Tensor | None = None,
) -> Graph:
    """Split examples at random by fractions; all remaining examples are test examples.

    Args:
        graph: the graph. The examples are nodes, pairs, or the graphs of a collection. A pair, the
            copies of the pair, and the reverses of all of these are in one part.
        train, val: fractions of training and validation examples. There are ``round(train n)``
            training examples. Together, training and validation examples are
            ``round((train + val) n)``.
        seed: random seed.
        among: bool ``[n]``, mask of the examples to split, such as the labelled examples. By
            default all examples are split. If nodes have types and the graph has masks, the default
            is all nodes of the types that occur in a mask.

    Returns:
        The graph with three new masks. Every example that is split is in exactly one mask. A
        warning names masks that have a positive fraction but no example.

    Raises:
        ValueError: if a fraction is negative, or if the sum of the fractions exceeds 1.

    Example:
        >>> graph = fgl.Graph(torch.ones(10, 1), torch.tensor([[0], [1]]))
        >>> graph = fgl.data.splits.random_split(graph, train=0.5, val=0.3)
        >>> int(graph.train_mask.sum()), int(graph.val_mask.sum()), int(graph.test_mask.sum())
        (5, 3, 2)
    """
    check_shares(train, val)
    examples = _of_types(graph)
    if among is not None:
        check_mask("among", among, graph.num_examples)
        examples = among.cpu().nonzero().squeeze(1)
    unit = None if graph.edge_label_index is None else _pairs_alike(graph, examples)
    n = len(examples) if unit is None else int(unit.max()) + 1
    first = round(train * n)
    second = round((train + val) * n)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    parts = [order[:first], order[first:second], order[second:]]
    if unit is not None:
        parts = [torch.isin(unit, part).nonzero().squeeze(1) for part in parts]
    warn_of_empty((train, val, 1 - train - val > 1e-9), [len(part) for part in parts])
    return _with_masks(graph, *(examples[part] for part in parts))


def _of_types(graph: Graph) -> Tensor:
    """Ids of all examples, except for nodes of a type that has no node in any mask.

    Such a type has no labels. No example is left out if there are no masks, or if the examples are
    not nodes with types.
    """
    every = torch.arange(graph.num_examples)
    masks = list(present(graph, MASKS).values())
    of_nodes = graph.edge_label_index is None and graph.batch is None
    if graph.node_type is None or not (of_nodes and masks):
        return every
    types = graph.node_type[torch.stack(masks).any(0)].unique()
    return every[torch.isin(graph.node_type, types).cpu()]


def _pairs_alike(graph: Graph, examples: Tensor) -> Tensor | None:
    """Number the pairs; copies and reverses get equal numbers. None if all numbers differ."""
    low, high = graph.edge_label_index.cpu()[:, examples].sort(0).values  # type: ignore[union-attr]
    key = low * graph.num_nodes + high
    return units_of(key)[1]


def warn_of_empty(shares: Sequence[float | bool], sizes: Sequence[int]) -> None:
    """Warn if a mask has no example although its fraction of the examples is positive."""
    empty = [n for n, w, size in zip(MASKS, shares, sizes, strict=True) if w and not size]
    if empty:
        remedy = "give a larger share, or 0"
        if not sum(sizes):
            remedy = "among=mask, or the masks of a typed graph, name examples to split"
        warn(
            f"Expected the shares to leave examples to {' and '.join(empty)}, but got 0 of "
            f"{sum(sizes)}: {remedy}"
        )


def check_shares(train: float, val: float) -> None:
    """Raise a ValueError unless both numbers are valid fractions and their sum is at most 1."""
    expected = "train and val to be at least 0 and their sum at most 1"
    reject_if(not (train >= 0 and val >= 0 and train + val <= 1), expected, f"{train} and {val}")


def public_split(graph: Graph) -> Graph:
    """Return the graph unchanged if it has all three masks of its public split.

    Raises:
        ValueError: if a mask is missing, or if an example is in two masks.

    Example:
        >>> mask = torch.tensor([True])
        >>> masks = {"train_mask": mask, "val_mask": ~mask, "test_mask": ~mask}
        >>> graph = fgl.Graph(torch.ones(1, 1), torch.empty(2, 0, dtype=torch.int64), **masks)
        >>> fgl.data.splits.public_split(graph) is graph
        True
    """
    missing = [name for name in MASKS if getattr(graph, name) is None]
    reject_if(missing, "graph to have a public split", f"no {missing}")
    return graph


def _with_masks(graph: Graph, *nodes: Tensor) -> Graph:
    way = "fgl.data.splits.windows(graph, shares=...) splits them in the order of time"
    got = f"windows, which others read: {way}"
    reject_if(graph.has("window_index"), "examples that can be split at random", got)
    masks = masks_of(nodes, graph.num_examples)
    return graph.replace(**{name: mask.to(graph.device) for name, mask in masks.items()})


def scaffold_split(
    graph: Graph, scaffolds: Sequence[Hashable], *, train: float = 0.8, val: float = 0.1
) -> Graph:
    """Split molecules by scaffold, without randomness; each scaffold is in exactly one mask.

    The groups of `scaffold_groups` are assigned one after the other, from the largest to the
    smallest. A group goes to the training set if this set then has at most the fraction `train` of
    all molecules. Otherwise, the group goes to the validation set if the training and validation
    sets together then have at most the fraction ``train + val`` of all molecules. Any remaining
    group goes to the test set.

    Args:
        graph: a collection of n molecules.
        scaffolds: scaffold of each molecule, as returned by `murcko_scaffolds`, or any other ids.
        train, val: fractions of the molecules.

    Returns:
        The collection with three new masks. Every molecule is in exactly one mask. If a mask
        gets no molecule although its fraction is positive, a warning gives the mask's name.

    Raises:
        ValueError: if the number of scaffolds differs from the number of molecules, if a fraction
            is negative, or if the sum of the fractions exceeds 1.

    Example:
        >>> none = torch.zeros(2, 0, dtype=torch.int64)
        >>> graph = fgl.Graph(torch.ones(5, 1), none, batch=torch.arange(5))
        >>> graph = scaffold_split(graph, ["a", "b", "a", "a", "c"], train=0.6, val=0.2)
        >>> graph.train_mask.tolist(), graph.test_mask.tolist()
        ([True, False, True, True, False], [False, True, False, False, False])

    Source: Wu et al. 2018, MoleculeNet, https://arxiv.org/abs/1703.00564
    """
    n = graph.num_examples
    reject_if(len(scaffolds) != n, f"scaffolds to be {n}, one a molecule", len(scaffolds))
    check_shares(train, val)
    parts: list[list[int]] = [[], [], []]
    for group in scaffold_groups(scaffolds):
        trained, validated = len(parts[0]), len(parts[1])
        if trained + len(group) <= train * n:
            parts[0] += group
        elif trained + validated + len(group) <= (train + val) * n:
            parts[1] += group
        else:
            parts[2] += group
    warn_of_empty((train, val, 1 - train - val > 1e-9), list(map(len, parts)))
    return _with_masks(graph, *(torch.tensor(part, dtype=torch.int64) for part in parts))

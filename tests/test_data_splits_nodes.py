"""Splits: disjoint, complete, of the sizes that the paper and the arguments name."""

from typing import Any

import pytest
import torch
from federations import refuses
from hypothesis import given
from hypothesis import strategies as st

import fgl
from fgl import Graph
from fgl.data.splits import class_capped_split, public_split, random_split, split


def labelled(*sizes: int) -> Graph:
    y = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    y = y[torch.randperm(y.numel(), generator=torch.Generator().manual_seed(0))]
    edges = torch.empty(2, 0, dtype=torch.int64)
    return Graph(torch.ones(y.numel(), 1), edges, y=y, num_classes=len(sizes))


def masks(graph: Graph) -> list[torch.Tensor]:
    found = (graph.train_mask, graph.val_mask, graph.test_mask)
    return [mask for mask in found if mask is not None]


def counts(graph: Graph) -> tuple[int, ...]:
    """Sizes of the three sets, once they are found to be disjoint and complete."""
    assert (torch.stack(masks(graph)).sum(0) == 1).all()
    return tuple(int(mask.sum()) for mask in masks(graph))


@pytest.mark.filterwarnings("ignore:Expected the shares to leave")
@given(data=st.data())
def test_class_capped_in_loops(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=5).filter(sum))
    cap = data.draw(st.integers(0, 25))
    rest = sum(max(size - cap, 0) for size in sizes)
    num_val = data.draw(st.integers(0, rest))
    graph = class_capped_split(labelled(*sizes), train_per_class=cap, num_val=num_val)
    assert counts(graph) == (sum(sizes) - rest, num_val, rest - num_val)
    for label, size in enumerate(sizes):
        assert int((graph.y[graph.train_mask] == label).sum()) == min(size, cap)
    with pytest.raises(ValueError, match=rf"num_val to be in \[0, {rest}\], but got {rest + 1}"):
        class_capped_split(graph, train_per_class=cap, num_val=rest + 1)


def test_splits_of_today() -> None:
    """Pinned, so that a new version does not silently change every published number."""
    pinned = {
        "random": [3, 4, 5, 12, 15, 16, 25, 30, 40, 48],
        "class_capped": [3, 4, 5, 11, 12, 14, 15, 16, 18, 28, 30, 35, 42, 48, 49],
    }
    for name, nodes in pinned.items():
        assert split(labelled(40, 10), name).test_mask.nonzero().flatten().tolist() == nodes


def test_public_split() -> None:
    graph = random_split(labelled(50))
    assert public_split(graph) is graph
    assert split(graph, "public", seed=5) is graph
    with pytest.raises(ValueError, match="Expected graph .*got no .*val_mask"):
        public_split(graph.replace(val_mask=None))


BAD: list[tuple[Any, str]] = [
    (lambda g: split(g, "other"), "name to be one of .* but got 'other'"),
    (lambda g: class_capped_split(g.replace(y=None)), "Expected graph .*got none"),
    (lambda g: class_capped_split(g, train_per_class=-1), "Expected train_per_class .*got -1"),
    (lambda g: class_capped_split(g, num_val=-1), r"Expected num_val to be in \[0, .*, but got -1"),
    (lambda g: random_split(g, train=-0.1), "Expected train and val to be .*but got -0.1 and 0.2"),
    (lambda g: random_split(g, val=0.5), "their sum at most 1, but got 0.6 and 0.5"),
    (lambda g: random_split(g, train=float("nan")), "Expected train and val to be .* got nan"),
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message[:30] for _, message in BAD])
def test_refuses(call: Any, message: str) -> None:
    refuses(message, lambda: call(labelled(30, 20)))


def test_a_split_of_no_example_says_so() -> None:
    """A typed graph whose masks are all False had three empty masks without a word."""
    ids, y, mask = torch.arange(9), torch.arange(9) % 2, torch.zeros(9, dtype=torch.bool)
    masks: Any = {name: {"u": mask} for name in ("train_mask", "val_mask", "test_mask")}
    edges = {("u", "buys", "i"): torch.stack([ids, ids])}
    typed = fgl.data.typed_graph({"u": 9, "i": 9}, edges, y={"u": y}, **masks)
    with pytest.warns(UserWarning, match="train_mask and val_mask and test_mask, but got 0 of 0"):
        random_split(typed)
    with pytest.warns(UserWarning, match="got 0 of 0"):
        random_split(typed, among=torch.zeros(18, dtype=torch.bool))
    assert random_split(typed, among=typed.node_type == 0).num_train == 5  # the remedy


def test_a_split_has_its_datasets_sizes() -> None:
    named = split(labelled(300, 900), "class_capped", dataset="cora")
    assert counts(named) == (2 * 232, 542, 1200 - 464 - 542)
    assert counts(split(labelled(300, 900), "class_capped")) == (300 + 360, 240, 300)

"""Partitions by igraph and METIS: whole, balanced, of few cut edges, the same in any process."""

import random
import sys
from collections.abc import Callable
from functools import partial

import pytest
import torch
from federations import printed

from fgl.data import csbm, partitions
from fgl.data.partitions import leiden_partition, louvain_partition, metis_partition

igraph = pytest.importorskip("igraph")
pytest.importorskip("pymetis")
SMALL = csbm(num_nodes=600, num_features=20, words_per_set=5, seed=1)
Partition = Callable[..., list[torch.Tensor]]
FAST: dict[str, Partition] = {
    "louvain_igraph": partial(louvain_partition, engine="igraph"),
    "leiden": leiden_partition,
    "metis": metis_partition,
}
COMMUNITIES = ("louvain_igraph", "leiden")


@pytest.mark.parametrize("name", FAST)
def test_it_depends_on_the_undirected_edges_and_the_seed_alone(name: str) -> None:
    parts = FAST[name](SMALL, 4)
    half = SMALL.edge_index[:, SMALL.edge_index[0] > SMALL.edge_index[1]]
    loops = torch.arange(5).expand(2, 5)
    random.seed(3)
    before = random.getstate()
    for edges in (half, torch.cat([half.flip(1), half, half.flip(0), loops], 1)):
        again = FAST[name](SMALL.replace(edge_index=edges), 4)
        assert all(torch.equal(a, b) for a, b in zip(parts, again, strict=True))
    assert random.getstate() == before  # the caller's random numbers are left alone
    others = [FAST[name](SMALL, 4, seed=seed) for seed in (1, 2, 3)]
    assert any(not all(map(torch.equal, parts, other)) for other in others)


def test_metis_cuts_as_recursive_says() -> None:
    import pymetis

    ends = torch.cat([SMALL.edge_index, SMALL.edge_index.flip(0)], 1).unique(dim=1)
    near = [ends[1, ends[0] == node].tolist() for node in range(SMALL.num_nodes)]
    found = []
    for recursive in (False, True):
        options = pymetis.Options(seed=1)  # 0 would be another's 1
        _, owner = pymetis.part_graph(4, near, options=options, recursive=recursive)
        parts = FAST["metis"](SMALL, 4, seed=0, recursive=recursive)
        found.append([part.tolist() for part in parts])
        assert found[-1] == [[v for v, k in enumerate(owner) if k == own] for own in range(4)]
    assert found[0] != found[1]


@pytest.mark.slow
def test_a_fresh_process_finds_the_same_parts() -> None:
    code = (
        "import random, torch; random.seed(); from test_data_partitions_fast import *;"
        "print([[p.tolist() for p in cut(SMALL, 4, seed=5)] for cut in FAST.values()])"
    )
    here = [[part.tolist() for part in cut(SMALL, 4, seed=5)] for cut in FAST.values()]
    assert printed("-c", code).strip() == str(here)


@pytest.mark.parametrize("name", FAST)
def test_wrong_arguments(name: str) -> None:
    for num_clients in (0, 601):
        with pytest.raises(ValueError, match=r"Expected num_clients to be in \[1, 600\]"):
            FAST[name](SMALL, num_clients)
    if name in COMMUNITIES:
        with pytest.raises(ValueError, match="Expected delta to be an integer >= 0, but got -1"):
            FAST[name](SMALL, 2, delta=-1)
        for resolution in (-1.0, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="Expected resolution to be a number >= 0"):
                FAST[name](SMALL, 2, resolution=resolution)


def test_an_engine_that_is_unknown_or_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="Expected engine to be one of 'networkx', 'igraph'"):
        louvain_partition(SMALL, 2, engine="networkit")
    for module in ("igraph", "pymetis"):
        monkeypatch.setitem(sys.modules, module, None)
    for name, module in (("leiden", "igraph"), ("metis", "pymetis")):
        with pytest.raises(ImportError, match=rf"{module} to be installed.*'.\[partitions\]' in a"):
            FAST[name](SMALL, 2)


def test_networkx_names_igraph_where_it_would_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions.cuts, "SLOW", 100)
    with pytest.warns(UserWarning, match='engine="igraph"'):
        louvain_partition(SMALL, 2)

"""The benchmark of the graph like a tenth of papers100M, at a size for seconds."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import script

import fgl

pytestmark = pytest.mark.slow

MODULE: Any = script("benchmarks/speed/papers_like.py")
NODES, CLIENTS = 3000, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("papers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "ROWS", 1000)  # several blocks of features
        MODULE.make_graph(place / "graph", NODES)
    MODULE.cut(place, CLIENTS)
    return place


@pytest.mark.slow
def test_clients_hold_the_rows_of_the_graph_each_once(folder: Path) -> None:
    x, y, edges = (np.load(folder / "graph" / f"{name}.npy") for name in ("x", "y", "edge_index"))
    assert x.shape == (NODES, 128)
    assert x.dtype == np.float16
    inside = {tuple(edge) for edge in edges.T.tolist()}
    clients = [fgl.data.open_client(folder / f"client-{k}", mapped=True) for k in range(CLIENTS)]
    assert torch.cat([own.node_id for own in clients]).sort().values.tolist() == [*range(NODES)]
    for own in clients:
        ids: Any = own.node_id
        assert torch.equal(own.x, torch.from_numpy(x)[ids])
        assert torch.equal(own.y, torch.from_numpy(y)[ids])
        assert {tuple(edge) for edge in ids[own.edge_index].t().tolist()} <= inside
        assert own.num_train > 0
        assert own.test_mask is not None


def test_a_client_trains_and_scores_on_features_of_half_the_bytes(folder: Path) -> None:
    pytest.importorskip("flwr")
    from speed import papers_app

    sizes = papers_app.Sizes(CLIENTS, 2, 1, 128, MODULE.CLASSES, 8, 16)
    method = papers_app.method(sizes)
    graph = fgl.data.open_client(folder / "client-0", mapped=True, check=False)
    steps: Any = method.train.batches(graph, {})  # type: ignore[misc]
    assert len(steps) == -(-graph.num_train // 16)
    batch, _ = steps[0]
    assert batch.x.dtype == torch.float32
    rows = torch.searchsorted(graph.node_id, batch.node_id)  # type: ignore[arg-type]
    assert torch.equal(batch.x, graph.x[rows].float())
    ((right, scored),) = papers_app.score(method)(method.initial(), graph).values()
    assert 0 <= right <= scored == min(int(graph.test_mask.sum()), papers_app.SCORED)  # type: ignore[union-attr]


def test_a_round_that_was_played_twice_counts_once(tmp_path: Path) -> None:
    assert MODULE.played(tmp_path) == []
    lines = [{"round": 0, "n": 1}, {"round": 1, "n": 1}, {"round": 1, "n": 2}]
    (tmp_path / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert MODULE.played(tmp_path) == [lines[0], lines[2]]


def test_a_run_may_go_on_with_more_rounds() -> None:
    pytest.importorskip("flwr")
    from speed import papers_app

    from fgl.federation.executors.remote.client import agreement

    sizes = papers_app.Sizes(CLIENTS, 2, 5, 128, 172, 8, 16)
    said = agreement(papers_app.method(sizes))
    assert said == agreement(papers_app.method(sizes._replace(rounds=9)))
    assert said != agreement(papers_app.method(sizes._replace(batch_size=32)))

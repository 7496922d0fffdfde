"""FedVGAE, end to end: what it adds to FedAvg, term by term, for links and for nodes."""

import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import CLASSES, FEATURES, close, graph, receive_as_a_run, same, script

import fgl
from fgl import Method, Training
from fgl.data.splits import EdgeSplit
from fgl.personalize import part
from fgl.tasks import Links, Task, evaluate_own, link_scores, node_scores

# Of some clients with few edges nothing is kept, which many tests want.
pytestmark = pytest.mark.filterwarnings("ignore:No edge of")
ADAM = Training(partial(torch.optim.Adam, lr=0.02), num_steps=3)
EXAMPLE = script("examples/fedvgae.py")


def clients(task: str) -> tuple[list[fgl.Graph], list[EdgeSplit] | None]:
    """Three of unequal size; the last is too small to split its edges."""
    whole = [graph(size, seed=k) for k, size in enumerate((40, 30))]
    whole.append(graph(5).replace(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])))
    if task == "node":
        return whole, None
    splits = [fgl.data.splits.edge_split(own, seed=1) for own in whole]
    assert [own.trains_only for own in splits] == [False, False, True]
    return [own.graph for own in splits], splits


def task_of(task: str, data: Any, recon: Any = "sampled") -> Task:
    own, splits = data
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = fgl.nn.VGAE(FEATURES, 8, 4, num_classes=CLASSES if task == "node" else None)
    if splits is None:
        return fgl.tasks.own_node_task(own, model, ADAM)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*they train and are not scored")
        return fgl.tasks.link_task(splits, model, ADAM, recon=recon)


def build(task: str, data: Any, recon: Any = "sampled", **options: Any) -> Method:
    made = task_of(task, data, recon)
    return EXAMPLE.fedvgae(made.fedavg, made.validate, **options)


def test_a_classifier_never_leaves_its_client() -> None:
    data = clients("node")
    got = fgl.run(build("node", data), data[0], num_rounds=3, seed=1, clients_at_once=1)
    heads = [state["model"]["head.lins.0.weight"] for state in got.client_states.values()]
    assert not torch.equal(heads[0], heads[1])
    assert not any(name.startswith("head") for name in got.outbox[0]["model"])
    # The first message holds the initial classifier; of what is sent each round, all is counted.
    size = sum(4 * v.numel() for v in got.outbox[0]["model"].values())
    assert [r.bytes_up for r in got.history] == [3 * (size + 8)] * 3
    assert [r.bytes_down for r in got.history[1:]] == [3 * size] * 2


def test_what_hurts_is_mixed_back() -> None:
    data = clients("node")
    made = build("node", data, max_adjust=1, delta=0.0)
    result = fgl.run(made, data[0], num_rounds=2)
    assert {k for k in result.client_states[0] if k != "queue"} == {
        *("model", "adopted", "validation", "rounds", "adjusted")
    }
    state = result.client_states[0]
    received: Any = {k: v + 50 for k, v in result.outbox[0]["model"].items()}
    for last, mixed in ((1.0, True), (-1.0, False)):
        known = {**state, "validation": torch.tensor(last)}
        start, context = receive_as_a_run(made, {"model": received}, known, data[0][0])
        assert bool(context["adjusted"]) == mixed
        for name, value in received.items():
            want = (value + state["model"][name]) / 2 if mixed else value
            close(start[name], want, atol=1e-4)
        close(start["head.lins.0.bias"], state["model"]["head.lins.0.bias"])
        score = node_scores(made.model)(start, data[0][0])["val_accuracy"]
        assert float(context["validation"]) == pytest.approx(score)
        # What is contrasted with is not mixed.
        assert same(part(context["received"], *EXAMPLE.ENCODER), received)
        made.model.load_state_dict({**state["model"], **received})
        mu, _ = made.model.eval().encode(data[0][0].x, data[0][0].adj)
        close(context["near"].values, mu.detach(), atol=1e-3)
        kept = made.send(start, context, known, data[0][0])[1]
        assert int(kept["rounds"]) == 3
        assert int(kept["adjusted"]) == int(state["adjusted"]) + mixed


@pytest.mark.parametrize("missing", ["edges", "negatives"])
def test_without_positives_or_negatives_there_is_no_score(missing: str) -> None:
    split = fgl.data.splits.edge_split(graph(40))
    model, names = fgl.nn.VGAE(FEATURES, 4, 2), ["val_auc", "val_ap", "test_auc", "test_ap"]
    for kept, left in (("val", names[2:]), ("test", names[:2])):
        one = replace(split, **{f"{kept}_{missing}": torch.zeros(2, 0, dtype=torch.int64)})
        assert list(link_scores(model, [one])(model.state_dict(), one.graph)) == left
    whole = link_scores(model, [split])
    assert list(whole(model.state_dict(), split.graph)) == names
    with pytest.raises(ValueError, match="Expected graph to be the graph of a split"):
        whole(model.state_dict(), graph(40))
    blind = fgl.data.splits.edge_split(graph(40), val=0)
    made = build("link", ([blind.graph], [blind]), delta=0.0)
    result = fgl.run(made, [blind.graph], num_rounds=3)
    assert int(result.client_states[0]["adjusted"]) == 0


def test_a_client_that_only_trains_is_reported() -> None:
    setting = Links(clients=22, partition="random")
    with pytest.warns(UserWarning, match="have enough edges to split, but got too few in"):
        made = setting.load()
    score = made.evaluate(made.fedavg)
    message = {"model": made.fedavg.initial()}
    found = score(dict.fromkeys(range(22), message), {})
    assert 0 < found["scored_clients"] < 22
    split = fgl.data.splits.edge_split(clients("link")[0][2])
    idle = link_scores(fgl.nn.VGAE(FEATURES, 4, 2), [split])
    assert split.trains_only and idle({}, split.graph) == {}
    plain = fgl.fedavg(fgl.nn.VGAE(FEATURES, 4, 2))
    with pytest.raises(ValueError, match="Expected a client to have something to test on"):
        evaluate_own(idle, plain, [split.graph])({0: {"model": plain.initial()}}, {})


@pytest.mark.parametrize("recon", ["sampled", "dense", "dense_weighted"])
def test_a_client_whose_nodes_are_all_joined_has_no_pair_to_draw(recon: str) -> None:
    """Two nodes with an edge, and a triangle: too few edges to split, and none that is missing."""
    pair = graph(2).replace(edge_index=torch.tensor([[0, 1], [1, 0]]))
    three = torch.tensor([[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]])
    splits = [
        fgl.data.splits.edge_split(g) for g in (graph(40), pair, graph(3).replace(edge_index=three))
    ]
    data = ([each.graph for each in splits], splits)
    one, all_ = (
        fgl.run(build("link", data, recon=recon), data[0], num_rounds=3, clients_at_once=at_once)
        for at_once in (1, "all")
    )
    assert all(record.dropped == {} for record in one.history)
    close(all_.outbox[0]["model"], one.outbox[0]["model"], atol=2e-5)
    moved = one.client_states[1]
    assert not same(moved["model"], moved["adopted"])


def test_degrees_of_any_file_without_features_are_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Degrees of the whole graph would tell how many edges of a node are kept from the client."""
    whole = graph(60, seed=3)
    nodes = "".join(f"node [ id {v} value {v % 2} ]\n" for v in range(60))
    edges = "".join(f"edge [ source {u} target {v} ]\n" for u, v in whole.edge_index.t().tolist())
    (tmp_path / "blogs").mkdir()
    (tmp_path / "blogs" / "blogs.gml").write_text(f"graph [\n{nodes}{edges}]\n")
    monkeypatch.setenv("FGL_DATA", str(tmp_path))
    for features in ("raw", "normalized"):
        (client,) = (
            Links(dataset="blogs", clients=1, features=features, partition="random").load(0).clients
        )
        assert client.num_edges < whole.num_edges
        counted = client.edge_index[1].bincount(minlength=60)
        assert isinstance(client.x, fgl.SparseMatrix)
        assert torch.equal(client.x.to_dense().argmax(1), counted)


@pytest.mark.slow
def test_no_client_with_enough_edges_is_an_error_before_the_run() -> None:
    with pytest.raises(ValueError, match="enough edges to split, but got none of 2708"):
        Links(clients=2708, partition="random").load()

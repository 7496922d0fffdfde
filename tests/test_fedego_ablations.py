"""FedEgo's ablations: what each leaves out, in the loop and in a batch; unseen test nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from federations import close, same
from harness.rows import Loaded
from papers.fedego import TABLES
from papers.fedego_methods import SAGEThenMLP, server_steps
from torch import Tensor
from torch.func import functional_call

import fgl
from fgl import Method
from fgl.data.partitions.major_label import unseen_nodes
from fgl.federation import Inbox, fold_in
from fgl.personalize import part, rest
from fgl.tasks import Local, Task, ego_node_task
from fgl.tasks.scores import evaluate_ego

SMALL = fgl.data.csbm(num_nodes=260, num_features=20, words_per_set=5, seed=1)
TEST, CLIENTS = fgl.data.partitions.major_label_partition(SMALL, 4, share=0.4, num_test=15)
FEATURES, CLASSES, HIDDEN, FANOUTS, BATCH = SMALL.num_features, 7, 8, (3, 3), 8
ABLATION = TABLES["fedego-table5"]
NAMES = ("w/o Mixup", "w/o EGO", "w/o RL", "w/o PL", "FedEgo-Server", "heads averaged")
rows = pytest.mark.parametrize("name", NAMES)
pytestmark = pytest.mark.filterwarnings("ignore:Expected means of ego-graphs")  # w/o Mixup


def build(
    name: str, *, dropout: float = 0.0, dtype: torch.dtype = torch.float32
) -> tuple[Method, Task]:
    """A row of the ablation on a small task."""
    row = ABLATION.row(name)
    local = Local("adam", lr=0.01, weight_decay=0.0, steps=2)
    small = {"hidden": HIDDEN, "fanouts": FANOUTS, "batch_size": BATCH, "dropout": dropout}
    setting = replace(row.setting, local=local, **small)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = setting.network(SMALL).to(dtype)
    steps = {"epochs": 2, "batch_size": BATCH}
    graphs = [own.replace(x=own.x.astype(dtype)) for own in CLIENTS]
    test = TEST.replace(x=TEST.x.astype(dtype))
    task = ego_node_task(graphs, test, model, local.optimizer_factory(), **steps)
    loaded = Loaded(setting, task, seed=0)
    assert server_steps(loaded) == steps
    return row.method(loaded, **row.options), task


def uploads(method: Method, task: Task, num_rounds: int = 2) -> tuple[list[Any], Any]:
    """The inboxes of a run, and its end."""
    seen: list[Any] = []

    def aggregate(inbox: Inbox, state: Any) -> Any:
        seen.append(dict(inbox))
        return method.aggregate(inbox, state)

    return seen, fgl.run(replace(method, aggregate=aggregate), task, num_rounds=num_rounds)


@pytest.mark.parametrize(("name", "whose"), [("w/o PL", "own"), ("FedEgo-Server", "server")])
def test_whose_head_a_client_uses(name: str, whose: str) -> None:
    """Without personalization layers none is mixed: exactly one's own; or exactly the server's."""
    method, task = build(name)
    result = fgl.run(method, task, num_rounds=2)
    for client, graph in enumerate(task.clients):
        message, state = result.outbox[client], result.client_states[client]
        own, server = rest(state["model"], "reduction"), message["head"]  # type: ignore[arg-type]
        assert not any(torch.equal(own[key], server[key]) for key in own)  # type: ignore[index]
        want = own if whose == "own" else dict(server)  # type: ignore[arg-type]
        scored = method.deploy(message, state, graph)
        started = method.receive(message, state, graph)[0]
        assert same(rest(scored, "reduction"), want)
        assert same(rest(started, "reduction"), want)
        assert same(part(started, "reduction"), dict(message["model"]))  # type: ignore[arg-type]


def naive_sage(x: Tensor, edges: Tensor, params: dict[str, Tensor], layers: int = 2) -> Tensor:
    """GraphSAGE node by node: root, mean of neighbours, bias, ReLU."""
    for layer in range(layers):
        name = f"reduction.{layer}"
        left, right = params[f"{name}.lin_l.weight"], params[f"{name}.lin_r.weight"]
        new = []
        for v in range(len(x)):
            near = x[edges[0][edges[1] == v]]
            mean = near.mean(0) if len(near) else torch.zeros(x.shape[1]).to(x)
            new.append((left @ mean + right @ x[v] + params[f"{name}.lin_l.bias"]).clamp(min=0))
        x = torch.stack(new)
    return x


def test_without_ego_an_upload_is_centres_alone() -> None:
    """Nothing but the SAGE layers, means of centres' embeddings and of their labels goes out."""
    method, task = build("w/o EGO", dtype=torch.double)
    seen, result = uploads(method, task, num_rounds=1)
    for client, graph in enumerate(task.clients):
        message = seen[0][client]
        assert set(message) == {"num_examples", "model", "embeddings", "labels"}
        assert all(name.startswith("reduction.") for name in message["model"])
        centres = graph.train_mask.nonzero().flatten()  # type: ignore[union-attr]
        count = -(-len(centres) // BATCH)
        assert message["embeddings"].shape == (count, 1, HIDDEN)  # one position: no tree
        assert message["labels"].shape == (count, 1, CLASSES)
        r = naive_sage(graph.x.to_dense(), graph.edge_index, message["model"])  # type: ignore[union-attr]
        for i, batch in enumerate(centres.split(BATCH)):
            close(message["embeddings"][i, 0], r[batch].mean(0), atol=1e-9)
            share = graph.y[batch].bincount(minlength=CLASSES) / len(batch)  # type: ignore[index]
            close(message["labels"][i, 0].float(), share)
    everybody = torch.cat([message["labels"] for message in seen[0].values()]).mean((0, 1))
    close(result.outbox[0]["distribution"], everybody, atol=1e-9)
    for key, value in result.outbox[0]["model"].items():  # type: ignore[union-attr]
        close(value, sum(message["model"][key] for message in seen[0].values()) / 4, atol=1e-9)


def test_without_ego_the_server_trains_the_perceptron_by_hand() -> None:
    method, task = build("w/o EGO", dtype=torch.double)
    seen, result = uploads(method, task, num_rounds=1)
    x = torch.cat([message["embeddings"][:, 0] for message in seen[0].values()])
    y = torch.cat([message["labels"][:, 0] for message in seen[0].values()])
    leaves = {
        key: value.clone().requires_grad_()
        for key, value in rest(method.initial(), "reduction").items()
    }
    assert list(leaves) == ["lin.weight", "lin.bias", "head.weight"]
    adam = torch.optim.Adam(list(leaves.values()), lr=0.01)
    torch.manual_seed(fold_in(0, 0, "server", "aggregate"))
    for _ in range(2):
        for chosen in torch.randperm(len(x))[: len(x) // 5].split(BATCH):
            adam.zero_grad()
            hidden = (x[chosen] @ leaves["lin.weight"].t() + leaves["lin.bias"]).clamp(min=0)
            p = (hidden @ leaves["head.weight"].t()).softmax(1)
            (-(y[chosen] * (p + 1e-7).log()).sum(1).mean()).backward()
            adam.step()
    close(dict(result.outbox[0]["head"]), {k: v.detach() for k, v in leaves.items()}, atol=1e-9)  # type: ignore[arg-type]
    state: Any = result.server_state
    steps = int(state["optimizer"]["step/head.weight"])
    more: Any = fgl.run(method, task, num_rounds=2).server_state
    assert int(more["optimizer"]["step/head.weight"]) == 2 * steps > 0


def network(**options: Any) -> SAGEThenMLP:
    torch.manual_seed(0)
    return SAGEThenMLP(FEATURES, HIDDEN, CLASSES, fanouts=FANOUTS, **options)


# Test nodes that nobody else trains on.


def by_sets(clients: list[fgl.Graph]) -> list[set[int]]:
    trained = [set(g.node_id[g.train_mask].tolist()) for g in clients]  # type: ignore[index]
    tested = [set(g.node_id[g.test_mask].tolist()) for g in clients]  # type: ignore[index]
    return [
        tested[k] - set().union(*(own for j, own in enumerate(trained) if j != k))
        for k in range(len(clients))
    ]


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6])
def test_unseen_nodes_are_those_of_no_other_training_set(share: float) -> None:
    _, clients = fgl.data.partitions.major_label_partition(SMALL, 4, share=share, num_test=8)
    masks = unseen_nodes(clients)
    pairs: Any = zip(clients, masks, strict=True)
    found = [set(own.node_id[mask].tolist()) for own, mask in pairs]
    assert found == by_sets(clients)
    assert len(found[0]) == 8  # nobody may take the test nodes of the clients before
    backwards = unseen_nodes(clients[::-1])[::-1]
    assert all(torch.equal(a, b) for a, b in zip(backwards, masks, strict=True))


def test_a_node_that_another_client_trains_on_is_seen() -> None:
    ids = torch.tensor([5, 9])
    mask = torch.tensor([True, False])
    own = fgl.Graph(torch.ones(2, 1), torch.zeros(2, 0, dtype=torch.int64), node_id=ids)
    tests = own.replace(train_mask=~mask, test_mask=mask)
    trains = own.replace(train_mask=mask, test_mask=~mask)
    assert [each.tolist() for each in unseen_nodes([tests])] == [[True, False]]
    assert [each.tolist() for each in unseen_nodes([tests, trains])] == [[False, False]] * 2
    assert [each.tolist() for each in unseen_nodes([tests, tests])] == [[True, False]] * 2
    with pytest.raises(ValueError, match=r"node_id, but got none in clients \[1\]"):
        unseen_nodes([tests, tests.replace(node_id=None)])


def with_roles(graph: fgl.Graph, **mask: torch.Tensor) -> fgl.Graph:
    """The graph with another mask, whose nodes are in no other one."""
    ((name, nodes),) = mask.items()
    others = {key: getattr(graph, key) & ~nodes for key in fgl.graph.MASKS if key != name}
    return graph.replace(**{name: nodes}, **others)


def test_scores_on_unseen_nodes() -> None:
    """The third client has no such node: it is left out of the mean, and not counted."""
    method, task = build("FedEgo-Server")
    clients = list(task.clients)
    gone = torch.isin(clients[0].node_id, clients[2].node_id[clients[2].test_mask])  # type: ignore[index,arg-type]
    held = torch.isin(clients[2].node_id, clients[0].node_id[gone])  # type: ignore[index,arg-type]
    clients[2] = with_roles(clients[2], test_mask=held)
    clients[0] = with_roles(clients[0], train_mask=clients[0].train_mask | gone)
    want = by_sets(clients)
    assert not want[2] and want[0] and want[1] and want[3]
    result = fgl.run(method, task, num_rounds=1)
    evaluate = evaluate_ego(method, clients, TEST)
    metrics = evaluate(result.outbox, result.client_states)
    method.model.eval()
    each = {}
    for client in (0, 1, 3):
        graph = clients[client]
        params = method.deploy(result.outbox[client], result.client_states[client], graph)
        with torch.no_grad():
            chosen = functional_call(method.model, params, (graph.x, graph.adj)).argmax(1)
        ids, labels = graph.node_id.tolist(), graph.y.tolist()  # type: ignore[union-attr]
        hits = [int(chosen[v]) == labels[v] for v, i in enumerate(ids) if i in want[client]]
        each[client] = sum(hits) / len(hits)
        assert metrics[f"local_unseen_f1/{client}"] == pytest.approx(each[client])
    assert "local_unseen_f1/2" not in metrics and "local_f1/2" in metrics
    assert metrics["local_unseen_f1"] == pytest.approx(sum(each.values()) / 3)
    assert (metrics["unseen_clients"], metrics["scored_clients"]) == (3.0, 4.0)
    alone = evaluate(result.outbox, {2: result.client_states[2]})
    assert "local_unseen_f1" not in alone and alone["unseen_clients"] == 0.0
    bare = [graph.replace(node_id=None) for graph in clients]
    told = evaluate_ego(method, bare, TEST)(result.outbox, result.client_states)
    assert not any("unseen" in name for name in told)
    assert told["local_f1"] == pytest.approx(metrics["local_f1"])


def test_a_report_has_the_unseen_nodes() -> None:
    method, task = build("w/o PL")
    result = fgl.run(method, task, num_rounds=2, evaluate=task.evaluate(method))
    what: Any = {"recipe": "", "dataset": "", "clients": 4, "rounds": 2, "seed": 0, "config": {}}
    found = fgl.experiment.report(result, **what, select="val_f1")["metrics"]["local_unseen_f1"]
    assert set(found) == {"last", "best_val", "best_test"}
    names = [f"local_unseen_f1/{k}" for k, own in enumerate(by_sets(CLIENTS)) if own]
    best = [max(record.metrics[name] for record in result.history) for name in names]
    assert found["best_test"] == pytest.approx(sum(best) / len(best))

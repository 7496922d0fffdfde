"""GPFL: the recipe against its formulas, its limits, its baselines; what it refuses."""

from functools import partial
from typing import Any

import pytest
import torch
from federations import close, refuses, script
from torch.func import functional_call
from torch.nn.functional import avg_pool1d

import fgl
from fgl import Graph, Method, Training, client_network
from fgl.data import small_graphs
from fgl.data.partitions import dirichlet_partition
from fgl.data.splits import fold_clients
from fgl.federation import Inbox, graph_minibatches
from fgl.tasks import Graphs, evaluate_graphs, graph_task

ADAM = partial(torch.optim.Adam, lr=1e-2, weight_decay=5e-4)
EXAMPLE = script("examples/gpfl.py")
Clients = list[Graph]


def federation(num_graphs: int = 40, num_clients: int = 4) -> tuple[Clients, Clients]:
    whole = Graph.join(*small_graphs(num_graphs))
    parts = dirichlet_partition(whole.y, num_clients, alpha=1.0)
    return fold_clients(whole, parts, fold=0, num_folds=5)


def gin() -> fgl.nn.GIN:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return fgl.nn.GIN(5, 8, 2, num_layers=2, dropout=0.5)


def probes() -> Graph:
    generator = torch.Generator().manual_seed(0)
    x, edge_index, batch = client_network.probe_graphs(num_features=5, generator=generator)
    return Graph(x, edge_index, batch=batch)


def method(**changes: Any) -> Method:
    clients, tests = federation()
    how = Training(ADAM, batches=graph_minibatches, keep_optimizer=True)
    return EXAMPLE.gpfl(graph_task(clients, tests, gin(), how).fedavg, probes(), **changes)


def by_hand(inbox: Inbox, old: list[Any], prev: Any, rho: float, seeded: Any) -> Any:
    """One round of the server, client by client and entry by entry."""
    k, uploads = len(inbox), [inbox[i]["model"] for i in inbox]
    flat = torch.stack([torch.cat([v.flatten() for v in u.values()]) for u in uploads])
    window = flat.shape[1] // 100
    x = avg_pool1d(flat, window, window)
    x = x - x.mean(0)
    x = x / x.norm(dim=1, keepdim=True)
    net = gin().eval()
    said = [functional_call(net, u, probes().inputs).log_softmax(1).flatten() for u in uploads]
    e = torch.stack(said) - torch.stack(said).mean(0)
    e = e / e.norm(dim=1, keepdim=True)
    alike = e @ e.T
    if prev is None:
        p = torch.stack([inbox[i]["properties"] for i in inbox])
        chosen = client_network.select_properties(p, alike)
        c = p[:, chosen] - p[:, chosen].mean(0)
        c = c / c.norm(dim=1, keepdim=True)
        network = (c @ c.T).clamp(min=0)
    else:
        network = (0.95 * prev + 0.05 * alike).clamp(min=0)
    network = network / network.sum(1, keepdim=True)
    seeded()
    z = client_network.reconstruct(network, x)
    share = (z @ z.T).softmax(1)
    matrix = (share >= 0.1 / k).float()
    matrix = matrix / matrix.sum(1, keepdim=True)
    new = []
    for i in range(k):
        model = {}
        for name in uploads[0]:
            moved = [uploads[j][name] - old[j][name] for j in range(k)]
            mixed = sum(matrix[i, j] * moved[j] for j in range(k))
            model[name] = old[i][name] + rho * moved[i] + (1 - rho) * mixed
        new.append(model)
    return new, network, matrix


@torch.no_grad()
@pytest.mark.parametrize("rho", [0.05, 0.95])
def test_the_server_is_its_formulas(rho: float) -> None:
    clients, _ = federation()
    gpfl = method(rho=rho)
    start: Any = gpfl.initial()
    state: Any = {"model": start}
    old, prev = [start] * 4, None
    for index in range(3):
        sent = {}
        for k, graph in enumerate(clients):
            noisy = {n: v + 0.1 * torch.randn_like(v) for n, v in old[k].items()}
            sent[k] = gpfl.send(noisy, {}, {}, graph)[0]
        inbox = Inbox(sent, 4, {k: {"model": old[k]} for k in range(4)})
        seeded = partial(torch.manual_seed, index)
        seeded()
        outbox, state = gpfl.aggregate(inbox, state)
        new, prev, matrix = by_hand(inbox, old, prev, rho, seeded)
        close(state["network"], prev, atol=1e-5)
        close(state["matrix"], matrix, atol=1e-6)
        close([outbox[k]["model"] for k in range(4)], new, atol=1e-5)
        old = [outbox[k]["model"] for k in range(4)]


def uploads(gpfl: Method, clients: Clients) -> dict[int, Any]:
    start = gpfl.initial()
    with torch.random.fork_rng():
        torch.manual_seed(1)
        moved = [{n: v + torch.randn_like(v) for n, v in start.items()} for _ in clients]
    return {k: gpfl.send(moved[k], {}, {}, graph)[0] for k, graph in enumerate(clients)}


def inbox_of(sent: dict[int, Any], gpfl: Method, num_clients: int) -> Inbox:
    """An inbox of clients that all had the initial model."""
    return Inbox(sent, num_clients, {k: {"model": gpfl.initial()} for k in sent})


@pytest.mark.parametrize("learn", [True, False])
def test_those_who_are_there_share_everything(learn: bool) -> None:
    clients, _ = federation(60, 6)
    gpfl = method(learn=EXAMPLE.learned if learn else None)
    sent = uploads(gpfl, clients)
    state: Any = {"model": gpfl.initial()}
    seen = []
    for there in ((0, 1, 2, 3), (0, 2, 4, 5), (1, 2, 4)):
        _, state = gpfl.aggregate(inbox_of({k: sent[k] for k in there}, gpfl, 6), state)
        close(state["matrix"].sum(1), torch.ones(len(there)), atol=1e-5)
        seen.append(state["network"])
    one, two, three = seen
    assert (one[4:] == -1).all()  # never met
    assert (one[:, 4:] == -1).all()
    assert torch.equal(two[:4, [1, 3]], one[:4, [1, 3]])  # somebody is absent
    if learn:
        return
    # Those who meet for the first time have a property network too; then it is fixed.
    said = client_network.functional_embedding(
        torch.stack([sent[k]["answers"] for k in (0, 2, 4, 5)])
    )
    properties = torch.stack([sent[k]["properties"] for k in (0, 2, 4, 5)])
    kept = client_network.select_properties(properties, client_network.similarity(said))
    want = client_network.property_network(properties[:, kept])
    want = client_network.normalize_rows(want)
    close(two[4:][:, [0, 2, 4, 5]], want[2:], atol=1e-6)
    assert torch.equal(two[:4, :4], one[:4, :4])
    assert torch.equal(three[4:, 4:], two[4:, 4:])


def test_scores_are_each_clients_own() -> None:
    clients, tests = federation()
    net = gin()
    params = [{n: v + k for n, v in net.state_dict().items()} for k in range(4)]
    outbox: Any = {k: {"model": p} for k, p in enumerate(params)}
    want = []
    for p, test in zip(params, tests, strict=True):
        with torch.no_grad():
            logits = functional_call(net.eval(), p, test.inputs)
        want.append(float((logits.argmax(1) == test.y).double().mean()))
    plain = fgl.fedavg(net.train())
    got = evaluate_graphs(plain, tests, clients)(outbox, {})
    assert got["test_accuracy"] == pytest.approx(sum(want) / 4)
    assert net.training
    diverged: Any = {**outbox, 0: {"model": {n: v * torch.nan for n, v in params[0].items()}}}
    assert evaluate_graphs(plain, tests, clients)(diverged, {})["test_accuracy"] == pytest.approx(
        (sum(want) - want[0]) / 4
    )
    top = [int(client.y.bincount().argmax()) for client in clients]
    hits = [float((t.y == c).double().mean()) for t, c in zip(tests, top, strict=True)]
    assert got["majority_accuracy"] == pytest.approx(sum(hits) / 4)
    # One collection with masks: a test graph counts for the score alone, a training graph never.
    both = []
    for client, test in zip(clients, tests, strict=True):
        graphs = [g.select(torch.tensor([i])) for g in (client, test) for i in range(g.num_graphs)]
        alone = [g.replace(batch=None, y=None) for g in graphs]
        for_test = torch.arange(len(alone)) >= client.num_graphs
        y = torch.cat([client.y, test.y])
        masks = {"train_mask": ~for_test, "test_mask": for_test}
        both.append(Graph.join(alone, y, num_classes=2, **masks))
    assert evaluate_graphs(plain, both, both)(outbox, {}) == pytest.approx(got)
    # Validation graphs that are the test graphs.
    held_out = [own.replace(val_mask=own.test_mask, test_mask=None) for own in both]
    scores = evaluate_graphs(plain, tests, held_out)(outbox, {})
    assert scores["val_accuracy"] == pytest.approx(got["test_accuracy"])
    assert {name: scores[name] for name in got} == pytest.approx(got)
    none = both[0].replace(test_mask=torch.zeros_like(both[0].train_mask))
    with pytest.raises(ValueError, match="client 1's test_mask to have a graph, but got none"):
        evaluate_graphs(plain, [both[0], none], both[:2])
    more = [own.replace(num_classes=5) for own in tests]  # a label 4 would be a miss in silence
    refuses("logits .*5 classes", lambda: evaluate_graphs(plain, more, clients)(outbox, {}))
    for mask in ("train_mask", "val_mask"):
        half = tests[1].replace(**{mask: both[1].train_mask[: tests[1].num_graphs]})
        with pytest.raises(ValueError, match=f"client 1's tests to have test_mask beside {mask}"):
            evaluate_graphs(plain, [tests[0], half], clients[:2])
    with pytest.raises(ValueError, match="to be collections, but got no batch"):
        one = Graph(torch.ones(2, 5), clients[0].edge_index[:, :0], y=y[:2])
        evaluate_graphs(plain, [one], [one])
    with pytest.raises(ValueError, match="clients to be 4 as tests, but got 3"):
        evaluate_graphs(plain, tests, clients[:3])
    with pytest.raises(ValueError, match="graph.y to be a tensor of labels"):
        evaluate_graphs(plain, [tests[0].replace(y=None)], clients[:1])
    with pytest.raises(ValueError, match="keys"):
        evaluate_graphs(plain, tests, clients)({**outbox, 2: {"model": {}}}, {})


def test_the_authors_draw_is_one_whatever_the_seed() -> None:
    """The seed changes the folds; of the other draw also who holds what."""

    def sizes(graph: Any) -> list[tuple[int, int]]:
        return list(zip(graph.ptr.diff().tolist(), graph.y.tolist(), strict=True))

    def held(partition: Any, seed: int, whole: bool) -> list[list[tuple[int, int]]]:
        train, test = Graphs(clients=4, partition=partition).folds_of(seed)
        rest = train if whole else [None] * 4
        pairs = zip(test, rest, strict=True)
        return [sorted(sizes(one) + (sizes(other) if other else [])) for one, other in pairs]

    assert Graphs().partition == "authors"
    assert held("authors", 0, True) == held("authors", 1, True)
    assert held("authors", 0, False) != held("authors", 1, False)
    assert held("dirichlet", 0, True) != held("dirichlet", 1, True)
    assert held("dirichlet", 0, True) != held("authors", 0, True)
    with pytest.raises(ValueError, match="partition to be .*but got 'theirs'"):
        Graphs(partition="theirs")  # type: ignore[arg-type]

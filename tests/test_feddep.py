"""FedDEP beside a small implementation of its own, by numbers."""

import importlib
import itertools
import math
from functools import partial
from typing import Any

import pytest
import torch
from conformance import known
from federations import close, double, graphs, ruled, seeded
from torch import Tensor

import fgl
from fgl import methods
from fgl.methods.feddep import compared, feddep
from fgl.methods.grouped_embeddings import clusters, embeddings, grouped

GROUPED: Any = importlib.import_module("fgl.methods.grouped_embeddings")
LR, STEPS, LOCAL, TOGETHER, P, WIDTH = 0.05, 2, 2, 3, 2, 4
WEIGHTS = 0.7, 1.3, 0.9
CLIENTS = double(graphs((11, 8, 9)))


def net(**how: Any) -> fgl.nn.DeepNeighbours:
    torch.manual_seed(0)
    sizes = {"latent": 3, "widths": (5, 6), "num_neighbours": P, "dropout": 0.0}
    return fgl.nn.DeepNeighbours(6, WIDTH, 3, **{**sizes, **how}).double()


def method(**how: Any) -> fgl.Method:
    train = fgl.Training(partial(torch.optim.SGD, lr=LR), num_steps=STEPS)
    a, b, c = WEIGHTS
    usual = {"count_weight": a, "embedding_weight": b, "label_weight": c, "encoder_epochs": 2,
             "gen_local_epochs": LOCAL, "gen_epochs": TOGETHER, "gen_hide": 1.0,
             "targets": "nearest", "num_prototypes": 3}  # fmt: skip
    return feddep(fgl.fedavg(net(), train=train), **{**usual, **how})


def still(like: Tensor) -> Tensor:
    """Numbers in the place of noise."""
    return torch.arange(like.numel()).to(like).view(like.shape).sin()


# The twin: nodes one after the other


def around(own: fgl.Graph, stay: list[int]) -> dict[int, list[int]]:
    """Each staying node's neighbours that stay."""
    pairs = [(int(a), int(b)) for a, b in own.edge_index.T]
    return {v: [a for a, b in pairs if b == v and a in stay] for v in stay}


def sage(h: dict[int, Tensor], near: dict[int, list[int]], p: Any, name: str) -> dict[int, Tensor]:
    out = {}
    for v in h:
        mean: Any = sum(h[u] for u in near[v]) / len(near[v]) if near[v] else 0 * h[v]
        own = p[f"{name}.lin_l.weight"] @ mean + p[f"{name}.lin_l.bias"]
        out[v] = own + p[f"{name}.lin_r.weight"] @ h[v]
    return out


def linear(h: Tensor, p: Any, name: str) -> Tensor:
    return p[f"{name}.weight"] @ h + p[f"{name}.bias"]


def generator(x: Any, near: Any, p: Any, noisy: bool) -> tuple[dict[int, Any], dict[int, Any]]:
    h = sage(x, near, p, "generator.encoder.convs.0")
    h = sage({v: row.relu() for v, row in h.items()}, near, p, "generator.encoder.convs.1")
    count = {v: linear(row, p, "generator.count").relu()[0] for v, row in h.items()}
    noise = still(torch.stack(list(h.values())))
    made = {}
    for place, (v, row) in enumerate(h.items()):
        z = row + noise[place] if noisy else row
        for depth in range(2):
            z = linear(z, p, f"generator.embedding.{depth}").relu()
        made[v] = linear(z, p, "generator.embedding.2").tanh().view(P, WIDTH)
    return count, made


def classifier(x: Any, near: Any, count: Any, made: Any, p: Any) -> dict[int, Tensor]:
    e: Any = {}
    for v in x:
        there = [made[v][j] for j in range(P) if j < round(count[v].item())]
        e[v] = sum(there, torch.zeros(WIDTH).double()) / P
    h = x
    for depth in range(2):
        h = {v: row.relu() if depth else row for v, row in h.items()}
        e = {v: linear(row, p, f"classifier.fuse.{depth}") for v, row in e.items()}
        h = {v: row + e[v] for v, row in sage(h, near, p, f"classifier.convs.{depth}").items()}
    return h


def entropy(logits: Any, own: fgl.Graph) -> Any:
    seen = [v for v in logits if own.train_mask[v]]  # type: ignore[index]
    return sum(-logits[v].log_softmax(0)[own.y[v]] for v in seen) / len(seen)  # type: ignore[index]


def nearest(made: Tensor, number: int, known: list[Tensor]) -> Any:
    """Of one node; a mean over places and entries."""
    total: Any = 0.0
    for j in range(min(P, number) if known else 0):
        apart = [((made[j] - row) ** 2).sum() for row in known]
        total = total + min(apart, key=Tensor.item)
    return total / (P * WIDTH)


def fit(own: fgl.Graph, count: Any, made: Any, logits: Any, lost: dict[int, list[Tensor]]) -> Any:
    a, b, c = WEIGHTS
    seen = [v for v in made if own.train_mask[v]]  # type: ignore[index]
    total: Any = c * entropy(logits, own)
    for v in seen:
        d = abs(count[v] - len(lost[v]))
        total = total + a * (d**2 / 2 if d < 1 else d - 0.5) / len(seen)
        total = total + b * nearest(made[v], round(count[v].item()), lost[v][:P]) / len(seen)
    return total


def descend(p: dict[str, Tensor], names: list[str], loss: Any) -> None:
    for name in names:
        p[name] = p[name].detach().requires_grad_()
    grads = torch.autograd.grad(loss(), [p[name] for name in names], allow_unused=True)
    for name, grad in zip(names, grads, strict=True):
        p[name] = p[name].detach() - LR * (0 if grad is None else grad)


def generated_by_hand(own: fgl.Graph, p: Any, rows: Tensor, others: list[Any]) -> dict[str, Tensor]:
    """A client's generator; `rows` are its nodes' prototypes, `others` those of others."""
    p = dict(p)
    whole = list(range(own.num_nodes))
    stay = [v for v in whole if not own.val_mask[v]]  # type: ignore[index]
    near, all_near = around(own, stay), around(own, whole)
    lost = {v: [rows[u] for u in all_near[v] if u not in stay] for v in stay}
    x = {v: own.x[v] for v in stay}  # type: ignore[index]

    def loss(told: list[Any]) -> Any:
        count, made = generator(x, near, p, noisy=True)
        total = fit(own, count, made, classifier(x, near, count, made, p), lost)
        for known_rows in told:
            for v in stay:
                number = math.floor(count[v].item())
                total = total + WEIGHTS[1] * nearest(made[v], number, known_rows) / len(stay)
        return total / (len(told) + 1)

    names = [n for n in p if n != "mends"]
    for _ in range(LOCAL):
        descend(p, names, lambda: loss([]))
    for _ in range(TOGETHER):
        descend(p, [n for n in names if "embedding" in n], lambda: loss(others))
    return {n: v for n, v in p.items() if n.startswith("generator")}


@pytest.mark.parametrize("at_once", [1, "all"])
def test_it_is_feddep_by_numbers(at_once: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "randn_like", still)
    made = method()
    first = fgl.run(made, CLIENTS, num_rounds=1, clients_at_once=at_once)
    kept: Any = first.client_states
    groups = {k: [r for r, n in zip(s["prototypes"], s["counts"], strict=True) if n]
              for k, s in kept.items()}  # fmt: skip
    rows = {k: s["prototypes"][s["cluster"]] for k, s in kept.items()}
    result = fgl.run(made, CLIENTS, num_rounds=3, clients_at_once=at_once)
    start: Any = {n: t.detach() for n, t in net().state_dict().items()}
    names = [n for n in start if n.startswith("classifier")]
    shared, own = {n: start[n] for n in names}, [dict(start) for _ in CLIENTS]
    weight = [int(c.train_mask.sum()) for c in CLIENTS]  # type: ignore[union-attr]
    mended = 0
    for index in range(3):
        for k, graph in enumerate(CLIENTS):
            near = around(graph, list(range(graph.num_nodes)))
            x = dict(enumerate(graph.x))  # type: ignore[arg-type]
            p = own[k] = {**own[k], **shared}
            if index == 1:
                others = [groups[j] for j in range(3) if j != k]
                p.update(generated_by_hand(graph, p, rows[k], others))
            count, z = generator(x, near, p, noisy=False)
            count = count if index else dict.fromkeys(count, torch.zeros(()))
            mended += sum(c.item() > 0.5 for c in count.values())

            def loss(x: Any = x, near: Any = near, c: Any = count, z: Any = z, p: Any = p,
                     graph: Any = graph) -> Any:  # fmt: skip
                return entropy(classifier(x, near, c, z, p), graph)

            for _ in range(STEPS):
                descend(p, names, loss)
        shared = {n: sum(w * p[n] for w, p in zip(weight, own, strict=True)) / sum(weight)
                  for n in names}  # fmt: skip
    assert mended
    for k, graph in enumerate(CLIENTS):
        found = made.deploy(result.outbox[k], result.client_states[k], graph)
        close(found, {**own[k], **shared, "mends": torch.ones(()).double()}, atol=1e-12)


def test_an_encoder_learns_through_two_softmaxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GROUPED, "FANOUTS", (-1, -1))
    own = CLIENTS[0]
    near, x = around(own, list(range(11))), dict(enumerate(own.x))  # type: ignore[arg-type]
    torch.manual_seed(1)
    encoder = fgl.nn.deep_neighbours.DeepEncoder(6, WIDTH, 3, dropout=0.0).double()
    p: Any = {n: t.detach().clone() for n, t in encoder.state_dict().items()}
    found = embeddings(encoder, own, 2)

    def embed() -> dict[int, Tensor]:
        h = sage(x, near, p, "convs.0")
        h = sage({v: row.relu() for v, row in h.items()}, near, p, "convs.1")
        return {v: row.tanh() for v, row in h.items()}

    state = {n: (torch.zeros_like(t), torch.zeros_like(t)) for n, t in p.items()}
    for step in (1, 2):
        p = {n: t.detach().requires_grad_() for n, t in p.items()}
        answers = {v: linear(h, p, "head").softmax(0) for v, h in embed().items()}
        grads = torch.autograd.grad(entropy(answers, own), list(p.values()))
        for (n, t), grad in zip(list(p.items()), grads, strict=True):
            g = grad + 5e-4 * t.detach()
            m, v = 0.9 * state[n][0] + 0.1 * g, 0.999 * state[n][1] + 0.001 * g**2
            state[n] = m, v
            deep = (v / (1 - 0.999**step)).sqrt() + 1e-8
            p[n] = t.detach() - 0.01 * m / (1 - 0.9**step) / deep
    close(found, torch.stack(list(embed().values())), atol=1e-12)


def test_groups_are_the_best_ones_and_prototypes_their_means() -> None:
    rows = torch.randn(7, 2, generator=torch.Generator().manual_seed(3)).double()

    def error(groups: Any) -> float:
        parts = [rows[[i for i in range(7) if groups[i] == g]] for g in set(groups)]
        return sum(float(((part - part.mean(0)) ** 2).sum()) for part in parts)

    torch.manual_seed(0)
    best = min(map(error, itertools.product(range(3), repeat=7)))
    assert abs(error(clusters(rows, 3).tolist()) - best) < 1e-12
    torch.manual_seed(0)
    assert clusters(rows[:1], 3).tolist() == [0] and clusters(rows[:0], 3).tolist() == []
    assert torch.rand(1).equal(torch.rand(1, generator=seeded()))  # where it drew nothing
    assert clusters(rows[:1], 3).dtype == torch.int64
    assert len(clusters(rows[:2], 3).unique()) == 2
    many = torch.randn(200, 2, generator=torch.Generator().manual_seed(4)).double()
    moved = clusters(many, 9, starts=1)  # it went on until no row changes its group
    centres = torch.stack([many[moved == group].mean(0) for group in range(9)])
    assert torch.equal(torch.cdist(many, centres).argmin(1), moved)
    same = clusters(rows[:1].expand(4, -1), 2)
    assert same.shape == (4,)

    model = net()
    torch.manual_seed(5)
    found = grouped(model, CLIENTS[1], 3, 2)
    torch.manual_seed(5)
    encoder = fgl.nn.deep_neighbours.DeepEncoder(6, WIDTH, 3, dropout=0.0).double()
    embedded = embeddings(encoder, CLIENTS[1], 2)
    for group in range(3):
        members = [v for v in range(8) if found["cluster"][v] == group]
        assert found["counts"][group] == len(members)
        close(found["prototypes"][group], embedded[members].mean(0), atol=1e-12)


def test_a_drawn_prototype_is_as_frequent_as_its_nodes() -> None:
    made, count = torch.zeros(2000, 1, 1).double(), torch.tensor([1.9]).expand(2000)
    rows, counts = torch.tensor([[1.0], [2.0], [0.0]]).double(), torch.tensor([3, 1, 0])
    torch.manual_seed(0)
    drawn = compared(made, count, rows, counts, "drawn")  # 1 or 4: 1.75 expected
    assert abs(float(drawn) - 1.75) < 0.1
    close(compared(made, count, rows, counts, "nearest"), torch.tensor(1.0).double())
    assert compared(made, count - 1, rows, counts, "nearest") == 0  # .9 is none


@pytest.mark.parametrize("keeps", [False, True])
def test_a_client_uses_its_generator_and_the_classifier_that_fedavg_would(keeps: bool) -> None:
    train = fgl.Training(partial(torch.optim.SGD, lr=LR), num_steps=STEPS)
    plain = fgl.fedavg(net(), train=train)
    made = feddep(methods.own_models(plain) if keeps else plain, encoder_epochs=1, gen_epochs=1)
    result = fgl.run(made, CLIENTS, num_rounds=2)
    own = result.client_states[0]["model"]
    used = made.deploy(result.outbox[0], result.client_states[0], CLIENTS[0])
    close(used, own if keeps else {**own, **result.outbox[0]["model"]}, atol=0)
    assert not own["classifier.fuse.0.bias"].equal(
        result.outbox[0]["model"]["classifier.fuse.0.bias"]
    )


def test_what_it_refuses() -> None:
    with pytest.raises(ValueError, match=r"fgl.nn.DeepNeighbours, but got"):
        feddep(known("nodes", 0.5, torch.float32).fedavg)
    made, start = method(), {"model": net().state_dict()}
    for own, text in (
        (CLIENTS[0].replace(val_mask=None), "val_mask, but got none"),
        (fgl.Graph.join(CLIENTS), "got a collection"),
    ):
        with pytest.raises(ValueError, match=text):
            made.receive(start, {}, own)


def test_a_generator_refuses_sizes_that_are_none() -> None:
    for name, value in (("num_neighbours", 0), ("latent", 0), ("dropout", 1.5)):
        with pytest.raises(ValueError, match=f"Expected {name} to be"):
            fgl.nn.deep_neighbours.DeepGenerator(4, 8, **{name: value})  # type: ignore[arg-type]


def test_the_generator_is_never_in_training_mode_where_the_model_is() -> None:
    model = net(dropout=0.9).train()
    assert model.classifier.training and not model.generator.training
    assert not model.generator.encoder.training
    names = fgl.federation.trainable(methods.local(fgl.fedavg(model)))
    assert names == {n for n, _ in model.named_parameters() if n.startswith("classifier")}


def test_impossible_prototypes_are_refused() -> None:
    made = feddep(ruled(fgl.fedavg(net()), max_examples=50.0))
    shared = {name: value for name, value in made.initial().items() if "classifier." in name}
    message: Any = {"model": shared, "num_examples": torch.tensor(3)}
    three, none = torch.zeros(3, 4).double(), torch.zeros(0, dtype=torch.int64)
    made.accept({**message, "counts": torch.tensor([20, 10, 20]), "prototypes": three}, 0, {})
    for counts, rows, why in (
        (torch.tensor([20, 11, 20]), three, "count"),
        (torch.tensor([-1, 2, 1]), three, "count"),
        (torch.tensor([1.0, 2.0, 1.0]), three, "count"),
        (torch.tensor([2**62] * 3), three, "Expected counts to be integers from 0, 50"),
        (none, three[:0], "Expected counts to be integers"),
        (torch.ones(3).long(), three + 40, r"Expected prototypes in \[-1, 1\], but got 40"),
        (torch.ones(3).long(), three - 40, r"Expected prototypes in \[-1, 1\], but got 40"),
        (torch.ones(3).long(), three[0], "Expected a row of prototypes for each count"),
        (torch.ones(3).long(), three[None].expand(3, 3, 4), "Expected a row of prototypes"),
    ):
        with pytest.raises(ValueError, match=why):
            made.accept({**message, "counts": counts, "prototypes": rows}, 0, {})


def test_a_client_that_hides_all_its_nodes_stays() -> None:
    own = CLIENTS[0]
    everybody = torch.ones(own.num_nodes, dtype=torch.bool)
    whole = own.replace(val_mask=everybody, train_mask=~everybody, test_mask=None)
    made = method(gen_hide=1.0, targets="drawn")
    history = fgl.run(made, [whole, *CLIENTS[1:]], num_rounds=3, strict=True).history
    assert len(history) == 3

"""FedAMP, HeurFedAMP, pFedGraph and FED-PUB: the properties that define them."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from conformance import K, case, known
from federations import close, same
from test_methods import gradient

import fgl
from fgl import Method, Training
from fgl.federation import Inbox, Own
from fgl.methods import (
    fedamp,
    fedper,
    fedprox,
    fedpub,
    heurfedamp,
    pfedgraph,
    proxy_graph,
)
from fgl.methods.fedamp import passing
from fgl.methods.fedpub import MASK, masked
from fgl.methods.pfedgraph import alignment, collaboration, directions
from fgl.tasks.task import weighed_equally

TASK = known("nodes", 0.0, torch.float64)
FEDAVG, CLIENTS = TASK.fedavg, TASK.clients
PROBES = proxy_graph(CLIENTS[0], generator=torch.Generator().manual_seed(0))
run = partial(fgl.run, num_rounds=3)
METHODS: dict[str, Any] = {
    "fedamp": fedamp,
    "heurfedamp": heurfedamp,
    "pfedgraph": pfedgraph,
    "fedpub": partial(fedpub, probes=PROBES),
}


def some_models(seed: int = 0) -> dict[int, Any]:
    """K uploads, each with a model of its own."""
    generator = torch.Generator().manual_seed(seed)
    return {
        k: {
            "model": {
                name: value + torch.randn(value.shape, generator=generator, dtype=value.dtype)
                for name, value in FEDAVG.initial().items()
            },
            "num_examples": torch.tensor(3 + k),
        }
        for k in range(K)
    }


def by_loops(sent: dict[int, Any], row: Any) -> Any:
    """``sum_j row_j theta_j``."""
    return {
        name: sum(float(row[j]) * sent[j]["model"][name] for j in sent) for name in FEDAVG.initial()
    }


def flat(model: Any) -> torch.Tensor:
    return torch.cat([value.flatten() for value in model.values()])


# FedAMP


def test_fedamps_cloud_models_by_hand() -> None:
    sent = some_models()
    outbox, state = fedamp(FEDAVG, sigma=50.0, server_lr=7.0).aggregate(Inbox(sent, K), {})
    for i in range(K):
        apart = [(flat(sent[i]["model"]) - flat(sent[j]["model"])).square().sum() for j in range(K)]
        row = [7.0 / 50 * math.exp(-float(d) / 50) * (j != i) for j, d in enumerate(apart)]
        assert 0 < sum(row) < 1
        row[i] = 1 - sum(row)
        close(outbox[i]["model"], by_loops(sent, row), atol=1e-9)
        close(state["matrix"][i], torch.tensor(row, dtype=torch.float64), atol=1e-12)


def test_heurfedamps_cloud_models_by_hand() -> None:
    sent = some_models()
    outbox, _ = heurfedamp(FEDAVG).aggregate(Inbox(sent, K), {})
    start = flat(FEDAVG.initial())
    for i in range(K):
        moved = [flat(sent[j]["model"]) - start for j in range(K)]
        cos = [float(torch.cosine_similarity(moved[i], other, dim=0)) for other in moved]
        row = [math.exp(10 * c) * (j != i) for j, c in enumerate(cos)]
        row = [0.7 * value / sum(row) for value in row]
        row[i] = 0.3
        close(outbox[i]["model"], by_loops(sent, row), atol=1e-9)


@pytest.mark.parametrize(
    ("method", "weight"),
    [(fedamp(FEDAVG, server_lr=0.5, penalty=0.3), 0.6), (heurfedamp(FEDAVG, penalty=0.3), 0.3)],
)
def test_the_penalty_pulls_to_the_cloud_model(method: Method, weight: float) -> None:
    """Its gradient is ``lambda / alpha_K (theta - u_i)``; the state's model is where one starts."""
    cloud = {name: value + 2.0 for name, value in FEDAVG.initial().items()}
    state: Any = {"model": {name: value - 1.0 for name, value in FEDAVG.initial().items()}}
    params, context = method.receive({"model": cloud}, state, CLIENTS[0])
    assert same(dict(params), state["model"])

    def slope(of: Method) -> Any:
        leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
        return torch.autograd.grad(of.loss(leaves, CLIENTS[0], context), list(leaves.values()))

    for held, plain in zip(slope(method), slope(FEDAVG), strict=True):
        close(held - plain, torch.full_like(held, -3.0 * weight))
    used = method.deploy({"model": cloud}, state, CLIENTS[0])
    assert same(dict(used), state["model"])  # what a client trained is never overwritten


@pytest.mark.parametrize(("build", "mu"), [(fedamp, 0.7), (heurfedamp, 0.0)])
def test_at_first_a_client_is_held_near_its_start(build: Any, mu: float) -> None:
    """As FedProx's clients always are; a second local step feels it. HeurFedAMP's are free."""
    sent: list[Any] = []

    def send(*given: Any) -> Any:
        sent.append(given[0])
        return FEDAVG.send(*given)

    run(fedprox(replace(FEDAVG, send=send), mu=mu), CLIENTS, num_rounds=1)
    states = run(build(FEDAVG, penalty=0.7), CLIENTS, num_rounds=1).client_states
    for client, model in enumerate(sent):
        close(states[client]["model"], model)


def test_heurfedamps_optimizer_starts_anew() -> None:
    collection = known("graphs", 0.0, torch.float64)
    assert collection.fedavg.train.keep_optimizer
    result = fgl.run(heurfedamp(collection.fedavg), collection, num_rounds=1)
    assert all("optimizer" not in state for state in result.client_states.values())


def test_any_attention_may_pass_messages() -> None:
    result = run(passing(FEDAVG, lambda rows: torch.full((len(rows),) * 2, 1 / K), weight=1.0),
                 CLIENTS)  # fmt: skip
    for client in range(1, K):
        close(result.outbox[client]["model"], result.outbox[0]["model"])


# pFedGraph


def test_pfedgraphs_rows_minimise_its_objective() -> None:
    """No other row of shares, of many that are near and far, is better."""
    alike = torch.tensor([[1.0, 0.95, -0.3], [0.95, 1.0, 0.2], [-0.3, 0.2, 1.0]]).double()
    count = torch.tensor([1, 5, 2])
    rows = collaboration(alike, count, prior=0.8)
    p, d = count / count.sum(), -torch.where(alike > 0.9, 1, alike)
    assert (rows >= 0).all()
    close(rows.sum(1), torch.ones(3).double())

    def cost(x: torch.Tensor, i: int) -> torch.Tensor:
        return (x * d[i]).sum(-1) + 0.8 * (x - p).square().sum(-1)

    generator = torch.Generator().manual_seed(0)
    for i in range(3):
        others = torch.softmax(4 * torch.randn(500, 3, generator=generator), 1).double()
        for share in (1.0, 0.01):
            tried = (1 - share) * rows[i] + share * others
            assert (cost(tried, i) >= cost(rows[i], i) - 1e-12).all()
    none = collaboration(alike, torch.zeros(3, dtype=torch.int64))
    close(none.sum(1), torch.ones(3).double())


def test_pfedgraphs_messages_by_hand() -> None:
    sent = some_models()
    outbox, state = pfedgraph(FEDAVG).aggregate(Inbox(sent, K), {})
    for i, row in enumerate(state["matrix"]):
        close(outbox[i]["model"], by_loops(sent, row), atol=1e-9)
        lengths = [float(flat(sent[j]["model"]).norm()) for j in range(K)]
        shares = [float(row[j]) / lengths[j] for j in range(K)]
        close(outbox[i]["direction"], by_loops(sent, shares), atol=1e-9)


@pytest.mark.parametrize("attraction", [0.01, -0.01])
def test_pfedgraph_is_drawn_to_its_direction_from_the_second_round_on(attraction: float) -> None:
    """The term's gradient is autograd's of the formula; a step along it turns the model."""
    method, own = pfedgraph(FEDAVG, attraction=attraction), CLIENTS[0]
    for held, plain in zip(
        gradient(method, 0.1, own).values(), gradient(FEDAVG, 0.1, own).values(), strict=True
    ):
        assert torch.equal(held, plain)  # nothing is known in the first round
    message = run(method, CLIENTS, num_rounds=1).outbox[0]
    params, context = method.receive(message, {}, own)
    leaves = {name: (value + 0.1).requires_grad_() for name, value in params.items()}
    theta, v = flat(leaves), flat(message["direction"])
    formula = (v * theta).sum() / theta.square().sum().sqrt()
    want = torch.autograd.grad(formula, list(leaves.values()), retain_graph=True)
    assert max(float(each.abs().max()) for each in want) > 1e-3
    terms = method.loss(leaves, own, context) - FEDAVG.loss(leaves, own, context)
    got = torch.autograd.grad(terms, list(leaves.values()))
    for mine, each in zip(got, want, strict=True):
        close(mine, -attraction * each, atol=1e-10)
    moved = flat({n: p.detach() - g for (n, p), g in zip(leaves.items(), got, strict=True)})
    before, after = (float(torch.cosine_similarity(each.detach(), v, 0)) for each in (theta, moved))
    assert (after > before) == (attraction > 0)


def test_a_model_of_zeros_has_no_direction() -> None:
    zero = {"w": torch.zeros(3, requires_grad=True)}
    value = alignment(zero, {"w": torch.ones(3)})
    value.backward()
    assert float(value.detach()) == 0
    assert zero["w"].grad is not None and zero["w"].grad.isfinite().all()
    assert not directions({"w": torch.zeros(2, 3)})["w"].any()


# FED-PUB


def test_fedpub_of_masks_that_stay_one_is_the_mean() -> None:
    """Frozen masks, no penalties, equal shares: FedAvg of clients that all weigh the same."""
    equal = weighed_equally(FEDAVG)
    method = fedpub(equal, PROBES, scale=0.0, penalties=False)

    def settle(new: Any, old: Any, context: Any) -> Any:
        return {name: old[name] if name.startswith(MASK) else new[name] for name in new}

    frozen = replace(method, train=replace(method.train, settle=settle))
    one, want = run(frozen, CLIENTS), run(equal, CLIENTS).outbox[0]["model"]
    for client in range(K):
        close(one.outbox[client]["model"], want)
        close(method.deploy(one.outbox[client], one.client_states[client], CLIENTS[client]), want)


def test_masks_stay_and_move() -> None:
    method = fedpub(FEDAVG, PROBES)
    uploads: list[Any] = []

    def send(*given: Any) -> Any:
        message, state = method.send(*given)
        uploads.append(message)
        return message, state

    result = run(replace(method, send=send), CLIENTS)
    names = set(FEDAVG.initial())
    for message in (*uploads, *result.outbox.values()):
        assert set(message["model"]) == names
        assert not any(MASK in key for key in message)
    for state in result.client_states.values():
        masks = state["own"]
        assert set(masks) == {MASK + name for name in names if "weight" in name}
        assert all((mask != 1).any() for mask in masks.values())
    one, two = (result.client_states[k]["own"] for k in (0, 1))
    assert not same(one, two)
    rows = result.server_state["matrix"].sum(1)
    close(rows, torch.ones_like(rows))


def test_both_penalties_of_fedpub_have_their_gradient() -> None:
    """The distance is that of each tensor, from the second round on; here of all masks."""
    own, message = CLIENTS[0], {"model": FEDAVG.initial(), "num_clients": torch.tensor(K)}
    params, context = fedpub(FEDAVG, PROBES, masks="all").receive(message, {}, own)  # type: ignore[arg-type]

    def slope(at: Any, **options: Any) -> dict[str, torch.Tensor]:
        method = fedpub(FEDAVG, PROBES, masks="all", **options)
        leaves = {name: value.clone().requires_grad_() for name, value in at.items()}
        loss = method.loss(leaves, own, context)
        return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))

    generator = torch.Generator().manual_seed(0)
    at = {n: v + 0.3 * torch.randn(v.shape, generator=generator).double()
          for n, v in params.items()}  # fmt: skip
    off, on = slope(at, penalties=False), slope(at, sparsity=0.2, proximity=0.3)
    apart = {n: at[n] - context["received"][n] for n in at if not n.startswith(MASK)}
    for name, value in at.items():
        if name.startswith(MASK):
            want = 0.2 * value.sign()
        else:
            want = 0.3 * apart[name] / math.sqrt(float((apart[name] ** 2).sum()))
        close(on[name] - off[name], want, atol=1e-9)
        assert want.any()
    # The loss sees W * m: a weight's gradient is m times that of the product, a mask's W times.
    leaves = {n: v.requires_grad_() for n, v in masked(at).items()}
    of = torch.autograd.grad(FEDAVG.loss(leaves, own, {}), list(leaves.values()))
    for name, value in zip(leaves, of, strict=True):
        close(off[name], at[MASK + name] * value, atol=1e-10)
        close(off[MASK + name], at[name] * value, atol=1e-10)
    assert all(grad.isfinite().all() for grad in slope(params).values())  # where nothing has moved


@pytest.mark.parametrize("at_once", [1, "all"])
@pytest.mark.parametrize("lacks", ["examples", "answers"])
def test_a_client_without_an_example_keeps_its_masks(at_once: Any, lacks: str) -> None:
    """The penalties alone would make them 0, and with them the model that it uses."""
    train = fgl.Training(partial(torch.optim.Adam, lr=0.1), num_steps=4)
    if lacks == "examples":
        none = torch.zeros(CLIENTS[1].num_nodes, dtype=torch.bool)
        learns = replace(FEDAVG, train=train)
        clients = [CLIENTS[0], CLIENTS[1].replace(train_mask=none)]
    else:
        learns = fgl.fedavg(FEDAVG.model, train=train, target=fgl.targets.ANSWERS)
        answers = [torch.nn.functional.one_hot(g.labels).to(g.x.dtype) for g in CLIENTS[:2]]
        answers[1] = torch.full_like(answers[1], torch.nan)
        clients = [g.replace(y=y, num_classes=None) for g, y in zip(CLIENTS, answers, strict=False)]
    states = run(fedpub(learns, PROBES), clients, clients_at_once=at_once).client_states
    ones, moved = ({n: p for n, p in states[k]["own"].items() if MASK in n} for k in (1, 0))
    assert all((mask == 1).all() for mask in ones.values())
    assert all((mask != 1).any() for mask in moved.values())


def test_what_fedpub_uses_is_masked_and_cut() -> None:
    method = fedpub(FEDAVG, PROBES, sparsity=0.5)
    model, state = FEDAVG.initial(), {}
    params, context = method.receive({"model": model}, state, CLIENTS[0])
    name = "convs.1.lin.weight"
    mask = torch.linspace(-1, 1, model[name].numel()).view_as(model[name]).double()
    upload, state = method.send({**params, MASK + name: mask}, context, state, CLIENTS[0])
    assert torch.equal(upload["model"][name], model[name])  # without its mask
    used = method.deploy({"model": model}, state, CLIENTS[0])
    for got, weight, m in zip(used[name].flatten(), model[name].flatten(), mask.flatten(),
                              strict=True):  # fmt: skip
        assert float(got) == (float(weight * m) if abs(float(m)) >= 0.5 else 0.0)
    call = partial(torch.func.functional_call, FEDAVG.model.eval(), used, PROBES.inputs)
    answers, embeddings = call({"return_embedding": True})
    close(upload["embedding"], embeddings.mean(0).detach())
    asked = fedpub(FEDAVG, PROBES, sparsity=0.5, of="answers")
    other, _ = asked.send({**params, MASK + name: mask}, context, {}, CLIENTS[0])
    close(other["embedding"], answers.mean(0).detach())
    again, _ = method.receive({"model": model}, state, CLIENTS[0])
    assert torch.equal(again[MASK + name], mask)


def test_fedpubs_models_by_hand() -> None:
    sent = some_models()
    for k in sent:
        sent[k]["embedding"] = torch.randn(3, generator=torch.Generator().manual_seed(k)).double()
    outbox, _ = fedpub(FEDAVG, PROBES, scale=3.0).aggregate(Inbox(sent, K), {})
    for i in range(K):
        cos = [torch.cosine_similarity(sent[i]["embedding"], sent[j]["embedding"], 0) for j in sent]
        row = [math.exp(3 * float(c)) for c in cos]
        close(outbox[i]["model"], by_loops(sent, [r / sum(row) for r in row]), atol=1e-9)


def test_gpfls_form_of_fedpub() -> None:
    """All answers side by side, and a layer that stays with the client."""
    kept = fedper(FEDAVG, shared=["convs.0"])
    result = run(fedpub(kept, PROBES, of="answers", embed=torch.flatten), CLIENTS)
    own = [state["model"]["convs.1.bias"] for state in result.client_states.values()]
    assert not torch.equal(own[0], own[1])
    for message in result.outbox.values():
        assert all(name.startswith("convs.0.") for name in message["model"])
    method = fedpub(kept, PROBES, of="answers", embed=torch.flatten)
    params, context = method.receive(result.outbox[0], result.client_states[0], CLIENTS[0])
    upload, _ = method.send(params, context, result.client_states[0], CLIENTS[0])
    assert upload["embedding"].shape == (500 * 3,)


class Normed(torch.nn.Module):
    """A linear map of normalised features."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, adj: Any) -> torch.Tensor:
        return self.last(self.norm(x))


def test_statistics_of_batch_norm_stay() -> None:
    method = fedpub(fgl.fedavg(Normed().double(), train=Training(num_steps=2)), PROBES)
    result = run(method, CLIENTS)
    statistics = {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    means = []
    for client, own in enumerate(CLIENTS):
        message, state = result.outbox[client], result.client_states[client]
        assert not statistics & set(message["model"])
        used = method.deploy(message, state, own)
        assert statistics <= set(used)
        assert int(used["norm.num_batches_tracked"]) == 6
        means.append(used["norm.running_mean"])
    assert not torch.allclose(means[0], means[1])


def test_the_proxy_is_as_the_clients_graphs() -> None:
    collection = known("graphs", 0.0, torch.float64).clients[0]
    for like in (CLIENTS[0], collection):
        made, again = (
            proxy_graph(like, generator=torch.Generator().manual_seed(s)) for s in (1, 1)
        )
        assert made.x.shape == (500, like.num_features)
        assert made.x.dtype == like.x.dtype
        assert (made.batch is None) == (like.batch is None)
        assert torch.equal(made.x, again.x) and torch.equal(made.edge_index, again.edge_index)
        blocks = made.edge_index // 100
        assert torch.equal(blocks[0], blocks[1])


# All of them


@pytest.mark.parametrize("name", METHODS)
def test_absent_clients_count_for_nobody_and_keep_their_message(name: str) -> None:
    method = METHODS[name](FEDAVG)
    result = run(method, CLIENTS, dropouts=lambda index, client: client == 1 and index > 0)
    first = run(method, CLIENTS, num_rounds=1)
    assert same(result.outbox[1], first.outbox[1])
    assert same(result.client_states[1], first.client_states[1])
    assert result.server_state["matrix"].shape == (K - 1, K - 1)
    three = [CLIENTS[k] for k in (0, 2, 3)]
    never = run(method, CLIENTS, dropouts=lambda index, client: client == 1)
    want = run(method, three)
    for new, old in enumerate((0, 2, 3)):
        close(never.outbox[old], want.outbox[new], atol=1e-7)
    alone = run(method, CLIENTS, dropouts=lambda index, client: client != 2)
    close(alone.server_state["matrix"], torch.ones(1, 1).double())


@pytest.mark.parametrize("name", ["fedamp", "pfedgraph", "fedpub"])
def test_drawn_models_take_what_the_server_mixes(name: str) -> None:
    """FedEgo's clients adopt nothing before the server has aggregated once, and everything then."""
    method, made = case(name, "ego", dropout=0.0)
    message = fgl.run(method, made.clients, num_rounds=1).outbox[0]
    assert int(message["num_clients"]) == K
    if name != "fedamp":
        params, _ = method.receive(message, {}, made.clients[0])
        assert all(torch.equal(params[n], value) for n, value in message["model"].items())


# What a client trains beside the model


@pytest.mark.parametrize("build", [fedamp, heurfedamp, pfedgraph])
def test_statistics_of_batch_norm_make_no_client_less_alike(build: Any) -> None:
    """The mixes are those of clients whose statistics are alike; the statistics are mixed too."""
    method = build(fgl.fedavg(torch.nn.BatchNorm1d(2)))
    generator = torch.Generator().manual_seed(0)
    sent = {}
    for client in range(3):
        weight, bias = (torch.randn(2, generator=generator) for _ in range(2))
        message = {"model": {**method.initial(), "weight": weight, "bias": bias}}
        sent[client] = {**message, "num_examples": torch.tensor(4)}
    far = {k: {**m, "model": {**m["model"], "running_mean": torch.full((2,), 50.0 * k)}}
           for k, m in sent.items()}  # fmt: skip
    _, alike = method.aggregate(Inbox(sent, 3), {})
    outbox, moved = method.aggregate(Inbox(far, 3), {})
    assert same(alike["matrix"], moved["matrix"])
    means = torch.stack([outbox[k]["model"]["running_mean"] for k in range(3)])
    close(
        means, moved["matrix"].to(means) @ torch.tensor([[0.0] * 2, [50.0] * 2, [100.0] * 2]), 1e-4
    )


def test_what_is_personal_is_trained_and_checked() -> None:
    first = {"scale": torch.ones((), dtype=torch.float64)}

    def receive(message: Any, state: Any, own: fgl.Graph) -> Any:
        params, context = FEDAVG.receive(message, state, own)
        return {**params, "scale": state.get("scale", first["scale"])}, context

    def loss(params: Any, own: fgl.Graph, context: Any) -> Any:
        plain = {n: params["scale"] * value for n, value in params.items() if n != "scale"}
        return FEDAVG.loss(plain, own, context)

    def send(params: Any, context: Any, state: Any, own: fgl.Graph) -> Any:
        plain = {n: value for n, value in params.items() if n != "scale"}
        message, state = FEDAVG.send(plain, context, state, own)
        return message, {**state, "scale": params["scale"]}

    method = replace(FEDAVG, receive=receive, loss=loss, send=send, own=Own(personal=first))
    loop, batch = (run(method, CLIENTS, clients_at_once=n) for n in (1, "all"))
    for client in range(K):
        close(batch.client_states[client], loop.client_states[client])
        assert float(loop.client_states[client]["scale"]) != 1
    with pytest.raises(ValueError, match="params to have keys .* extra \\['scale'\\]"):
        run(replace(method, own=Own()), CLIENTS)
    with pytest.raises(ValueError, match="params to have keys .* missing \\['scale'\\]"):
        run(replace(FEDAVG, own=Own(personal=first)), CLIENTS)
    with pytest.raises(ValueError, match="keys .* extra \\['scale'\\]"):
        run(replace(method, send=lambda p, c, s, g: ({"model": p}, s)), CLIENTS)
    with pytest.raises(ValueError, match="personal to have names that the model has not"):
        replace(FEDAVG, own=Own(personal=FEDAVG.initial()))

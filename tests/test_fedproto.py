"""FedProto and FedTGP: each against the same written in loops, and the term of their loss."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from by_loops import apart, clients, forward, label, plain, sgd, supervised, train_nodes
from federations import CLASSES
from torch import Tensor, nn

import fgl
from fgl.methods import fedproto, fedtgp
from fgl.methods.fedtgp import descend, drawn_like

Rows = dict[int, Tensor]


def means(params: Any, own: fgl.Graph) -> Rows:
    """Each class's mean hidden row."""
    _, hidden = forward(params, own)
    found: dict[int, list[Tensor]] = {}
    for v in train_nodes(own):
        found.setdefault(label(own, v), []).append(hidden[v])
    return {c: torch.stack(rows).mean(0).detach() for c, rows in found.items()}


def pulled(params: Any, own: fgl.Graph, near: Rows, weight: float) -> Tensor:
    """The loss: entries of rows whose class has a prototype, over all entries of all rows."""
    _, hidden = forward(params, own)
    total = torch.zeros((), dtype=torch.float64)
    for v in train_nodes(own):
        if label(own, v) in near:
            for k in range(hidden.shape[1]):
                total = total + (hidden[v, k] - near[label(own, v)][k]) ** 2
    return supervised(params, own) + weight * total / (len(train_nodes(own)) * hidden.shape[1])


def trained(first: list[Any], own: list[fgl.Graph], rounds: int, weight: float, server: Any) -> Any:
    """The clients' models after so many rounds, and what the server sends then."""
    models, near = first, {}
    for _ in range(rounds):
        models = [
            sgd(lambda p, g=g, near=near: pulled(p, g, near, weight), m)  # type: ignore[misc]
            for m, g in zip(models, own, strict=True)
        ]
        near = server([means(m, g) for m, g in zip(models, own, strict=True)])
    return models, near


def averaged(sent: list[Rows]) -> Rows:
    classes = sorted({c for rows in sent for c in rows})
    return {c: torch.stack([rows[c] for rows in sent if c in rows]).mean(0) for c in classes}


def own_data() -> list[fgl.Graph]:
    """Three clients, of whom one has no training node of class 0."""
    own = clients()
    y, mask = own[1].y, own[1].train_mask
    assert y is not None
    assert mask is not None
    return [own[0], own[1].replace(train_mask=mask & (y != 0)), own[2]]


def first_models(draw: bool, own: list[fgl.Graph]) -> list[Any]:
    """What the clients of a run start from: steps of no length leave it."""
    still = fgl.run(fedproto(plain(lr=0.0), draw=draw), own, num_rounds=1, clients_at_once=1)
    return [still.client_states[k]["model"] for k in range(len(own))]


@pytest.mark.parametrize("draw", [True, False])
def test_fedproto_is_the_authors(draw: bool) -> None:
    base, own, weight = plain(), own_data(), 0.7
    how: Any = {} if draw else {"draw": False}
    result = fgl.run(fedproto(base, weight=weight, **how), own, num_rounds=3, clients_at_once=1)
    first = first_models(draw, own)
    others = [apart(first[k], base.initial()) for k in range(3)] + [apart(first[0], first[1])]
    assert min(others) > 0.1 if draw else max(others) == 0
    models, near = trained(first, own, 3, weight, averaged)
    for k, model in enumerate(models):
        assert apart(result.client_states[k]["model"], model) < 1e-12
    for c in range(CLASSES):
        torch.testing.assert_close(result.outbox[0]["prototypes"][c], near[c], atol=1e-12, rtol=0)


def learned(sent: list[Rows], network: Any, margin: float, epochs: int, lr: float) -> Any:
    """The server's training, all prototypes in one batch; the network goes on."""
    rows = [(c, row) for each in sent for c, row in each.items()]
    average = averaged(sent)
    nearest = [min(float((average[a] - average[b]).norm()) for b in average if b != a)
               for a in average]  # fmt: skip
    bound = min(max(nearest), margin)

    def centres(p: Any) -> list[Tensor]:
        hidden = [(p["hidden.weight"] @ e + p["hidden.bias"]).relu() for e in p["rows.weight"]]
        return [p["out.weight"] @ h + p["out.bias"] for h in hidden]

    def loss(p: Any) -> Tensor:
        each, made = [], centres(p)
        for c, row in rows:
            far = [(row - z).square().sum().sqrt() + (bound if k == c else 0)
                   for k, z in enumerate(made)]  # fmt: skip
            each.append(far[c] + (-torch.stack(far)).logsumexp(0))
        return torch.stack(each).mean()

    network = sgd(loss, network, lr, epochs)
    return network, {c: z.detach() for c, z in enumerate(centres(network))}


@pytest.mark.parametrize("margin", [0.3, 100.0])
def test_fedtgp_is_the_authors(margin: float) -> None:
    base, own, weight = plain(), own_data(), 0.7
    how: Any = {"server_epochs": 4, "server_lr": 0.05, "server_batch": 99, "margin": margin}
    first = fgl.run(fedtgp(base, weight=weight, **how), own, num_rounds=1, clients_at_once=1)
    with torch.random.fork_rng():
        torch.manual_seed(4)
        network: Any = drawn_like(torch.zeros(CLASSES, 8, dtype=torch.float64))
    start = {**first.server_state, "generator": network}
    method = fedtgp(base, weight=weight, **how)

    def aggregate(inbox: Any, state: Any) -> Any:
        state = state if "generator" in state else start
        return method.aggregate(inbox, state)

    result = fgl.run(replace(method, aggregate=aggregate), own, num_rounds=3, clients_at_once=1)
    kept = [network]

    def server(sent: list[Rows]) -> Rows:
        after, rows = learned(sent, kept[-1], margin, 4, 0.05)
        kept.append(after)
        return rows

    models, near = trained([base.initial() for _ in own], own, 3, weight, server)
    for k, model in enumerate(models):
        assert apart(result.client_states[k]["model"], model) < 1e-12
    assert apart(result.server_state["generator"], kept[-1]) < 1e-12
    for c in range(CLASSES):
        torch.testing.assert_close(result.outbox[0]["prototypes"][c], near[c], atol=1e-12, rtol=0)


def test_what_has_no_class_labels_is_refused() -> None:
    own = clients()[0]
    own = own.replace(y=own.x[:, 0])  # type: ignore[index]
    method = fedproto(plain())
    with pytest.raises(ValueError, match="Expected examples to have class labels"):
        method.send(method.initial(), {"start": {}}, {}, own)


@pytest.mark.parametrize("equal", [False, True])
def test_a_step_of_fedtgp_is_that_of_autograd(equal: bool) -> None:
    torch.manual_seed(0)
    start = drawn_like(torch.zeros(4, 3, dtype=torch.float64))
    for count in (1, 2, 9):
        rows, classes = torch.randn(count, 3, dtype=torch.float64), torch.randint(4, (count,))
        mine = {name: value.clone() for name, value in start.items()}
        theirs = {name: value.clone().requires_grad_() for name, value in start.items()}
        if equal:  # a distance of 0 has the gradient 0
            rows = rows * 0 + theirs["out.bias"].detach()
            for network in (mine, theirs):
                network["rows.weight"].data.zero_(), network["hidden.bias"].data.zero_()
        sgd = torch.optim.SGD(theirs.values(), lr=0.1)
        for _ in range(3):
            at: Any = theirs
            hidden = nn.functional.linear(at["rows.weight"], at["hidden.weight"], at["hidden.bias"])
            centres = nn.functional.linear(hidden.relu(), at["out.weight"], at["out.bias"])
            apart = torch.cdist(rows, centres, compute_mode="donot_use_mm_for_euclid_dist")
            own = nn.functional.one_hot(classes, 4)
            sgd.zero_grad()
            nn.functional.cross_entropy(-(apart + 1.5 * own), classes).backward()
            sgd.step()
            descend(mine, rows, own, torch.tensor(1.5), 0.1)
        assert max(float((mine[n] - theirs[n].detach()).abs().max()) for n in mine) < 1e-12
    descend(mine, rows * torch.nan, own, torch.tensor(1.5), 0.1)
    assert mine["out.bias"].isnan().all()

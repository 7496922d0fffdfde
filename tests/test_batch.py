"""Clients that train as one batch end where they would have ended one by one."""

import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
import torch
from federations import CLASSES, FEATURES, SGD, end, fedavg, graphs, model, without_training_nodes
from torch import Tensor, nn, optim

import fgl
from fgl import Method, Result, SparseMatrix, Training

SIZES = (12, 20, 31, 17)


@cache
def ragged(features: str = "dense", dtype: torch.dtype = torch.float32) -> list[fgl.Graph]:
    """Unequal sizes; one client has weights, one no edge, one no training node."""
    clients = [*graphs(SIZES), without_training_nodes(9, seed=5)]
    weight = torch.rand(clients[1].num_edges, generator=torch.Generator().manual_seed(0)) + 0.5
    clients[1] = clients[1].replace(edge_weight=weight)
    clients[3] = clients[3].replace(edge_index=torch.zeros(2, 0, dtype=torch.int64))
    clients = [c.replace(x=c.x.to(dtype)) for c in clients]
    if features == "sparse":
        return [c.replace(x=SparseMatrix.from_dense(c.x.relu())) for c in clients]
    return clients


def near(got: Any, want: Any, rtol: float = 1e-5) -> None:
    """No tensor differs by more than `rtol` of its largest entry."""
    if isinstance(want, Tensor):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        assert torch.isfinite(got).all() == torch.isfinite(want).all()
        if want.numel():
            assert (got - want).abs().max() <= rtol * want.abs().max(), (got, want)
    elif isinstance(want, float):
        assert got == pytest.approx(want, rel=rtol, nan_ok=True)
    elif isinstance(want, dict):
        assert list(got) == list(want)
        for key in want:
            near(got[key], want[key], rtol)
    elif isinstance(want, list):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            near(one, other, rtol)
    else:
        assert got == want


def parity(got: Result, want: Result, rtol: float = 1e-5) -> None:
    a, b = end(got), end(want)
    for record in (*a["history"], *b["history"]):
        del record["padding"]
        record["dropped"] = dict(sorted(record["dropped"].items()))
    near(a, b, rtol)


def twins(method: Method, clients: Sequence[fgl.Graph], *, at_once: Any = "all", **how: Any) -> Any:
    """The run in batches, checked against the run one by one."""
    how = {"num_rounds": 10, **how}
    got = fgl.run(method, clients, clients_at_once=at_once, **how)
    parity(got, fgl.run(method, clients, clients_at_once=1, **how))
    return got


class Scaled(nn.Module):
    """A scalar parameter, a frozen one, and a buffer that counts the calls in training."""

    def __init__(self) -> None:
        super().__init__()
        self.net = model(dropout=0.0)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.frozen = nn.Parameter(torch.ones(CLASSES), requires_grad=False)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Any, adj: SparseMatrix) -> Tensor:
        if self.training:
            self.calls.add_(1)
        return self.net(x, adj) * self.scale + self.frozen


@pytest.mark.few
@pytest.mark.parametrize("build", [partial(model, dropout=0.0), Scaled], ids=["gcn", "scaled"])
@pytest.mark.parametrize("limit", [None, 1e-2, 0.3, 1e6])
def test_parity_with_clipped_gradients(build: Callable[[], nn.Module], limit: float) -> None:
    twins(fedavg(build(), replace(SGD, max_grad_norm=limit)), ragged(), num_rounds=4)


def changed(function: Callable[[Tensor, fgl.Graph], Any]) -> Method:
    """FedAvg whose loss is a function of the logits and the graph."""
    net = model(dropout=0.0)

    def loss(params: Any, data: fgl.Graph, context: Any) -> Any:
        logits = torch.func.functional_call(net, params, (data.x, data.adj))
        return function(logits, data)

    return fgl.fedavg(net, loss=loss, train=SGD)


def branch(logits: Tensor, data: fgl.Graph) -> Tensor:
    if logits.sum() > 0:
        return logits.sum()
    return -logits.sum()


UNMAPPABLE: Any = {
    "item": (lambda logits, data: logits.sum() * logits.max().item(), r"\.item\(\)"),
    "mask": (lambda logits, data: logits[data.train_mask].sum(), r"train_mask\]|nonzero"),
    "branch": (branch, "if logits.sum|control flow"),
}


@pytest.mark.parametrize(("function", "what"), UNMAPPABLE.values(), ids=UNMAPPABLE)
def test_a_loss_that_cannot_be_mapped_is_named(function: Any, what: str) -> None:
    run = partial(fgl.run, changed(function), ragged(), num_rounds=1)
    with pytest.raises(RuntimeError, match=r"Round 0, 5 clients \(0, 1, 2, 3, 4\), loss") as caught:
        run(clients_at_once="all")
    text = str(caught.value)
    assert "clients_at_once=1" in text
    assert re.search(what, text)
    assert re.search(r"test_batch.py:\d+", text)
    assert len(run().history) == 1


def test_an_optimiser_that_mixes_clients_is_refused() -> None:
    method = fedavg(model(), Training(optim.Adafactor))
    with pytest.raises(ValueError, match=r"Round 0, 2 clients.*Adafactor.*clients_at_once=1"):
        fgl.run(method, graphs((5, 7)), num_rounds=1, clients_at_once="all")


@pytest.mark.parametrize("bad", [0, -1, "some", None, 1.5])
def test_clients_at_once_is_a_number_or_all(bad: Any) -> None:
    with pytest.raises(ValueError, match=f"clients_at_once.*'all' or at least 1.*{bad}"):
        fgl.run(fedavg(model()), graphs(), num_rounds=1, clients_at_once=bad)


class Normalised(nn.Module):
    """Every node's output depends on all of them, padding included."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, 8)
        self.norm = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, adj: SparseMatrix) -> Tensor:
        return self.last(adj @ self.norm(self.first(x)).relu())


@pytest.mark.parametrize("sizes", [(20, 20, 20), SIZES], ids=["equal", "ragged"])
def test_a_network_that_mixes_nodes_is_right_or_refused(sizes: Sequence[int]) -> None:
    try:
        twins(fedavg(Normalised()), graphs(sizes), num_rounds=2)
    except (RuntimeError, TypeError, ValueError) as error:
        assert "clients_at_once=1" in str(error)


@pytest.mark.parametrize("centred", [False, True])
def test_padding_that_gets_into_a_loss_is_refused(centred: bool) -> None:
    def loss(logits: Tensor, data: fgl.Graph) -> Tensor:
        if centred:  # by a mean over padded rows too
            logits = logits - logits.mean(0)
            return fgl.losses.cross_entropy(logits, data.y, data.train_mask)
        return nn.functional.cross_entropy(logits, data.y * data.train_mask)

    method = changed(loss)
    with pytest.raises(ValueError, match=r"leave padding out .*clients_at_once=1"):
        fgl.run(method, graphs(), num_rounds=1, clients_at_once="all")
    alike = graphs((12, 12, 12))
    fgl.run(method, alike, num_rounds=1, clients_at_once="all")  # nothing is padded


def test_an_optimiser_that_chooses_by_dimension() -> None:
    def no_decay_on_biases(leaves: Any) -> torch.optim.Optimizer:
        leaves = list(leaves)
        flat = [p for p in leaves if p.dim() < 2]
        deep = [p for p in leaves if p.dim() > 1]
        groups = [{"params": deep, "weight_decay": 5.0}, {"params": flat, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=0.05)

    method = fgl.fedavg(model(dropout=0.0), train=fgl.Training(no_decay_on_biases, num_steps=3))
    one, all_ = (fgl.run(method, graphs(), num_rounds=3, clients_at_once=k) for k in (1, "all"))
    near(all_.outbox[0]["model"], one.outbox[0]["model"])


def test_padding_that_counts_only_once_biases_have_moved_is_refused() -> None:
    net = model(dropout=0.0)
    assert not any(value.any() for name, value in net.named_parameters() if "bias" in name)

    def loss(params: Any, data: fgl.Graph, context: Any) -> Tensor:
        logits = torch.func.functional_call(net, params, (data.x, data.adj))
        supervised = fgl.losses.cross_entropy(logits, data.y, data.train_mask)
        return supervised + logits.square().sum() / data.num_nodes

    def masked(params: Any, data: fgl.Graph, context: Any) -> Tensor:
        logits = torch.func.functional_call(net, params, (data.x, data.adj))
        supervised = fgl.losses.cross_entropy(logits, data.y, data.train_mask)
        return supervised + (logits * data.node_mask[:, None]).square().sum() / data.num_nodes

    with pytest.raises(ValueError, match=r"leave padding out"):
        fgl.run(replace(fedavg(net), loss=loss), graphs(), num_rounds=1, clients_at_once="all")
    twins(replace(fedavg(net), loss=masked), graphs(), num_rounds=3)


class Bounded(nn.Module):
    """Its loss is defined for a parameter below 1 alone."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(FEATURES, CLASSES)
        self.share = nn.Parameter(torch.tensor(0.999))

    def forward(self, x: Tensor, adj: SparseMatrix) -> Tensor:
        return adj @ self.lin(x)


@pytest.mark.parametrize("leaks", [False, True])
@pytest.mark.parametrize("strict", [False, True])
def test_a_loss_that_is_not_defined_beside_its_parameters(leaks: bool, strict: bool) -> None:
    torch.manual_seed(0)
    net = Bounded()

    def loss(params: Any, data: fgl.Graph, context: Any) -> Tensor:
        logits = torch.func.functional_call(net, params, data.inputs)
        total = fgl.losses.cross_entropy(logits, data.y, data.train_mask)
        total = total - 0.01 * (1 - params["share"]).log()
        if strict and not torch._C._functorch.is_batchedtensor(params["share"]):
            assert params["share"] < 1
        # What is added to padded rows, too, where it leaks.
        return total + 0.01 * (data.node_mask if not leaks else 1 + 0 * data.node_mask).sum()

    with pytest.raises(ValueError, match="leave padding out") if leaks else nullcontext():
        fgl.run(replace(fedavg(net), loss=loss), graphs(), num_rounds=1, clients_at_once="all")


MODULE = model(dropout=0.0)


@pytest.mark.parametrize("clients_at_once", [1, "all"])
@pytest.mark.parametrize(("value", "error"), [
    (lambda loss: loss.detach(), r"the loss to depend on params, but got no gradient"),
    (lambda loss: loss.expand(2), r"the loss to be a scalar, but got shape \[2\]"),
    (lambda loss: 0.5, r"the loss to be a scalar tensor, but got 0\.5"),
    (lambda loss: loss + next(MODULE.parameters()).sum(), "the loss to read params alone,"),
])  # fmt: skip
def test_a_loss_without_a_scalar_gradient(clients_at_once: Any, value: Any, error: str) -> None:
    base = fedavg(MODULE)
    wrong = replace(base, loss=lambda *given: value(base.loss(*given)))
    with pytest.raises((TypeError, ValueError), match=rf"Round 0, .*Expected {error}"):
        fgl.run(wrong, graphs(), num_rounds=1, clients_at_once=clients_at_once)

"""DP-SGD at clients whose rows are independent: its formula, its noise, and Opacus beside it."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from federations import close, same
from torch.func import functional_call

import fgl
from fgl import privacy
from fgl.federation import Training, train
from fgl.transforms import per_example_gaussian, privacy_spent

SGD = Training(partial(torch.optim.SGD, lr=0.2))
NONE = torch.zeros(2, 0, dtype=torch.int64)
HOW: dict[str, Any] = {"length": 2.0, "sample_rate": 0.5, "num_steps": 3}


class Rows(torch.nn.Module):
    """A perceptron that looks at no edge."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)
        )

    def forward(self, x: Any, adj: Any = None) -> Any:
        return self.net(x)


def model() -> Rows:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Rows()


def rows(count: int = 24, seed: int = 0, **changes: Any) -> fgl.Graph:
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (count,), generator=g)
    x = 2 * torch.randn(count, 4, generator=g)
    x[:, :3] += torch.nn.functional.one_hot(y, 3)
    return fgl.Graph(x, NONE, y=y, num_classes=3).replace(**changes)


def loss_of(net: Rows) -> Any:
    def loss(params: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = functional_call(net, params, (x[None],))
        return torch.nn.functional.cross_entropy(logits, y[None])

    return loss


def private(noise: float, net: Rows | None = None, **how: Any) -> fgl.Method:
    net = net or model()
    given = {**HOW, "noise_multiplier": noise, **how}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if given.get("unprotected") else "error")
        return per_example_gaussian(fgl.fedavg(net, train=SGD), loss_of(net), **given)


def test_one_step_is_the_sum_of_clipped_gradients() -> None:
    """Of all rows, since each is drawn; the noise is next to nothing."""
    method, own = private(1e-9, sample_rate=1.0, num_steps=1), rows()
    start = method.initial()
    params, context = method.receive({"model": start}, {}, own)
    done = train(method, params, own, context, seed=0).params
    total = {name: torch.zeros_like(value) for name, value in start.items()}
    lengths = []
    for x, y in zip(own.x, own.y, strict=True):
        leaves = {name: value.clone().requires_grad_() for name, value in start.items()}
        value = loss_of(method.model)(leaves, x, y)
        grads = torch.autograd.grad(value, list(leaves.values()))
        norm = float(torch.cat([grad.flatten() for grad in grads]).norm())
        lengths.append(norm)
        total = {n: t + g * min(1.0, 2.0 / norm) for (n, t), g in zip(total.items(), grads)}  # noqa: B905
    assert min(lengths) < 2.0 < max(lengths)
    close(done, {n: start[n] - 0.2 * total[n] / 24 for n in start}, atol=1e-6)


def test_rows_without_a_training_mask_do_not_train() -> None:
    own = rows(train_mask=torch.arange(24) < 1)
    method = private(1e-9, sample_rate=1.0, num_steps=1)
    params, context = method.receive({"model": method.initial()}, {}, own)
    one = train(method, params, own, context, seed=0).params
    other = own.replace(x=torch.where(own.train_mask[:, None], own.x, 99.0))
    close(train(method, params, other, context, seed=0).params, one, atol=1e-6)


def test_loop_is_batch_and_a_rehearsal_repeats() -> None:
    clients = [rows(count, seed=count) for count in (9, 24, 16)]
    method = private(0.3, unprotected=True)
    one, again = (fgl.run(method, clients, num_rounds=2, seed=1) for _ in range(2))
    assert same(dict(one.outbox[0]), dict(again.outbox[0]))
    all_ = fgl.run(method, clients, num_rounds=2, seed=1, clients_at_once="all")
    close(dict(all_.outbox[0]), dict(one.outbox[0]), atol=1e-5)
    real = [fgl.run(private(0.3), clients, num_rounds=1, seed=1).outbox[0] for _ in range(2)]
    assert not same(*real)


def test_a_client_from_whom_nothing_is_drawn_takes_steps_of_noise() -> None:
    # The noise is divided by the rows that are expected: a huge step, which a server would refuse.
    method = replace(private(1.0, sample_rate=1e-9), max_change=math.inf)
    result = fgl.run(method, [rows()], num_rounds=1)
    moved: Any = result.outbox[0]["model"]
    assert all(value.isfinite().all() for value in moved.values())
    assert not same(moved, method.initial())


def test_epsilon_counts_steps_and_the_rate() -> None:
    result = fgl.run(private(1.2), [rows(), rows(9)], num_rounds=2, watch=privacy_spent)
    want = privacy.epsilon(noise_multiplier=1.2, rounds=6, delta=1e-5, sample_rate=0.5)
    assert result.history[-1].metrics["epsilon"] == pytest.approx(want)


def test_nodes_that_see_each_other_are_refused() -> None:
    edges = torch.tensor([[0], [1]])
    for bad in (rows().replace(edge_index=edges), fgl.Graph.join([rows(2)] * 3, torch.arange(3))):
        with pytest.raises(ValueError, match="without edges"):
            fgl.run(private(1.0), [bad], num_rounds=1)
    plain = fgl.fedavg(model(), train=replace(SGD, adjust=lambda grads, params, context: grads))
    with pytest.raises(ValueError, match="to have no adjust"):
        per_example_gaussian(plain, loss_of(model()), noise_multiplier=1.0, **HOW)
    with pytest.raises(ValueError, match="Expected sample_rate"):
        private(1.0, sample_rate=0.0)


def ours(repeats: int, noise: float) -> torch.Tensor:
    """The parameters after four steps of this library, so many times."""
    method, own = private(noise, num_steps=4), rows()
    params, context = method.receive({"model": method.initial()}, {}, own)
    ends = [train(method, params, own, context, seed=k).params for k in range(repeats)]
    return torch.stack([torch.cat([value.flatten() for value in end.values()]) for end in ends])


def opacus_s(repeats: int, noise: float) -> torch.Tensor:
    """The same of Opacus."""
    opacus = pytest.importorskip("opacus")
    from torch.utils.data import DataLoader, TensorDataset

    own, ends = rows(), []
    for _ in range(repeats):
        net = model()
        given = {"module": net, "optimizer": torch.optim.SGD(net.parameters(), lr=0.2)}
        data = TensorDataset(own.x, own.y)
        given |= {"data_loader": DataLoader(data, batch_size=12), "poisson_sampling": True}
        made = opacus.PrivacyEngine(accountant="rdp").make_private(
            **given, noise_multiplier=noise, max_grad_norm=2.0
        )
        wrapped, stepper, loader = made
        for _ in range(2):  # of two batches each
            for x, y in loader:
                stepper.zero_grad()
                torch.nn.functional.cross_entropy(wrapped(x), y).backward()
                stepper.step()
        flat = [p.detach().flatten() for p in net.parameters()]
        ends.append(torch.cat(flat))
    return torch.stack(ends)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.05, 1.0])
@pytest.mark.filterwarnings("ignore")
def test_training_has_the_distribution_of_opacus(noise: float) -> None:
    """Means and spreads of every parameter after four steps of half of the rows.

    A right one fails by chance in one of 10^5 runs: 43 means within six standard errors.
    """
    repeats = 150
    one, two = ours(repeats, noise), opacus_s(repeats, noise)
    error = ((one.var(0) + two.var(0)) / repeats).sqrt()
    assert float(((one.mean(0) - two.mean(0)) / error).abs().max()) < 6
    ratio = one.std(0) / two.std(0)
    assert float(ratio.log().abs().max()) < 6 / (repeats - 1) ** 0.5
    start = torch.cat([value.flatten() for value in model().state_dict().values()])
    assert float((one.mean(0) - start).norm()) > 5 * float(error.norm())  # it did learn

"""DP-SGD at clients whose rows are independent: its formula, its noise, and Opacus beside it."""

import warnings
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from by_loops import gradient
from conformance import CASES, ROWS, known, without_edges
from federations import close, receive_as_a_run, refuses
from torch.func import functional_call

import fgl
from fgl import Method, Training, privacy
from fgl.federation import train
from fgl.methods import fedopt, fedprox
from fgl.transforms import per_example_gaussian, privacy_spent
from fgl.transforms.dp_sgd import examples

SGD = Training(partial(torch.optim.SGD, lr=0.2))
NONE = torch.zeros(2, 0, dtype=torch.int64)
HOW: dict[str, Any] = {"length": 2.0, "sample_rate": 0.5, "num_steps": 3}
HOW |= {"expected_batch_size": 12}  # of the 24 rows that a client has


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
        return per_example_gaussian(fgl.fedavg(net, train=SGD), **given)


def clipped_sum(start: Any, losses: Iterable[Any], length: float) -> Any:
    """Of gradients by one backward each; some are clipped and some are not."""
    total, norms = {name: torch.zeros_like(value) for name, value in start.items()}, []
    for loss in losses:
        grads = gradient(loss, start)
        norms.append(float(torch.cat([grad.flatten() for grad in grads.values()]).norm()))
        total = {n: t + grads[n] * min(1.0, length / norms[-1]) for n, t in total.items()}
    assert min(norms) < length < max(norms)
    return total


def test_one_step_is_the_sum_of_clipped_gradients() -> None:
    """Of all rows, since each is drawn; the noise is next to nothing."""
    method, own = private(1e-9, sample_rate=1.0, num_steps=1, expected_batch_size=24), rows()
    start = method.initial()
    params, context = receive_as_a_run(method, {"model": start}, {}, own)
    done = train(method, params, own, context, seed=0).params
    loss = loss_of(method.model)
    each = [lambda at, x=x, y=y: loss(at, x, y) for x, y in zip(own.x, own.y, strict=True)]
    total = clipped_sum(start, each, 2.0)
    close(done, {n: start[n] - 0.2 * total[n] / 24 for n in start}, atol=1e-6)


def test_epsilon_counts_steps_and_the_rate() -> None:
    result = fgl.run(private(1.2), [rows(), rows(9)], num_rounds=2, watch=privacy_spent)
    want = privacy.epsilon(noise_multiplier=1.2, rounds=6, delta=1e-5, sample_rate=0.5)
    assert result.history[-1].metrics["epsilon"] == pytest.approx(want)


def test_nodes_that_see_each_other_are_refused() -> None:
    edges = torch.tensor([[0], [1]])
    with pytest.raises(ValueError, match="rows of a graph without edges .* and so is an edge"):
        fgl.run(private(1.0), [rows().replace(edge_index=edges)], num_rounds=1)
    for task in ("links", "nodes"):
        made = known(task, 0.0, torch.float32)
        with pytest.raises(ValueError, match="Expected examples that are independent"):
            fgl.run(
                per_example_gaussian(made.fedavg, noise_multiplier=1.0, **HOW), made, num_rounds=1
            )
    plain = fgl.fedavg(model(), train=replace(SGD, adjust=lambda grads, params, context: grads))
    refuses("to have no adjust", lambda: per_example_gaussian(plain, noise_multiplier=1.0, **HOW))
    with pytest.raises(ValueError, match="Expected max_grad_norm to be None, .* but got 3"):
        short = fgl.fedavg(model(), train=replace(SGD, max_grad_norm=3.0))
        per_example_gaussian(short, noise_multiplier=1.0, **HOW)
    normed = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    with pytest.raises(ValueError, match=r"no batch norm, .* but got \['1'\]"):
        per_example_gaussian(fgl.fedavg(normed), noise_multiplier=1.0, **HOW)
    refuses("Expected sample_rate", lambda: private(1.0, sample_rate=0.0))


def test_a_loss_that_counts_unknown_answers_otherwise_is_refused() -> None:
    """It is the mean of its examples' losses wherever all answers are known."""
    net = model()

    def loss(params: Any, own: fgl.Graph, context: Any) -> Any:
        known = ~own.y.isnan()  # type: ignore[union-attr]
        each = (functional_call(net, params, own.x) - own.y.nan_to_num()).square() * known  # type: ignore[union-attr]
        return each.sum() / (known.sum() * known.numel()).clamp(min=1).sqrt()

    own = rows(6).replace(y=torch.ones(6, 3), num_classes=None)
    with pytest.raises(ValueError, match="mean of its examples' losses"):
        examples.check_alone(replace(fgl.fedavg(net), loss=loss), own, {})


def one_step(method: Method, own: fgl.Graph) -> Any:
    """What a client has after a round's training, seeded, from where all start."""
    params, context = receive_as_a_run(method, {"model": method.initial()}, {}, own)
    return train(method, params, own, context, seed=0).params


def by_one_backward_each(method: Method, own: fgl.Graph, length: float, lr: float) -> Any:
    """A step on the sum of clipped gradients, one backward for each graph of a collection."""
    start, context = receive_as_a_run(method, {"model": method.initial()}, {}, own)
    rows = own.train_mask.nonzero()
    each = [partial(method.loss, graph=own.select(row), context=context) for row in rows]
    total = clipped_sum(start, each, length)
    return {name: start[name] - lr * total[name] / len(rows) for name in start}


def test_graphs_are_clipped_as_one_backward_each_would() -> None:
    made = known("graphs", 0.0, torch.float64)
    plain = replace(fedprox(made.fedavg, mu=0.5), train=SGD)
    own = made.clients[1]
    assert own.train_mask is None or not own.train_mask.all()
    own = own.replace(train_mask=torch.arange(own.num_graphs) % 3 > 0)
    how: Any = {"noise_multiplier": 1e-9, "sample_rate": 1.0, "num_steps": 1}
    how["expected_batch_size"] = own.num_train
    got = one_step(per_example_gaussian(plain, length=2.5, **how), own)
    close(got, by_one_backward_each(plain, own, 2.5, 0.2), atol=1e-6)


def test_graphs_do_not_train_as_one_batch() -> None:
    made = known("graphs", 0.0, torch.float32)
    method = per_example_gaussian(made.fedavg, noise_multiplier=1.0, **HOW)
    result = fgl.run(method, made, num_rounds=1, watch=privacy_spent)
    assert "context['graphs'] to be a tensor" in result.history[0].one_by_one
    assert result.history[0].metrics["epsilon"] > 0
    with pytest.raises(TypeError, match="clients_at_once=1 trains one client after the other"):
        fgl.run(method, made, num_rounds=1, clients_at_once="all")


TAKEN = {  # whose losses are those of their examples, and whose messages are a model
    "fedavg", "fedprox", "fedopt sgd", "fedopt adam", "fedopt yogi", "fedopt adagrad", "fedper",
    "ring", "own models", "mix updates", "fedamp", "heurfedamp", "pfedgraph", "gcfl", "gcfl plus",
    "fgssl distillation", "your own", "fedopt of fedprox", "fedopt of fedper", "ring of fedprox",
    "ring of fedper", "mix updates of fedprox", "fedprox of fedamp", "fedprox of pfedgraph",
    "gcfl of fedprox", "gcfl of fedper", "gcfl of fedopt", "robust median of fedavg",
    "robust krum of fedprox", "robust buckets of fedper", "fedopt of robust",
    "attacked robust median of fedavg", "server of one's own", "ditto", "retrained",
}  # fmt: skip
QUICK = ("fedprox", "moon", "graphfl", "fgssl contrast", "fedper", "scaffold", "adaptive fedprox")


def same_loss_or_refused(name: str, task: str) -> bool:
    """Whether DP-SGD takes a method; then a step without noise or clipping is its own step.

    Its own is one on all examples at once. Everything else must be a plain refusal.
    """
    made = without_edges(known(task, 0.0, torch.float64))
    plain = ROWS[name].build(made)
    plain = replace(plain, train=replace(plain.train, optimizer=partial(torch.optim.SGD, lr=0.2)))
    how: Any = {"noise_multiplier": 1e-9, "sample_rate": 1.0, "num_steps": 1, "length": 1e3}
    own = made.clients[1]
    how["expected_batch_size"] = own.num_train
    try:
        method = per_example_gaussian(plain, **how)
        fgl.run(method, made.clients, num_rounds=2, seed=0)
    except (ValueError, TypeError) as error:
        assert "Expected " in str(error), error
        return False
    wanted = replace(plain, train=replace(plain.train, num_steps=1, batches=None))
    close(one_step(method, own), one_step(wanted, own), atol=1e-5)
    return True


@pytest.mark.few
@pytest.mark.parametrize("name", QUICK)
def test_a_loss_is_kept_or_refused(name: str) -> None:
    assert same_loss_or_refused(name, "nodes") == (name in TAKEN)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "task"), [each for each in CASES if each[1] in ("nodes", "graphs")]
)
def test_every_loss_is_kept_or_refused(name: str, task: str) -> None:
    assert same_loss_or_refused(name, task) == (name in TAKEN)


AROUND: dict[str, Any] = {
    "fedprox": partial(fedprox, mu=1.0),
    "moon": fgl.methods.moon,
    "graphfl": partial(fgl.methods.graphfl, query="all"),
    "fedopt": fedopt,
}


@pytest.mark.parametrize("name", AROUND)
def test_a_method_around_it_is_refused(name: str) -> None:
    """Its loss would be dropped, or added without noise."""
    inner = per_example_gaussian(fgl.fedavg(fgl.nn.GCN(4, 5, 3)), noise_multiplier=1.0, **HOW)
    with pytest.raises(ValueError, match="per_example_gaussian to be the outermost wrapper, but"):
        fgl.run(AROUND[name](inner), [rows()], num_rounds=1)


def test_what_examples_say_does_not_reach_a_message() -> None:
    plain = fgl.fedavg(model(), train=SGD)

    def looks(*given: Any) -> Any:
        message, state = plain.send(*given)
        return {**message, "model": {n: v + given[3].y.sum() for n, v in params(given)}}, state

    def params(given: Any) -> Any:
        return given[0].items()

    method = per_example_gaussian(replace(plain, send=looks), noise_multiplier=1.0, **HOW)
    with pytest.raises(ValueError, match="do not ask what a client's examples say, .* reads y"):
        fgl.run(method, [rows()], num_rounds=1)

    def tells(own: Any, context: Any, state: Any, graph: Any) -> Any:
        seen.append(dict(context["trained"]))
        return plain.send(own, context, state, graph)

    seen: list[Any] = []
    method = per_example_gaussian(replace(plain, send=tells), noise_multiplier=1.0, **HOW)
    fgl.run(method, [rows()], num_rounds=1)
    assert [list(each) for each in seen] == [["num_steps"]]


def ours(repeats: int, noise: float) -> torch.Tensor:
    """The parameters after four steps of this library, so many times."""
    method, own = private(noise, num_steps=4), rows()
    params, context = receive_as_a_run(method, {"model": method.initial()}, {}, own)
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


def test_a_graph_alone_has_the_classes_of_its_own_label() -> None:
    graphs, y = fgl.data.small_graphs(9)
    whole = fgl.Graph.join(graphs, y).replace(num_classes=5)
    for which in range(9):
        own = examples.alone(whole, torch.tensor(which))
        assert (own.num_graphs, own.num_classes) == (1, int(y[which]) + 1)

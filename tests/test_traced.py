"""Traced steps of a batch: the bits of ordinary ones, and everything that ends a trace."""

import itertools
import math
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import conformance
import numpy as np
import pytest
import torch
from federations import graphs, model
from torch import Tensor

import fgl
from fgl.federation.executors import loop
from fgl.federation.executors.batch import traced
from fgl.federation.executors.batch.holdings import Holdings
from fgl.sparse.recording import Recorder, in_one

Tracers = list[traced.Tracer]
ADAM = fgl.Training(partial(torch.optim.Adam, lr=0.01), num_steps=2)


@pytest.fixture
def tracers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracers]:
    """The tracers of all runs; a second step is recorded at once."""
    made: Tracers = []

    def tracer() -> traced.Tracer:
        made.append(traced.Tracer())
        return made[-1]

    monkeypatch.setattr(loop, "Tracer", tracer)
    monkeypatch.setattr(traced, "AFTER", 1)
    yield made


def tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    items = value.values() if hasattr(value, "values") and callable(value.values) else ()
    return [tensor for each in items for tensor in tensors(each)]


def ends(result: fgl.Result) -> tuple[list[Tensor], str]:
    states = (result.outbox, result.server_state, result.client_states)
    return [t for each in states for t in tensors(each)], repr([r.loss for r in result.history])


def run(method: Any, clients: Any, *, after: int = 1, rounds: int = 4, at_once: Any = "all") -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traced, "AFTER", after)
        return fgl.run(method, clients, num_rounds=rounds, clients_at_once=at_once, seed=1)


def same(one: Any, other: Any) -> bool:
    (some, losses), (others, other_losses) = ends(one), ends(other)
    pairs = zip(some, others, strict=True)
    equal = all(a.double().nan_to_num(7).equal(b.double().nan_to_num(7)) for a, b in pairs)
    return equal and losses == other_losses


def fedavg(loss: Callable[..., Tensor] | None = None, **how: Any) -> Any:
    torch.manual_seed(0)
    method = fgl.fedavg(model(fgl.nn.GCN, dropout=0.5), train=replace(ADAM, **how))
    return method if loss is None else replace(method, loss=loss)


TRAINED = [
    (name, task)
    for name, task in conformance.CASES
    if name == "fedavg" or task == conformance.ROWS[name].tasks[0]
]
# Rows whose steps are ordinary ones, with a word of the reason.
UNTRACED = dict.fromkeys(
    (
        *("fedper apart", "fedprox of fedper apart", "scaffold of fedper apart"),
        *("fedvgae", "fedvgae contrast", "fedvgae all", "fedprox of fedvgae"),
    ),
    "its loss calls",  # a number of a tensor would be frozen
)
QUICK = {("fedavg", "nodes"), ("fedavg", "gat"), ("scaffold", "nodes"), ("fgssl", "nodes")}


@pytest.mark.parametrize("at_once", ["all", 1])
@pytest.mark.parametrize(
    ("name", "task"),
    [
        pytest.param(name, task, marks=() if (name, task) in QUICK else pytest.mark.slow)
        for name, task in TRAINED
    ],
)
def test_a_row_has_ordinary_bits(name: str, task: str, at_once: Any, tracers: Tracers) -> None:
    method, made = conformance.case(name, task)
    rounds = 3 * method.rules.exchange
    try:
        plain = run(method, made.clients, after=10**9, rounds=rounds, at_once=at_once)
    except Exception as error:
        pytest.skip(f"no batch trains it: {error}")
    again = conformance.case(name, task)[0]
    found = run(again, made.clients, after=0, rounds=rounds, at_once=at_once)
    assert same(plain, found)
    why = tracers[-1].why
    if at_once == "all":
        assert UNTRACED[name] in why if name in UNTRACED else why == ""


def test_steps_are_checked_at_powers_of_two(
    tracers: Tracers, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    original = traced.Tracer._compared

    def counted(self: Any, trace: Any, *args: Any) -> Tensor:
        compared.append(trace.uses)
        return original(self, trace, *args)

    monkeypatch.setattr(traced.Tracer, "_compared", counted)
    for how in ({}, {"max_grad_norm": 0.01}, {"num_steps": 3}):
        compared.clear()
        found = run(fedavg(**how), graphs(), rounds=6)
        assert tracers[-1].why == ""
        steps = 6 * how.get("num_steps", 2) - 2  # the first is ordinary, the second is recorded
        assert compared == [n for n in range(1, steps + 1) if n.bit_count() == 1]
        assert tracers[-1].steps == steps - len(compared)
        assert same(found, run(fedavg(**how), graphs(), rounds=6, after=10**9))


def test_minibatches_windows_and_a_kept_optimiser_are_traced(tracers: Tracers) -> None:
    batches = partial(fgl.federation.node_minibatches, batch_size=2, num_epochs=2)
    task = conformance.case("fedavg", "windows")[1]
    windows = replace(task.fedavg.train, batches=None, num_steps=2)  # all of them in a step
    for method, clients in (
        (fedavg(batches=batches, num_steps=None), graphs()),
        (replace(task.fedavg, train=windows), task.clients),
        (fedavg(keep_optimizer=True), graphs()),
    ):
        found = run(method, clients)
        assert tracers[-1].why == "" and tracers[-1].steps > 0
        assert same(found, run(method, clients, after=10**9))


# Losses that a trace would get wrong, each made anew, with a word of the reason.


def counting() -> Callable[..., Tensor]:
    plain, count = fedavg().loss, [0]

    def loss(params: Any, graph: Any, context: Any) -> Tensor:
        count[0] += 1
        return plain(params, graph, context) * (1 + count[0] // 5)

    return loss


class Warmed:
    """A loss that counts in an attribute."""

    def __init__(self) -> None:
        self.plain, self.calls = fedavg().loss, 0

    def __call__(self, params: Any, graph: Any, context: Any) -> Tensor:
        self.calls += 1
        return self.plain(params, graph, context) * (2.0 if self.calls > 6 else 1.0)


def by_random() -> Callable[..., Tensor]:
    plain = fedavg().loss
    return lambda params, graph, context: plain(params, graph, context) * random.random()


def by_numpy() -> Callable[..., Tensor]:
    plain = fedavg().loss
    return lambda p, g, c: plain(p, g, c) * float(np.random.rand())


def by_iterator() -> Callable[..., Tensor]:
    plain, numbers = fedavg().loss, itertools.count(1)
    return lambda params, graph, context: plain(params, graph, context) / next(numbers)


def replacing() -> Callable[..., Tensor]:
    """It closes over a tensor that is another one in every step."""
    plain, scale = fedavg().loss, torch.ones(())

    def loss(params: Any, graph: Any, context: Any) -> Tensor:
        nonlocal scale
        scale = scale + 1
        return plain(params, graph, context) * scale

    return loss


def printing() -> Callable[..., Tensor]:
    plain = fedavg().loss

    def loss(params: Any, graph: Any, context: Any) -> Tensor:
        print("a step")
        return plain(params, graph, context)

    return loss


def holding_much() -> Callable[..., Tensor]:
    plain, table = fedavg().loss, [0.0] * 20_000
    return lambda params, graph, context: plain(params, graph, context) + table[0]


@dataclass(slots=True)
class Slots:
    calls: int = 0


def warming(holder: Any, read: Callable[[Any], Any], step: Callable[[Any], None]) -> Any:
    """A loss whose factor is kept where no dict shows it, and changes after some steps."""
    plain = fedavg().loss

    def loss(params: Any, graph: Any, context: Any) -> Tensor:
        step(holder)
        return plain(params, graph, context) * (2.0 if read(holder) > 6 else 1.0)

    return loss


def in_slots() -> Any:
    return warming(
        Slots(), lambda held: held.calls, lambda held: setattr(held, "calls", held.calls + 1)
    )


def in_array() -> Any:
    return warming(np.zeros(1), lambda held: held[0], lambda held: held.__iadd__(1))


def in_set() -> Any:
    return warming({0}, max, lambda holder: holder.add(holder.pop() + 1))


def in_environment() -> Callable[..., Tensor]:
    plain = fedavg().loss
    return lambda p, g, c: plain(p, g, c) * len(os.environ.get("NOTHING_OF_THIS_NAME", "1"))


def in_tensor() -> Callable[..., Tensor]:
    plain, scale = fedavg().loss, torch.ones(())

    def loss(params: Any, graph: Any, context: Any) -> Tensor:
        scale.data.mul_(1.5)
        return plain(params, graph, context) * scale.item()

    return loss


def in_data() -> Callable[..., Tensor]:
    plain, scale = fedavg().loss, torch.ones(2)

    def loss(params: Any, graph: Any, context: Any) -> Tensor:
        scale[:1].data.mul_(0.9)  # no version tells of it
        return plain(params, graph, context) * scale.sum()

    return loss


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "counts in slots": (in_slots, "holds a Slots"),
    "counts in an array": (in_array, "holds a ndarray"),
    "counts in a set": (in_set, "changes an object"),
    "reads the environment": (in_environment, "calls environ"),
    "reads a number of a tensor": (in_tensor, "calls item"),
    "changes the data of a tensor": (in_data, "changes a tensor"),
    "counts in a closure": (counting, "changes an object"),
    "counts in an attribute": (Warmed, "changes an object"),
    "draws with random": (by_random, "Python's or numpy's"),
    "draws with numpy": (by_numpy, "calls float"),
    "reads an iterator": (by_iterator, "holds a count"),
    "replaces a tensor": (replacing, "changes an object"), "prints": (printing, "calls print"),
    "holds much": (holding_much, "more than"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_loss_that_no_trace_can_repeat_is_taken_as_it_is(name: str, tracers: Tracers) -> None:
    make, word = REFUSED[name]
    found = []
    for after in (1, 10**9):
        random.seed(0)
        np.random.seed(0)
        found.append(run(fedavg(make()), graphs(), after=after, rounds=6))
    assert same(*found)
    assert tracers[0].steps == 0 and word in tracers[0].why
    told = [record.untraced for record in found[0].history]
    assert sum(word in each for each in told) == 1 and sum(map(bool, told)) == 1
    assert not any(record.untraced for record in found[1].history)


SCALE = torch.ones(())
FACTOR = 1.0


def by_globals(params: Any, graph: Any, context: Any) -> Tensor:
    return fedavg_loss(params, graph, context) * SCALE * FACTOR


fedavg_loss = fedavg().loss


@pytest.mark.parametrize("kind", ["tensor", "number", "in place", "flag of the model", "closure"])
def test_what_changes_from_round_to_round_is_recorded_anew(kind: str, tracers: Tracers) -> None:
    """Between two checks: the change comes after the fourth round, the next check is far away."""

    def played(after: int) -> Any:
        scale = torch.ones(())
        method = fedavg(by_globals if kind in ("tensor", "number") else None)
        plain = method.loss
        if kind in ("in place", "closure"):
            method = replace(method, loss=lambda p, g, c: plain(p, g, c) * scale)

        def change(record: Any, result: Any) -> None:
            nonlocal scale
            if record.round != 9:
                return
            if kind == "tensor":
                patch.setitem(globals(), "SCALE", torch.tensor(3.0))
            elif kind == "number":
                patch.setitem(globals(), "FACTOR", 3.0)
            elif kind == "in place":
                scale.mul_(3)
            elif kind == "closure":
                scale = torch.tensor(3.0)
            else:
                method.model.dropout = 0.0

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(traced, "AFTER", after)
            note = [change]
            return fgl.run(method, graphs(), num_rounds=12, clients_at_once="all", callbacks=note)

    found, want = played(1), played(10**9)
    assert tracers[0].steps > 0 and tracers[0].why == ""
    assert same(found, want)


def test_a_loss_that_changes_every_round_is_given_up(tracers: Tracers) -> None:
    numbers = {"round": 0.0}
    plain = fedavg().loss
    method = fedavg(lambda p, g, c: plain(p, g, c) * (1 + numbers["round"]))

    def change(record: Any, result: Any) -> None:
        numbers["round"] = float(record.round)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traced, "AFTER", 1)
        result = fgl.run(method, graphs(), callbacks=[change], num_rounds=12, clients_at_once="all")
    assert "too often" in tracers[0].why
    assert sum("too often" in record.untraced for record in result.history) == 1


def test_a_trace_of_other_numbers_ends(tracers: Tracers, monkeypatch: pytest.MonkeyPatch) -> None:
    original = traced.record

    def wrong(*args: Any) -> Any:
        trace = original(*args)
        call = trace.call
        trace.call = lambda *inputs: [each + 1e-7 for each in call(*inputs)]
        return trace

    monkeypatch.setattr(traced, "record", wrong)
    found = run(fedavg(), graphs())
    assert "other numbers" in tracers[0].why and tracers[0].steps == 0
    assert same(found, run(fedavg(), graphs(), after=10**9))


def test_an_error_of_a_repeated_step_is_that_of_the_ordinary_one(
    tracers: Tracers, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = traced.record

    def broken(*args: Any) -> Any:
        trace = original(*args)
        call = trace.call

        def fails(*inputs: Tensor) -> Any:
            if trace.uses == 3:
                raise IndexError("index out of range in self")
            return call(*inputs)

        trace.call = fails
        return trace

    monkeypatch.setattr(traced, "record", broken)
    found = run(fedavg(), graphs())
    assert "IndexError" in tracers[0].why
    assert same(found, run(fedavg(), graphs(), after=10**9))


def test_contexts_are_inputs(tracers: Tracers) -> None:
    """Tensors that the server sends anew in every round, shared or of each client."""
    for own in (False, True):

        def receive(message: Any, state: Any, graph: Any, own: bool = own) -> Any:
            pull = sum(value.sum() for value in message["model"].values())
            context = {"pull": pull + (graph.num_nodes if own else 0), "kind": "a"}
            return dict(message["model"]), context

        method = fedavg()
        plain = method.loss

        def loss(params: Any, graph: Any, context: Any, plain: Any = plain) -> Tensor:
            size = sum(value.square().sum() for value in params.values())
            value: Tensor = plain(params, graph, context) + 1e-4 * size * context["pull"]
            return value

        method = replace(method, receive=receive, loss=loss)
        found = run(method, graphs(), rounds=6)
        assert tracers[-1].why == "" and tracers[-1].steps > 3
        assert same(found, run(method, graphs(), rounds=6, after=10**9))


def test_gradients_that_share_memory_are_copied(tracers: Tracers) -> None:
    """The gradient of a product with a constant is the constant, which a clip would scale."""
    constant = torch.ones(())

    def loss(params: Any, graph: Any, context: Any) -> Tensor:
        total: Any = sum((value * constant).sum() for value in params.values())
        return total

    for how in ({"max_grad_norm": 0.1}, {}):
        method = fedavg(loss, **how)
        assert same(run(method, graphs()), run(method, graphs(), after=10**9))
    assert float(constant) == 1


def test_a_mask_that_does_not_fit_needs_another_trace() -> None:
    trace = traced.Trace.__new__(traced.Trace)
    trace.names, one, two = ["w"], torch.zeros(2, 3), torch.ones(2, 3)
    for masked, mask, fits in ((True, two, True), (True, two[:, :2], False), (False, two, False)):
        trace.form = traced.Form([], [], (not masked,))
        found = trace._with_mask([one, one, two], mask)
        assert ([found[0] is one, found[1] is mask] == [True, True]) if fits else found is None  # type: ignore[index]
    assert trace._with_mask([one], None) == [one]
    trace.form = traced.Form([], [], (False,))
    assert trace._with_mask([one, one], None) is None
    for own, other, same in ((0.0, -0.0, False), (math.nan, math.nan, True), (0.5, 0.5, True)):
        pair = torch.tensor([own], requires_grad=True), torch.tensor([other], requires_grad=True)
        assert traced.same_bits(*pair) is same and not traced.same_bits(pair[0], pair[1].double())
    assert (
        traced.same_bits(None, None)
        and not traced.same_bits(None, one)
        and not traced.same_bits(one, None)
    )
    assert not traced.same_bits(one, one.T) and traced.same_bits(one.bool(), one.bool())


def test_holdings_see_through_what_python_has() -> None:
    table, number = {"a": [1, {2: (3,)}]}, [0]

    def inner() -> Any:
        return table

    def named() -> Any: ...

    named.table = table  # type: ignore[attr-defined]
    roots: list[Callable[[], Any]] = [
        inner,
        named,
        partial(inner),
        partial(lambda function: function, inner),
        staticmethod(inner),
        type("Own", (), {"method": inner, "field": table}),  # type: ignore[list-item]
        type("Own", (), {"method": inner})().method,
        number.append,  # type: ignore[list-item]
    ]
    for root in roots:
        holdings = Holdings([root])
        assert holdings.unchanged() and not holdings.refused
        table["a"][1][2] = (len(number),)  # type: ignore[index]
        number.append(1)
        assert not holdings.unchanged()


def repeated(function: Callable[..., Any], *inputs: Tensor) -> Callable[..., list[Any]]:
    """What a recording of a function repeats."""
    with Recorder(inputs) as recorder:
        outputs = function(*inputs)
    return recorder.function(outputs)


def test_columns_are_read_by_index() -> None:
    x, columns = torch.arange(6.0).view(2, 3), torch.tensor([2, 0])
    assert repeated(lambda x: [x[:, columns]], x)(x + 1)[0].tolist() == [[3, 1], [6, 4]]


def test_an_operation_that_reads_numbers_is_recorded_as_one() -> None:
    @in_one
    def first_rows(x: Tensor, count: int) -> tuple[Tensor]:
        return (x[: int(x.sum()) + count] * 2,)

    call = repeated(lambda x: first_rows(x, 1), torch.tensor([1.0, 0.0, 0.0]))
    for x in (torch.tensor([0.0, 0.0, 0.0]), torch.tensor([1.0, 1.0, 0.0])):
        assert call(x)[0].equal(first_rows(x, 1)[0])


def test_a_recording_repeats_what_its_function_does() -> None:
    constant = torch.tensor([1.0, 2.0, 4.0])

    def in_place(x: Tensor) -> list[Any]:
        out = torch.zeros(3)
        out.add_(x)
        out[1:].mul_(constant[1:])
        x.sub_(1)
        return [out, x, None]

    def differentiated(x: Tensor) -> list[Any]:
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            largest, place = (x.exp() * constant).reshape(1, 3).max(dim=1)
            (grad,) = torch.autograd.grad(largest.sum(), [x])
        return [grad, place, *x.detach().split([1, 2])]

    def drawn(x: Tensor) -> list[Any]:
        number = torch.tensor(3.0)
        number.add_(1)
        return [torch.nn.functional.dropout(torch.cat([x, x]), 0.5) * number]

    for function in (in_place, differentiated, drawn):
        call = repeated(function, torch.tensor([0.0, 5.0, 0.0]))
        for values in ([3.0, 1.0, 0.0], [0.0, 0.0, 9.0]):
            found, want = torch.tensor(values), torch.tensor(values)
            for _ in range(2):
                torch.manual_seed(4)
                again = call(found)
                torch.manual_seed(4)
                pairs = zip(again, function(want), strict=True)
                assert all(a is b or a.equal(b) for a, b in pairs) and found.equal(want)
    assert constant.tolist() == [1.0, 2.0, 4.0]


def test_a_recording_repeats_each_view_once_and_no_view_that_is_not_read() -> None:
    def views(x: Tensor) -> list[Any]:
        turned = x.t().t().permute(0, 1).detach().view(2, 3)  # x again, four times
        x.view(6).unsqueeze(0)  # is not read
        first = turned.view(6)[:3]
        first.mul_(2)
        return [turned, x.reshape(6)[:3] + 1, torch.as_strided(x, (2, 3), (3, 1), 0)]

    def signs(x: Tensor) -> list[Any]:
        z = torch.view_as_complex(x.view(3, 2))
        return [z.conj(), z.conj().conj() * 2, z.conj().imag, z.imag]

    for function, count in ((views, 5), (signs, 7)):
        with Recorder([x := torch.arange(6.0).view(2, 3)]) as recorder:
            outputs = function(x)
        assert len(recorder.needed(outputs)) == count
        found, want = torch.ones(2, 3), torch.ones(2, 3)
        for one, other in zip(recorder.function(outputs)(found), function(want), strict=True):
            assert one is not None and one.resolve_conj().equal(other.resolve_conj())
        assert found.equal(want)


def test_a_recording_reads_no_number_and_no_size_from_a_tensor() -> None:
    x, mask = torch.tensor([1.0, -1.0]), torch.tensor([True, False])
    for read in (
        lambda x: [x * x.sum().item()],
        lambda x: [x if x.equal(x) else x + 1],
        lambda x: [x + len(x[x > 0])],
        lambda x: [x + len(x.nonzero())],
        lambda x: [x + len(x.masked_select(x > 0))],
        lambda x: [x * int(torch.zeros(2).copy_(x).sum())],
        lambda x: [x * int((room := torch.zeros(2), room[1:].copy_(x[1:]))[0].sum())],
        lambda x: [x * int(torch.rand(2).sum())],
    ):
        with pytest.raises(RuntimeError, match="from a tensor"):
            repeated(read, x)
    counted = repeated(lambda x: [x[mask] * int(mask.sum())], x)
    assert counted(x + 1)[0].tolist() == [2.0]


def test_a_view_that_changes_its_form_leaves_equal_views_alone() -> None:
    def mixed(x: Tensor) -> Tensor:
        y = x * 1
        first, second = y[:, :2], y[:, :2]
        return first.t_() @ second

    with Recorder([x := torch.arange(4.0).view(2, 2)]) as recorder:
        out = mixed(x)
    torch.testing.assert_close(recorder.function([out])(x + 1)[0], (x + 1).T @ (x + 1))

"""Traced steps: a cohort's losses and gradients as a flat list of operations.

A `Recorder` records the operations of one step: the operations that `vmap` and autograd call.
Repeating this list of operations gives bit-identical results without the Python overhead of `vmap`
and autograd. Each list of operations is valid for one cohort. The operations read the parameters,
buffers, contexts and masks. On a GPU, a CUDA graph replays the list.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from ....graph import Graph
from ....predict import stand_in
from ....sparse.pattern import scalar
from ....sparse.recording import Recorder
from ...method.message import Params
from ...training.train import check_has_gradient, check_reached, random_states, set_random_states
from .captured import Call, captured
from .cohort import Cohort
from .holdings import Holdings
from .rows import Rows, compacted
from .steps import View

AFTER = 32  # ordinary steps of a cohort or a client; recording one takes the time of about three
MOST = 4  # traces of a cohort; a loss that needs more changes too often


class Step(NamedTuple):
    """A local step: its view, its parameters and buffers, and its trained tensors by name."""

    view: View
    stacks: Params
    leaves: Mapping[str, Tensor]

    @property
    def device(self) -> torch.device:
        """The device of the tensors that the step trains."""
        return next(iter(self.leaves.values())).device


class Tracer:
    """The traced steps of a run, and their comparison with ordinary steps.

    A cohort first takes 32 ordinary steps (the constant `AFTER`). The operations of the next step
    are recorded. Later steps repeat the recorded operations. When the recorded step is used for the
    1st, 2nd, 4th, 8th time and so on, an ordinary step is also taken, from the same random state.
    The recorded step and the ordinary step must have bit-identical losses, gradients, buffers and
    random states. If these results differ, or if a traced step raises an error, the run uses no
    more traced steps. The reason is stored in `why`.

    Example:
        >>> tracer = Tracer()
        >>> tracer.why
        ''
    """

    def __init__(self) -> None:
        self.why = ""
        self.steps = 0  # that were taken from a trace
        self._ordinary: WeakKeyDictionary[Cohort | Graph, int] = WeakKeyDictionary()
        self._traces: WeakKeyDictionary[Cohort | Graph, list[Trace]] = WeakKeyDictionary()

    def differentiate(self, step: Step) -> Tensor:
        """Compute the clients' losses ``[K]``, and store the leaves' gradients."""
        if self.why or torch.is_autocast_enabled(step.device.type):
            return differentiated(step)
        graphs = step.view.cohort
        traces = self._traces.setdefault(graphs, [])
        for trace in traces:
            inputs = trace.inputs(step)
            if inputs is not None:
                return self._repeated(trace, inputs, step)
        count = self._ordinary[graphs] = self._ordinary.get(graphs, 0) + 1
        if count <= AFTER:
            return differentiated(step)
        if len(traces) >= MOST:
            self.why = "its loss or its contexts change too often"
            return differentiated(step)
        return self._recorded(traces, step)

    def compact(self, cohort: Cohort) -> CompactTrace | None:
        """A cohort's newest `CompactTrace`, or None.

        The result is None until the cohort's newest `Trace` was compared with an ordinary step.
        This trace trains all rows, and its `CompactTrace` trains only the touched rows.
        """
        traces = self._traces.get(cohort, ())
        return traces[-1].compact if traces and traces[-1].uses and not self.why else None

    def no_compact(self, cohort: Cohort) -> None:
        """Stop the use of compact stacks in the newest trace of a cohort."""
        self._traces[cohort][-1].compact = None

    def rest(self, graphs: Cohort | Graph) -> None:
        """Release the tensors of the last step when a cohort or a client has finished its round."""
        for trace in self._traces.get(graphs, ()):
            trace.last = None
            if trace.compact is not None:
                trace.compact.last = None

    def _repeated(self, trace: Trace, inputs: Sequence[Tensor], step: Step) -> Tensor:
        trace.uses += 1
        if trace.uses.bit_count() == 1:
            return self._compared(trace, inputs, step)
        states = random_states(step.device)
        try:
            losses = trace.run(inputs, step.leaves)
        except Exception as error:  # the ordinary step says what is wrong with the inputs
            self.why = f"a traced step raised {type(error).__name__}: {_first_line(error)}"
            set_random_states(states, step.device)
            return differentiated(step)
        self.steps += 1
        return losses

    def _recorded(self, traces: list[Trace], step: Step) -> Tensor:
        """Take an ordinary step.

        If the step changed nothing except tensors, record its operations.
        """
        method = step.view.method
        holdings = Holdings([method.loss, stand_in(method.model)])
        if holdings.refused:
            self.why = holdings.refused
            return differentiated(step)
        states, before = random_states(step.device), _copies(step.stacks)
        with _still(self, holdings):
            losses = differentiated(step)
        if self.why:
            return losses
        try:
            with _random_states(states, step.device), _still(self, holdings):
                trace = record(step.view, before, list(step.leaves), holdings)
        except Exception as error:
            self.why = f"its loss cannot be traced: {_first_line(error)}"
        if not self.why:
            traces.append(trace)
        return losses

    def _compared(self, trace: Trace, inputs: Sequence[Tensor], step: Step) -> Tensor:
        """Take an ordinary step and the traced step, and compare their results."""
        stacks, leaves = step.stacks, step.leaves
        states, before = random_states(step.device), _copies(stacks)
        with _still(self, trace.holdings):
            losses = differentiated(step)
        after = random_states(step.device)
        mine = {id(stacks[name]): copied for name, copied in before.items()}
        copied = [mine.get(id(each), each) for each in inputs]
        others = {name: before[name] for name in leaves}
        try:
            with _random_states(states, step.device):
                again = trace.run(copied, others)
                same = all(map(torch.equal, random_states(step.device), after))
        except Exception as error:
            self.why = f"a traced step raised {type(error).__name__}: {_first_line(error)}"
            return losses
        pairs = [(losses, again), *((leaves[n].grad, others[n].grad) for n in leaves)]
        pairs += [(stacks[name], value) for name, value in before.items()]
        if not same or not all(same_bits(one, other) for one, other in pairs):
            self.why = self.why or "its loss gave other numbers than its trace"
        trace.learn_aliases(copied, others)
        return losses


@dataclass(eq=False)
class Trace:
    """The recorded operations of a step.

    Args:
        run: the operations, ``(*inputs) -> losses, *gradients``.
        names: names of the stacks that are inputs, the leaves first.
        leaves: names of the leaves.
        keys: keys of the context entries that the loss reads, if clients have different contexts.
        form: the conditions under which the operations are valid.
        holdings: the Python objects that must not have changed.
        pinned: inputs that the loss can also read without its arguments, for example from a
            closure. Each entry of `pinned` is a pair: the input's position, and the input. These
            inputs must stay the same objects.
    """

    call: Call
    names: Sequence[str]
    leaves: Sequence[str]
    keys: Sequence[str]
    form: Form
    holdings: Holdings
    pinned: Sequence[tuple[int, Tensor]]
    uses: int = 0
    compact: CompactTrace | None = None
    last: tuple[Any, Params, list[Tensor]] | None = None
    _shared: set[int] = field(default_factory=set)  # gradients that are views of something else

    def inputs(self, step: Step) -> list[Tensor] | None:
        """The inputs of the operations at this step, or None if the trace does not fit the step."""
        view, stacks = step.view, step.stacks
        if not self.holdings.unchanged():
            return None
        if self.last is not None and self.last[0] is view.contexts and self.last[1] is stacks:
            return self._with_mask(self.last[2], view.mask)  # all other tensors are the same
        if list(step.leaves) != self.leaves:
            return None
        inputs, form = _inputs(view, stacks, self.names, self.keys)
        same = all(inputs[place] is tensor for place, tensor in self.pinned)
        if not same or not self.form.fits(form):
            return None
        self.last = view.contexts, stacks, inputs
        return inputs

    def _with_mask(self, inputs: list[Tensor], mask: Tensor | None) -> list[Tensor] | None:
        """The previous step's inputs, in which this step's mask replaces the previous mask."""
        place, unmasked = len(self.names), self.form.settings[0]
        if mask is None:
            return inputs if unmasked else None
        if unmasked or inputs[place].shape != mask.shape:
            return None
        return [*inputs[:place], mask, *inputs[place + 1 :]]

    def run(self, inputs: Sequence[Tensor], leaves: Mapping[str, Tensor]) -> Tensor:
        """Repeat the operations and store the gradients of the leaves."""
        with torch.no_grad():
            losses, *grads = self.call(*inputs)
            for number, (leaf, grad) in enumerate(zip(leaves.values(), grads, strict=True)):
                if grad is not None and (number in self._shared or grad.stride() != leaf.stride()):
                    grad = torch.empty_like(leaf).copy_(grad)
                leaf.grad = grad
        assert losses is not None
        return losses

    def learn_aliases(self, inputs: Sequence[Tensor], leaves: Mapping[str, Tensor]) -> None:
        """Find each gradient that shares memory with an input or with an earlier gradient.

        `run` copies each gradient that shares memory.
        """
        places = {each.untyped_storage().data_ptr() for each in inputs}
        for number, leaf in enumerate(leaves.values()):
            if leaf.grad is None:
                continue
            place = leaf.grad.untyped_storage().data_ptr()
            if place in places:
                self._shared.add(number)
            places.add(place)


class CompactTrace(Trace):
    """A trace that trains only the touched rows of some stacks, see `compacted`.

    In a round, a cohort uses this trace either in all steps or in no step. Of the rounds that use
    the trace, the 1st, 4th, 16th, 64th and so on also take ordinary steps. The trace and the
    ordinary steps must have bit-identical results.

    Args:
        trace: the ordinary trace of the same step, which trains all rows of these stacks.
        call: the operations, which compute with the touched rows only.
        form: the conditions under which `call` is valid.
        rows: dict from a stack's name to the stack's touched rows.
    """

    def __init__(self, trace: Trace, call: Call, form: Form, rows: Mapping[str, Rows]) -> None:
        each = trace.names, trace.leaves, trace.keys, form, trace.holdings, trace.pinned
        super().__init__(call, *each)
        self.rows = rows
        self._shared = trace._shared

    def is_due(self) -> bool:
        """Count a round, and return whether this round also needs ordinary steps."""
        self.uses += 1
        return self.uses.bit_count() == 1 and self.uses.bit_length() % 2 == 1

    def differentiate(self, step: Step) -> Tensor:
        """Compute the clients' losses, and store the leaves' gradients.

        Raises:
            Refused: if the trace does not fit the step.
        """
        inputs = self.inputs(step)
        if inputs is None or torch.is_autocast_enabled(step.device.type):
            raise Refused
        try:
            return self.run(inputs, step.leaves)
        except Exception as error:  # the ordinary step says what is wrong with the inputs
            raise Refused from error


class Refused(Exception):
    """Error for a round that cannot be trained on compact stacks."""


@dataclass(frozen=True)
class Form:
    """The conditions of a trace: the forms of its tensors, and all inputs that are not tensors."""

    tensors: Sequence[Any]
    fixed: Sequence[Any]
    settings: Any

    def fits(self, other: Form) -> bool:
        """Whether operations recorded for this form are also valid for the form `other`."""
        if len(self.fixed) != len(other.fixed):
            return False
        same = all(map(_same_object, self.fixed, other.fixed))
        return same and (self.tensors, self.settings) == (other.tensors, other.settings)


def _same_object(one: Any, other: Any) -> bool:
    plain = isinstance(one, (bool, int, float, str)) and type(one) is type(other)
    return one is other or (plain and one == other) or (isinstance(one, list) and one == other)


def differentiated(step: Step) -> Tensor:
    """Compute the clients' losses ``[K]``, and the gradients of the total loss at the leaves."""
    losses = step.view.losses(step.stacks)
    check_has_gradient(losses)
    losses.backward(scalar(1.0, losses.dtype, losses.device).expand_as(losses))
    check_reached(step.leaves, losses)
    return losses.detach()


def record(view: View, stacks: Params, leaves: Sequence[str], holdings: Holdings) -> Trace:
    """Record a step that has been taken before.

    The stacks may be changed in place.

    Args:
        view: the step.
        stacks: parameters and buffers ``[K, ...]``.
        leaves: names of the trained stacks.
        holdings: the Python objects that must not change.

    Raises:
        RuntimeError: if the loss cannot be recorded because it reads a number from a tensor.
    """
    names = [*leaves, *(name for name in stacks if name not in set(leaves))]
    keys = view.read()
    inputs, form = _inputs(view, stacks, names, keys)
    pinned = [(place, each) for place, each in enumerate(inputs) if holdings.holds(each)]
    view = view.renewed()
    inputs, _ = _inputs(view, stacks, names, keys)

    def step(*tensors: Tensor) -> list[Tensor | None]:
        own = {name: t.detach() for name, t in zip(names, tensors, strict=False)}
        trained = [own[name].requires_grad_() for name in leaves]
        with torch.enable_grad():
            losses = view.losses(own)
            check_has_gradient(losses)
            ones = scalar(1.0, losses.dtype, losses.device).expand_as(losses)
            grads = torch.autograd.grad(losses, trained, ones, allow_unused=True)
        return [losses.detach(), *grads]

    with Recorder(inputs) as recorder:
        outputs = step(*inputs)
    call = _captured(recorder, recorder.function(outputs), inputs)
    trace = Trace(call, names, leaves, keys, form, holdings, pinned)
    if isinstance(view.cohort, Cohort):
        trace.compact = _compact(recorder, outputs, inputs, trace)
    return trace


def _captured(recorder: Recorder, call: Call, inputs: Sequence[Tensor]) -> Call:
    if recorder.varies_on_cpu:  # a graph would repeat what the processor drew
        return call
    with torch.no_grad():
        return captured(call, inputs)


def _compact(
    recorder: Recorder, outputs: Sequence[Tensor | None], inputs: Sequence[Tensor], trace: Trace
) -> CompactTrace | None:
    """The trace for compact stacks; None if no stack can be made compact."""
    step: Any = recorder.needed(outputs), [*outputs]
    inputs, forms, rows = [*inputs], [*trace.form.tensors], {}
    for place, name in enumerate(trace.leaves):
        new = compacted(recorder, step, inputs[place], place + 1)
        if new is not None:
            step, rows[name] = new
            compact = rows[name].taken(inputs[place].unbind())
            inputs[place] = compact
            forms[place] = compact.shape, compact.stride(), *forms[place][2:]
    if not rows:
        return None
    calls, results = step
    call = _captured(recorder, recorder.function(results, calls), inputs)
    return CompactTrace(trace, call, replace(trace.form, tensors=forms), rows)


def _inputs(
    view: View, stacks: Params, names: Sequence[str], keys: Sequence[str]
) -> tuple[list[Tensor], Form]:
    """All tensors that change between steps, and the form of these tensors."""
    contexts, fixed = view.context_tensors(keys)
    masks = [] if view.mask is None else [view.mask]
    inputs = [*(stacks[name] for name in names), *masks, *contexts]
    first = {id(each): place for place, each in reversed([*enumerate(inputs)])}
    forms = [(t.shape, t.stride(), t.dtype, first[id(t)]) for t in inputs]
    settings = (
        view.mask is None,
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_inference_mode_enabled(),
    )
    return inputs, Form(forms, fixed, settings)


def _copies(stacks: Params) -> Params:
    return {name: stack.detach().clone() for name, stack in stacks.items()}


@contextmanager
def _random_states(states: Sequence[Tensor], device: torch.device) -> Iterator[None]:
    """A context in which torch has the given random states.

    Torch's current random states are restored afterwards.
    """
    present = random_states(device)
    set_random_states(states, device)
    try:
        yield
    finally:
        set_random_states(present, device)


@contextmanager
def _still(tracer: Tracer, holdings: Holdings) -> Iterator[None]:
    """A context that ends tracing if a Python object or a random state outside torch changes."""
    before = _states()
    yield
    if _states() != before:
        tracer.why = "its loss draws with Python's or numpy's generator"
    elif not holdings.unchanged():
        tracer.why = "its loss changes an object of Python in a step"


def _states() -> tuple[Any, ...]:
    """The states of Python's and NumPy's global generators."""
    name, key, *rest = np.random.get_state()
    return random.getstate(), name, np.asarray(key).tobytes(), *rest


def same_bits(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    one, other = one.detach().contiguous(), other.detach().contiguous()
    same_form = one.shape == other.shape and one.dtype == other.dtype
    words = torch.int32 if one.element_size() == 4 else torch.uint8  # a quarter of the time
    return same_form and one.flatten().view(words).equal(other.flatten().view(words))


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).split("\n")[0]

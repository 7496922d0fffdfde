"""Touched rows: the only rows of a parameter that a step uses, and so the only rows to train.

The parameter of a first layer on sparse features has a row for each feature. The data of a small
client contain only a few of these features. The recorded operations of a step show whether the
parameter is used only in products with sparse features. In that case the rows of absent features do
not influence the client's loss, and the gradient of these rows is 0.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, optim

from ....sparse.recording import ATEN, Call, Name, Recorder, memory
from ...method.method import Training

BAGS = (ATEN._embedding_bag.default, ATEN._embedding_bag_forward_only.default)
STILL = (optim.SGD, optim.Adam, optim.AdamW)  # without decay, a gradient of 0 changes nothing
LINE = 64  # bytes of a cache line: inside of whole lines, an optimiser rounds every entry alike
MOST = 3 / 4  # share of the rows above which copies cost what the steps save

Step = tuple[list[Call], list[Tensor | Name | None]]  # operations and their outputs


class Rows(NamedTuple):
    """The touched rows of a stack ``[K, rows, H]``.

    Args:
        touched: the rows' positions in the flattened stack, sorted, int64 ``[T]``.
        bounds: for each client the position in `touched` at which the client's rows begin; the last
            entry is T.
    """

    touched: Tensor
    bounds: Sequence[int]

    def of(self, client: int) -> slice:
        """The rows of a compact stack ``[T, H]`` that belong to a client."""
        return slice(self.bounds[client], self.bounds[client + 1])

    def taken(self, tensors: Sequence[Tensor]) -> Tensor:
        """The touched rows ``[T, H]`` of the clients' tensors ``[rows, H]``."""
        own = self.touched % len(tensors[0])
        if all(tensor is tensors[0] for tensor in tensors):
            return tensors[0].detach().contiguous().index_select(0, own)
        parts = [tensor.detach()[own[self.of(k)]] for k, tensor in enumerate(tensors)]
        return torch.cat(parts)

    def put(self, stack: Tensor, compact: Tensor) -> Tensor:
        """Replace the touched rows of a stack ``[K, rows, H]`` in place, and return the stack."""
        stack.flatten(0, 1).index_copy_(0, self.touched, compact)
        return stack


def stands_still(how: Training, optimizer: optim.Optimizer) -> bool:
    """Whether training leaves a parameter's row unchanged if the row's gradient is 0 in every step.

    The optimiser must be new, and must update each entry from this entry's value and gradient
    alone.
    """
    hooks = (how.max_grad_norm, how.adjust, how.settle)
    if how.keep_optimizer or any(hook is not None for hook in hooks):
        return False
    return type(optimizer) in STILL and all(
        group["fused"] and not group["weight_decay"] and not group["maximize"]
        and group.get("eps", 1) > 0  # 0 / 0
        for group in optimizer.param_groups
    )  # fmt: skip


def compacted(
    recorder: Recorder, step: Step, stack: Tensor, place: int
) -> tuple[Step, Rows] | None:
    """Rewrite a step so that it reads a compact stack ``[T, H]`` instead of ``stack [K, rows, H]``.

    Each remaining operation computes the same numbers in the same order.

    Args:
        recorder: the recording of the step.
        step: operations and their outputs.
        stack: an input of the step.
        place: ``outputs[place]`` is the loss's gradient with respect to `stack`.

    Returns:
        The rewritten step and the touched rows. The result is None if most rows are touched, or if
        an operation reads the stack's gradient. The result is also None if the stack is read by an
        operation other than a sparse product with constant indices.
    """
    calls, outputs = step
    gradient = outputs[place]
    if not isinstance(gradient, Tensor) or not _is_stack(stack) or not _is_stack(gradient):
        return None
    products = _products(recorder, calls, stack)
    sums = _sums(recorder, calls, gradient)
    read = [recorder.name(each) for each in outputs]
    if products is None or sums is None or not products.names.isdisjoint(read):
        return None
    if sum(name in sums.names for name in read) != 1:
        return None
    rows = _touched(calls, products.bags, sums.bags, stack)
    if len(rows.touched) > MOST * stack.shape[0] * stack.shape[1]:
        return None
    new, sources = _renumbered(recorder, calls, (products, sums), rows, recorder.name(stack))
    last = recorder.name(gradient)
    outputs = [*outputs[:place], Name(sources.get(last, last)), *outputs[place + 1 :]]
    return (new, outputs), rows


class _Uses(NamedTuple):
    """Names of a tensor, its views and its summands, and indices of the operations on them."""

    names: set[str]
    bags: set[int]
    views: set[int]
    added: set[int]


def _renumbered(
    recorder: Recorder, calls: Sequence[Call], uses: tuple[_Uses, _Uses], rows: Rows, stack: str
) -> tuple[list[Call], dict[str, str]]:
    """Rewrite operations so that they compute with touched rows only, and remove views.

    The second result is a dict with an entry for each removed view of the gradient: the view's
    name, and the name of the tensor that is viewed.

    Args:
        recorder, calls: the recording and its operations.
        uses: the operations on the stack, and the operations that compute the stack's gradient.
        rows: the touched rows.
        stack: the stack's name.
    """
    products, sums = uses
    new: list[Call] = []
    sources: dict[str, str] = {}
    for number, call in enumerate(calls):
        args = list(call.args)
        if number in products.views:
            continue
        if number in sums.views:
            sources[call.results[0]] = sources.get(call.reads[0], call.reads[0])
            continue
        if number in products.bags:
            args[:2] = Name(stack), torch.searchsorted(rows.touched, args[1])
        if number in sums.bags:
            args[2] = torch.cat([args[2][rows.touched], args[2][-1:]])
        if number in sums.added:
            args = [Name(sources.get(name, name)) for name in call.reads]
        changed = number in products.bags | sums.bags | sums.added
        results = call.out, call.results
        new.append(
            recorder.call_of(call.function, args, call.kwargs, *results) if changed else call
        )
    return new, sources


def _products(recorder: Recorder, calls: Sequence[Call], stack: Tensor) -> _Uses | None:
    """Views of a stack, and sparse products with the stack.

    The result is None if there are no products, or if other operations read the stack.
    """
    uses = _Uses({recorder.name(stack)}, set(), set(), set())
    for number, call in enumerate(calls):
        count = sum(name in uses.names for name in call.reads)
        if not count:
            continue
        if _is_view(call):
            uses.names.update(call.results)
            uses.views.add(number)
        elif count == 1 and _is_bag(recorder, call) and recorder.name(call.args[0]) in uses.names:
            if call.args[0].data_ptr() != stack.data_ptr() or not _is_flat(call.args[0], stack):
                return None
            uses.bags.add(number)
        else:
            return None
    return uses if uses.bags else None


def _sums(recorder: Recorder, calls: Sequence[Call], gradient: Tensor) -> _Uses | None:
    """Operations that sum sparse products to the gradient of a stack.

    The result is None if there are no products, or if other operations read a product or a sum.
    """
    uses = _Uses({recorder.name(gradient)}, set(), set(), set())
    for number, call in reversed([*enumerate(calls)]):
        if uses.names.isdisjoint(call.results):
            continue
        if _is_bag(recorder, call) and _is_flat(call.out[0], gradient):
            uses.names.update(call.results)
            uses.bags.add(number)
        elif _is_view(call):
            uses.names.update(call.reads)
            uses.views.add(number)
        elif call.function is ATEN.add.Tensor and len(call.reads) == len(call.args) == 2:
            if any(each.stride() != call.out.stride() for each in call.args):
                return None
            uses.names.update(call.reads)
            uses.added.add(number)
        else:
            return None
    inside = uses.views | uses.added
    for number, call in enumerate(calls):
        if number not in inside and not uses.names.isdisjoint(call.reads):
            return None
    return uses if uses.bags else None


def _touched(calls: Sequence[Call], products: set[int], sums: set[int], stack: Tensor) -> Rows:
    read = [calls[number].args[1] for number in products]
    read += [calls[number].args[2].diff().nonzero().squeeze(1) for number in sums]
    index = torch.cat(read).unique()
    starts = torch.arange(len(stack) + 1, device=index.device) * stack.shape[1]
    return Rows(index, torch.searchsorted(index, starts).tolist())


def _is_stack(tensor: Tensor) -> bool:
    whole = tensor.dim() == 3 and tensor.is_contiguous() and tensor.numel() > 0
    return whole and tensor.shape[2] * tensor.element_size() % LINE == 0


def _is_flat(matrix: Tensor, stack: Tensor) -> bool:
    """Whether a matrix consists of the rows of a stack, in the stack's order."""
    return matrix.shape == stack.flatten(0, 1).shape and matrix.is_contiguous()


def _is_bag(recorder: Recorder, call: Call) -> bool:
    """Whether an operation is the sparse product from `kernels.py` with a constant pattern.

    A pattern is constant if its indices and offsets are neither inputs nor results of operations.
    """
    if call.function not in BAGS or len(call.args) != 8 or call.kwargs:
        return False
    _, col, crow, by_frequency, mode, sparse, _, with_last = call.args
    constant = not recorder.name(col) and not recorder.name(crow)
    return constant and not by_frequency and mode == 0 and not sparse and with_last


def _is_view(call: Call) -> bool:
    """Whether an operation permutes or merges dimensions of a tensor without a copy."""
    if len(call.results) != 1 or len(call.reads) != 1 or call.function is ATEN.as_strided.default:
        return False
    viewed: Any = call.args[0]
    if not isinstance(viewed, Tensor) or not isinstance(call.out, Tensor):
        return False
    return viewed.numel() == call.out.numel() and memory(viewed) == memory(call.out) != 0

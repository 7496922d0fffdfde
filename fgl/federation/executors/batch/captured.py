"""CUDA graphs: recorded operations that a GPU repeats with a single launch."""

import warnings
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

Call = Callable[..., Sequence[Tensor | None]]


def captured(call: Call, inputs: Sequence[Tensor]) -> Call:
    """Capture `call` as a CUDA graph and return a function that replays the graph.

    The returned function gives the same results as `call`, as new tensors. The CUDA graph reads
    copies of the inputs. If `call` changes an input in place, the returned function changes this
    input in place too.

    Args:
        call: operations without gradients. The sequence of operations must depend only on the
            shapes, strides and dtypes of the inputs, and not on the values in the inputs.
        inputs: inputs of `call`; not changed.

    Returns:
        The function that replays the graph. The function `call` itself is returned if an input is
        not on a GPU, if an input has overlapping elements, or if an operation waits for the GPU.

    Example:
        >>> def double(x):
        ...     return [x * 2]
        >>> captured(double, [torch.ones(2)]) is double
        True
    """
    if not _captures(inputs):
        return call
    copies = [torch.empty_like(each).copy_(each) for each in inputs]
    device = copies[0].device
    state, versions = torch.cuda.get_rng_state(device), [own._version for own in copies]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device):
        side, main = _side(device), torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            call(*copies)  # libraries reserve their memory
            waits = _waits(call, copies)
        main.wait_stream(side)
        torch.cuda.set_rng_state(state, device)
        if waits:  # a failed capture would leave torch's generator and stream unusable
            return call
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            outputs = call(*copies)
    changed = [place for place, own in enumerate(copies) if own._version != versions[place]]

    # The graph reads the memory of tensors that only `call` may hold.
    def replay(*inputs: Tensor, call: Call = call) -> list[Tensor | None]:
        torch._foreach_copy_(copies, list(inputs))
        graph.replay()
        for place in changed:
            inputs[place].copy_(copies[place])
        return [None if each is None else each.clone() for each in outputs]

    return replay


def _captures(inputs: Sequence[Tensor]) -> bool:
    """Whether a CUDA graph can read the inputs, and whether half of the GPU's memory is free."""
    if not inputs or not all(each.is_cuda for each in inputs):
        return False  # a graph would keep a number that it reads from the processor's memory
    if any(torch.empty_like(each).stride() != each.stride() for each in inputs):
        return False  # elements overlap
    free, total = torch.cuda.mem_get_info(inputs[0].device)
    return bool(free >= total / 2)  # each graph keeps memory of its own


@cache
def _side(device: torch.device) -> torch.cuda.Stream:
    """Stream for all captures on a GPU; it is reused, since every stream has a large workspace."""
    return torch.cuda.Stream(device)


def _waits(call: Call, inputs: Sequence[Tensor]) -> bool:
    """Whether the CPU waits for the operation's result; a CUDA graph cannot contain such a wait."""
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode")
        torch.cuda.set_sync_debug_mode("error")
    try:
        call(*inputs)
    except RuntimeError:
        return True
    finally:
        torch.cuda.set_sync_debug_mode(mode)
    return False

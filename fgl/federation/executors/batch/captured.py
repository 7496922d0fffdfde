"""Recorded operations as a CUDA graph, which a GPU repeats with a single launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Call = Callable[..., Sequence[Tensor | None]]
WARM = 2  # calls before a capture, in which libraries reserve their memory


def captured(call: Call, inputs: Sequence[Tensor]) -> Call:
    """Capture `call` as a CUDA graph and return a function that replays the graph.

    The function returns the same results as `call`. The graph reads copies of its inputs. Results
    are new tensors. If `call` changes an input in place, the function changes the input too.

    Args:
        call: operations without gradients. Inputs of the same shapes, strides and dtypes always
            lead to the same operations.
        inputs: inputs of `call`; not changed.

    Returns:
        The function; or `call` itself if an input is not on a GPU or has overlapping elements.

    Raises:
        RuntimeError: if the operations wait for the GPU or copy from the processor's memory.

    Example:
        >>> def double(x):
        ...     return [x * 2]
        >>> captured(double, [torch.ones(2)]) is double
        True
    """
    if not inputs or not all(each.is_cuda for each in inputs):
        return call  # a graph would keep a number that it reads from the processor's memory
    free, total = torch.cuda.mem_get_info(inputs[0].device)
    if free < total / 2:  # each graph keeps memory of its own
        return call
    copies = [torch.empty_like(each).copy_(each) for each in inputs]
    if any(own.stride() != each.stride() for own, each in zip(copies, inputs, strict=True)):
        return call
    device = copies[0].device
    state, versions = torch.cuda.get_rng_state(device), [own._version for own in copies]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device):
        side, main = torch.cuda.Stream(), torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            for _ in range(WARM):
                call(*copies)
        main.wait_stream(side)
        torch.cuda.set_rng_state(state, device)
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            outputs = call(*copies)
    changed = [place for place, own in enumerate(copies) if own._version != versions[place]]

    def replay(*inputs: Tensor) -> list[Tensor | None]:
        torch._foreach_copy_(copies, list(inputs))
        graph.replay()
        for place in changed:
            inputs[place].copy_(copies[place])
        return [None if each is None else each.clone() for each in outputs]

    return replay

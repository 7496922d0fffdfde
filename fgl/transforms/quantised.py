"""Quantised uploads: clients round each entry of a change at random to a few bits."""

from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor

from ..checks import Bound, Count, check_choice, reject_if
from ..compress import BITS, dequantise, quantise
from ..federation import Method, layer
from .differences import Code, check_codable, coded

Bits = Annotated[int, Bound(check_choice, choices=BITS)]


@layer(sealed=("receive", "send", "accept", "aggregate"))
def quantised(
    method: Method, *, bits: Bits = 8, bucket: Count = 512, parts: Sequence[str] = ("model",)
) -> Method:
    """Make clients send their models' changes in a few bits per entry.

    Clients send ``Q(model - sent)`` (see `fgl.compress.quantise`). Q is unbiased, so the errors of
    many clients tend to cancel out. For each client, the server adds the received change to the
    model that the client got. An upload has ``bits + 32 / bucket`` bits per entry instead of 32.
    The wrapped method's `accept` checks the decoded change of the model instead of the model. The
    method may already be wrapped in `local_gaussian`, since a noisy upload reveals no more after
    quantisation.

    Args:
        method: the method. The method's uploads must contain a ``"model"``, as in FedAvg.
        bits: number of bits per entry: 2, 4 or 8.
        bucket: number of consecutive entries of a tensor that share one scale; a scale takes 32
            bits.
        parts: keys of the upload's entries that are quantised. For SCAFFOLD, add ``"shift"``.

    Returns:
        The method. Only `rounded_downloads` may wrap this method.

    Raises:
        ValueError: if a number is out of range, or if the method needs exact uploads, as a clipped
            method or a secure sum does. The method's functions raise a ValueError if an entry in
            `parts` contains a tensor with a name that the model lacks.

    Example:
        >>> task = fgl.tasks.Nodes(clients=2).load(seed=0)
        >>> result = fgl.run(quantised(task.fedavg, bits=4), task, num_rounds=1)
        >>> round(result.history[0].bytes_down / result.history[0].bytes_up, 1)
        7.9

    Source: Alistarh et al. 2017, https://arxiv.org/abs/1610.02132
    """
    check_codable(method, "quantised")

    def encode(difference: Tensor, left: Tensor | None) -> tuple[Sequence[Tensor], None]:
        return quantise(difference, bits=bits, bucket=bucket), None

    def decode(tensors: Sequence[Tensor], like: Tensor) -> Tensor:
        codes, scales = tensors
        wrong = codes.dtype != torch.uint8 or scales.dtype != torch.float32 or (scales < 0).any()
        want = "codes to be uint8 and scales float32 and >= 0"
        reject_if(wrong, want, f"{codes.dtype} and {scales.dtype}")
        numbers = {"bits": bits, "bucket": bucket}
        return dequantise(codes, scales, like.shape, **numbers, dtype=like.dtype)

    return coded(method, parts, Code(("codes", "scales"), encode, decode))

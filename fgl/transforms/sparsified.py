"""Sparsified uploads: clients send the largest changes now and all other changes later."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..checks import PositiveShare, check_kind
from ..compress import largest, num_largest
from ..federation import Method, layer
from .differences import Code, check_codable, coded


@layer(sealed=("receive", "send", "accept", "aggregate"))
def sparsified(
    method: Method,
    *,
    share: PositiveShare = 0.01,
    feedback: bool = True,
    parts: Sequence[str] = ("model",),
) -> Method:
    """Make clients send only the largest entries of their models' changes.

    Clients send ``top_k(model - sent + left)``, where k is a given fraction of the entries of each
    tensor. The state of a client keeps all other entries as `left` for the next round (error
    feedback). A sent entry takes 64 bits, for its index and its value. The method's `accept`
    function gets the change, not the model. The method may be wrapped in `local_gaussian` first.

    Args:
        method: the method; its uploads have a ``"model"``, as in FedAvg.
        share: fraction of each tensor's entries, above 0 and at most 1; at least one entry is sent.
        feedback: whether clients keep the rest for the next round; otherwise the rest is lost.
        parts: entries of an upload to sparsify; for SCAFFOLD also ``"shift"``.

    Returns:
        The method. Only `rounded_downloads` may wrap this method.

    Raises:
        ValueError: if `share` is out of range, or uploads of the method must be exact (clipped, or
            in a secure sum). The method's functions raise this error if a part has names that the
            model lacks.

    Example:
        >>> task = fgl.tasks.Nodes(clients=2).load(seed=0)
        >>> result = fgl.run(sparsified(task.fedavg, share=0.1), task, num_rounds=1)
        >>> round(result.history[0].bytes_down / result.history[0].bytes_up, 1)
        5.0

    Source: Stich et al. 2018, https://arxiv.org/abs/1809.07599; Karimireddy et al. 2019, error
    feedback, https://arxiv.org/abs/1901.09847
    """
    check_codable(method, "sparsified")

    def encode(difference: Tensor, left: Tensor | None) -> tuple[Sequence[Tensor], Tensor | None]:
        total = difference if left is None else difference + left
        places, values = largest(total, share=share)
        if not feedback:
            return (places, values), None
        rest = total.flatten().index_fill(0, places.long(), 0.0)
        return (places, values), rest.view(total.shape)

    def decode(tensors: Sequence[Tensor], like: Tensor) -> Tensor:
        places, values = tensors
        count = num_largest(like.numel(), share)
        check_kind("places", places, torch.int32, [count])
        check_kind("values", values, like.dtype, [count])
        if count and not (places[0] >= 0 and places[-1] < like.numel() and rising(places)):
            raise ValueError(f"Expected places to rise from 0 to {like.numel() - 1}, but got none")
        flat = torch.zeros(like.numel(), dtype=like.dtype, device=values.device)
        return flat.index_copy(0, places.long(), values).view(like.shape)

    return coded(method, parts, Code(("places", "values"), encode, decode))


def rising(places: Tensor) -> bool:
    """Whether each entry of a tensor is larger than the entry before it.

    Example:
        >>> rising(torch.tensor([1, 3])), rising(torch.tensor([1, 1]))
        (True, False)
    """
    return bool((places[1:] > places[:-1]).all())

"""Sparsified uploads: clients send large changes, and add small changes to a later round."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..checks import PositiveShare, check_kind, reject_if
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

    Clients send ``top_k(w - s + e)``. Here w is the client's new model, s is the model that the
    server sent, and e is the client's remainder. The number k is a fraction (`share`) of the
    entries of a tensor. A client stores the entries that it does not send as its new remainder. In
    the next round, the client adds the remainder to its change (error feedback). A sent entry takes
    64 bits: 32 bits for the index, and 32 bits for the value. The method's function `accept` gets
    the change instead of the model. The method may already be wrapped in `local_gaussian`.

    Args:
        method: the method. The method's uploads must contain a ``"model"``, as in FedAvg.
        share: fraction of a tensor's entries that is sent, above 0 and at most 1. At least one
            entry of each tensor is sent.
        feedback: whether clients keep, for the next round, the entries that they do not send. If
            false, these entries are lost.
        parts: keys of the upload's entries that are sparsified. For SCAFFOLD, add ``"shift"``.

    Returns:
        The method. Only `rounded_downloads` may wrap this method.

    Raises:
        ValueError: if `share` is out of range, or if the method needs exact uploads, as a clipped
            method or a secure sum does. The method's functions raise a ValueError if an entry in
            `parts` contains a tensor with a name that the model lacks.

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
        wrong = count and not (places[0] >= 0 and places[-1] < like.numel() and rising(places))
        reject_if(wrong, f"places to rise from 0 to {like.numel() - 1}", "none")
        flat = torch.zeros(like.numel(), dtype=like.dtype, device=values.device)
        return flat.index_copy(0, places.long(), values).view(like.shape)

    return coded(method, parts, Code(("places", "values"), encode, decode))


def rising(places: Tensor) -> bool:
    """Whether every entry of a tensor is larger than the previous entry.

    Example:
        >>> rising(torch.tensor([1, 3])), rising(torch.tensor([1, 1]))
        (True, False)
    """
    return bool((places[1:] > places[:-1]).all())

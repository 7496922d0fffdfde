"""FedSage: FedAvg of a GraphSAGE."""

from __future__ import annotations

from ..federation import Method, layer
from ..nn import SAGE


@layer
def fedsage(fedavg: Method) -> Method:
    """FedSage: FedAvg of a GraphSAGE, nothing else.

    What FedSage+ adds, generated neighbours, is `fgl.tasks.mended`.

    Args:
        fedavg: of a task whose model is a `fgl.nn.SAGE`.

    Raises:
        ValueError: for another model.

    Example:
        >>> plain = fgl.fedavg(fgl.nn.SAGE(4, 8, 2))
        >>> fedsage(plain) is plain
        True

    Source: Zhang et al. 2021, https://arxiv.org/abs/2106.13430
    """
    if not isinstance(fedavg.model, SAGE):
        got = type(fedavg.model).__name__
        raise ValueError(f"Expected fedavg to train a SAGE (model sage), but got a {got}")
    return fedavg

"""FedGCN: FedAvg of a GCN on features that clients have summed over all neighbours."""

from __future__ import annotations

from ..federation import Method, layer
from ..nn import GCN


@layer
def fedgcn(fedavg: Method) -> Method:
    """FedGCN: FedAvg, after clients have summed their neighbours' features across all borders.

    The exchange before training is `fgl.data.neighbour_sums`, in a task ``hops=1`` or ``hops=2``.

    Args:
        fedavg: of a task whose clients have made this exchange.

    Raises:
        ValueError: if its model is no GCN that takes sums (``GCN(summed=True)``).

    Example:
        >>> plain = fgl.fedavg(fgl.nn.GCN(4, 8, 2, normalize=False, summed=True))
        >>> fedgcn(plain) is plain
        True

    Source: Yao et al. 2022, https://arxiv.org/abs/2201.12433
    """
    model = fedavg.model
    if not (isinstance(model, GCN) and model.summed):
        got = type(model).__name__
        raise ValueError(
            f"Expected fedavg to train a GCN on sums (model gcn, hops 1 or 2), but got a {got}"
        )
    return fedavg

"""Layout: how training lays out parameters in memory."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ..graph import Graph
from ..sparse import SparseMatrix
from .message import Params


class Layout:
    """How training lays out parameters: by columns, where a matrix meets sparse features.

    Such a product reads a matrix by columns, and would copy it in every step.

    Args:
        params: name to tensor.
        graph: whose features meet them; default none.
    """

    def __init__(self, params: Mapping[str, Tensor], graph: Graph | None = None) -> None:
        self.turned: set[str] = set()
        if graph is not None and isinstance(graph.x, SparseMatrix):
            width = graph.num_features
            self.turned = {n for n, p in params.items() if p.dim() == 2 and p.shape[1] == width}

    def turn(self, tensors: Mapping[str, Tensor]) -> Params:
        """The same tensors, with those that are laid out by columns transposed: there and back.

        A name may have a prefix, as in the ``"exp_avg/name"`` of an optimiser's state.
        """
        return {
            path: value.mT if path.rsplit("/", 1)[-1] in self.turned and value.dim() > 1 else value
            for path, value in tensors.items()
        }

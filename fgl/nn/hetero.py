"""PyG's networks on dicts of types, as networks on a typed graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn


class Hetero(nn.Module):
    """A model of PyG on ``x_dict, edge_index_dict`` (`HeteroConv`, HGT), called with a typed graph.

    Types are cut out of the graph again: each with its own columns of the features, and the edges
    of each relation in the numbers of their types. Sizes of types differ between clients, so they
    train one after the other.

    Args:
        model: called as ``model(x_dict, edge_index_dict)``; returns a row for each node of the
            target, or a dict of types that has it.
        columns: type of nodes to its number of features, in the order of the graph's types.
        relations: ``(source type, name, target type)``, in the order of the graph's relations.
        target: the type that has labels.

    Shapes:
        x: float ``[num_nodes, sum of columns]``, dense; edge_index: int64 ``[2, E]``; node_type:
        int64 ``[num_nodes]``; edge_type: int64 ``[E]``; output: ``[num_nodes, out_channels]``, 0
        for nodes of other types.

    Raises:
        ValueError: if the target or an end of a relation is no type.

    Example:
        >>> class Sizes(torch.nn.Module):
        ...     def forward(self, x_dict, edge_index_dict):
        ...         return x_dict["author"]
        >>> net = Hetero(Sizes(), {"paper": 2, "author": 1}, [], target="author")
        >>> x = torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.0, 3.0]])
        >>> none = torch.zeros(2, 0, dtype=torch.int64)
        >>> net(x, none, node_type=torch.tensor([0, 1]), edge_type=none[0])
        tensor([[0.],
                [3.]])
    """

    def __init__(
        self,
        model: nn.Module,
        columns: Mapping[str, int],
        relations: Sequence[tuple[str, str, str]],
        target: str,
    ) -> None:
        super().__init__()
        ends = [end for source, _, other in relations for end in (source, other)]
        unknown = [name for name in (target, *ends) if name not in columns]
        if unknown:
            raise ValueError(f"Expected a type of {list(columns)}, but got {unknown[0]!r}")
        self.model, self.target = model, target
        self.columns, self.relations = dict(columns), [tuple(each) for each in relations]

    def forward(
        self, x: Tensor, edge_index: Tensor, *, node_type: Tensor, edge_type: Tensor
    ) -> Tensor:
        if torch._C._are_functorch_transforms_active():
            raise RuntimeError(
                "Expected Hetero to be called for one client, but got a batch: types are of other "
                "sizes at each client"
            )
        if x.shape[1] != sum(self.columns.values()):
            raise ValueError(
                f"Expected x to have {sum(self.columns.values())} columns, those of "
                f"{list(self.columns)}, but got {x.shape[1]}"
            )
        nodes = [(node_type == k).nonzero().squeeze(1) for k in range(len(self.columns))]
        bounds = pairwise([0, *accumulate(self.columns.values())])
        x_dict = {
            name: x[own, start:end]
            for name, own, (start, end) in zip(self.columns, nodes, bounds, strict=True)
        }
        place = torch.zeros_like(node_type)
        for own in nodes:
            place[own] = torch.arange(len(own), device=x.device)
        local = place[edge_index]
        edges = {each: local[:, edge_type == k] for k, each in enumerate(self.relations)}
        out = self.model(x_dict, edges)
        out = out[self.target] if isinstance(out, dict) else out
        rows = nodes[list(self.columns).index(self.target)]
        everybody: Tensor = out.new_zeros(x.shape[0], *out.shape[1:]).index_copy(0, rows, out)
        return everybody

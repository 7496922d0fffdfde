"""Wrapper that splits a typed graph into dicts by type, and calls PyG's networks with the dicts."""

import inspect
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from ..checks import reject_if

Relation = tuple[str, str, str]
_seen = WeakTensorKeyDictionary()  # tensors that were checked, to the columns that they fit


class Hetero(nn.Module):
    """Wrapper that calls a PyG model such as HGT (``x_dict, edge_index_dict``) with a typed graph.

    The wrapper splits the graph into dicts by type. ``x_dict`` contains the nodes of each type,
    with the type's own columns of the features. ``edge_index_dict`` contains the edges of each
    relation. A node index in such an edge is the node's position among the nodes of its type. If
    the model reads edge features, each relation also gets its own columns of the edge features.
    Clients have types of different sizes, so clients train one after the other.

    Args:
        model: called as ``model(x_dict, edge_index_dict)``. The argument ``edge_attr_dict`` is
            passed too if the model's ``forward`` has such an argument. The model returns a row for
            each node of the target type, or a dict from type to rows. The dict contains the target
            type. If the target is a relation, the model gets one more argument:
            ``edge_label_index=``, p pairs of nodes as int64 ``[2, p]``. The model then returns a
            row for each pair. A node's index in a pair is its position among the nodes of its type,
            starting from 0.
        columns: dict from node type to number of features, in the order of the graph's types. A
            type without features has one column.
        relations: ``(source type, name, target type)``, in the order of the graph's relations. If
            `typed_graph` was called with ``both=True``, the reverse relations come last, in the
            order of the relations that they reverse.
        target: the node type with labels, or the relation with labels.
        edge_columns: dict from relation to number of edge features, in the order of the columns in
            the graph. With ``both=True``, reverse relations are listed last. A reverse relation has
            the number of the relation that it reverses, since the two relations use the same
            columns. Leave out a relation without edge features, or give it 0 columns.

    Shapes:
        - x: float ``[num_nodes, c]``, dense; c is the sum of the entries of `columns`.
        - edge_index: int64 ``[2, E]``.
        - node_type: int64 ``[num_nodes]``.
        - edge_type: int64 ``[E]``.
        - edge_attr: float ``[E, columns]``.
        - train_mask: bool ``[num_nodes]``. This mask serves only to check the types of training
          nodes.
        - edge_label_index: int64 ``[2, p]``; the pairs that the model scores if the target is a
          relation.
        - output: ``[num_nodes, out_channels]``, with 0 for nodes that are not of the target type.
          If the target is a relation, the output has a row for each pair instead.

    Raises:
        ValueError: if the target or an end of a relation is not in `columns`, if `edge_columns`
            lists an unknown relation, or if the model does not read edge features. A call raises a
            ValueError if the graph does not match the types, relations or columns, if the graph's
            training nodes or pairs do not match the target, or if the graph lacks edge features
            that the model needs.

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

    one_by_one = True  # no batch of clients, since sizes of types differ between clients

    def __init__(
        self,
        model: nn.Module,
        columns: Mapping[str, int],
        relations: Sequence[Relation],
        target: str | Relation,
        edge_columns: Mapping[Relation, int] | None = None,
    ) -> None:
        super().__init__()
        ends = [end for source, _, other in relations for end in (source, other)]
        self.columns, self.relations = dict(columns), [tuple(each) for each in relations]
        names = [*ends, target] if isinstance(target, str) else ends
        unknown: list[Any] = [name for name in names if name not in columns]
        reject_if(unknown, f"a type of {list(columns)}", unknown)
        strange = not isinstance(target, str) and tuple(target) not in self.relations
        reject_if(strange, f"target to be a type or one of {self.relations}", target)
        self.edge_columns = {tuple(of): width for of, width in (edge_columns or {}).items()}
        unknown = [of for of in self.edge_columns if of not in self.relations]
        reject_if(unknown, f"edge_columns to be of {self.relations}", unknown)
        self.model = model
        self.target: Any = target if isinstance(target, str) else tuple(target)
        self._reads_attr, self._needs_attr = _reads_attr(model, any(self.edge_columns.values()))

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        *,
        node_type: Tensor,
        edge_type: Tensor,
        edge_attr: Tensor | None = None,
        train_mask: Tensor | None = None,
        edge_label_index: Tensor | None = None,
    ) -> Tensor:
        mapped = torch._C._are_functorch_transforms_active()
        got = "a batch: types are of other sizes at each client"
        reject_if(mapped, "Hetero to be called for one client", got, RuntimeError)
        width = sum(self.columns.values())
        expected = f"x to have {width} columns, those of {list(self.columns)}"
        reject_if(x.shape[1] != width, expected, x.shape[1])
        self._check_types(node_type, edge_index, edge_type)
        self._check_examples(node_type, train_mask, edge_label_index)
        nodes = [(node_type == k).nonzero().squeeze(1) for k in range(len(self.columns))]
        bounds = pairwise([0, *accumulate(self.columns.values())])
        x_dict = {
            name: x[own, start:end]
            for name, own, (start, end) in zip(self.columns, nodes, bounds, strict=True)
        }
        _check_columns("x", x, x_dict, self.columns)
        place = torch.zeros_like(node_type)
        for own in nodes:
            place[own] = torch.arange(len(own), device=x.device)
        local = place[edge_index]
        edges = {each: local[:, edge_type == k] for k, each in enumerate(self.relations)}
        options = self._attr(edge_type, edge_attr)
        if edge_label_index is not None:
            options["edge_label_index"] = place[edge_label_index]
        try:
            out = self.model(x_dict, edges, **options)
            out = out[self.target] if isinstance(out, dict) else out
        except KeyError as error:
            self._check_ends(error)
            raise
        if out is None:
            self._check_ends()
        if edge_label_index is not None:
            return out  # type: ignore[no-any-return]
        rows = nodes[list(self.columns).index(self.target)]
        full: Tensor = out.new_zeros(x.shape[0], *out.shape[1:]).index_copy(0, rows, out)
        return full

    def _check_ends(self, error: KeyError | None = None) -> None:
        """Raise an error if a type lacks rows because no relation ends at this type."""
        lost = self.target if error is None else next(iter(error.args), None)
        if lost in self.columns and all(lost != end for _, _, end in self.relations):
            raise ValueError(
                f"Expected a relation that ends at {lost!r}, since {type(self.model).__name__} "
                f"gives no row to other types, but got {self.relations}: fgl.data.from_hetero("
                "data, both=True), or PyG's ToUndirected, adds the reverse of each relation"
            ) from error

    def _attr(self, edge_type: Tensor, edge_attr: Tensor | None) -> dict[str, Any]:
        """Dict with `edge_attr_dict`; empty if the graph has no edge features or none are read."""
        reads = f"{type(self.model).__name__}'s forward reads as edge_attr_dict"
        lacking = edge_attr is None and self._needs_attr
        reject_if(lacking, f"the graph to have edge_attr, which {reads}", "none")
        if edge_attr is None or not self._reads_attr:
            return {}
        widths, width = list(self.edge_columns.values()), edge_attr.shape[1]
        first = widths[: len(widths) // 2]
        shared = widths == first * 2 and sum(first) == width  # reverses have the same columns
        expected = f"edge_columns to name the relations of all {width} columns of edge_attr"
        reject_if(not shared and sum(widths) != width, expected, self.edge_columns)
        bounds = list(pairwise([0, *accumulate(first if shared else widths)]))
        blocks = zip(self.edge_columns, bounds * 2 if shared else bounds, strict=True)
        cut = {
            of: edge_attr[edge_type == self.relations.index(of), start:end]
            for of, (start, end) in blocks
            if start < end
        }
        _check_columns("edge_attr", edge_attr, cut, self.edge_columns)
        return {"edge_attr_dict": cut}

    def _check_types(self, node_type: Tensor, edge_index: Tensor, edge_type: Tensor) -> None:
        """Raise an error if the graph's types or relations are not numbered as in the wrapper."""
        types = list(self.columns)
        for name, of, names in (
            ("columns", node_type, types),
            ("relations", edge_type, self.relations),
        ):
            count = int(of.max()) + 1 if len(of) else 0
            few = count > len(names)
            reject_if(few, f"{name} to name the graph's {count} in their order", names)
        expected = [[types.index(each[end]) for each in self.relations] for end in (0, 2)]
        got = node_type[edge_index]
        wrong = (got != node_type.new_tensor(expected)[:, edge_type]).any(0).nonzero()
        if len(wrong):
            source, other = (types[kind] for kind in got[:, wrong[0, 0]].tolist())
            raise ValueError(
                f"Expected edges of {self.relations[int(edge_type[wrong[0, 0]])]} to join these "
                f"types, but got one from {source!r} to {other!r}: columns and relations stand in "
                "the order of the graph's"
            )

    def _check_examples(self, node_type: Tensor, mask: Tensor | None, pairs: Tensor | None) -> None:
        """Raise an error if a training node or an end of a pair is not of a target type."""
        types, target = list(self.columns), self.target
        reject_if(
            isinstance(target, str) == (pairs is not None),
            "target to be a relation if the examples are pairs, and a type of nodes otherwise",
            f"{target!r}",
        )
        if pairs is not None:
            ends = node_type.new_tensor([[types.index(target[end])] for end in (0, 2)])
            others = int((node_type[pairs] != ends).any(0).sum())
            reject_if(others, f"pairs of {target}", f"{others} that join other types")
            return
        strange = node_type != types.index(target)
        if mask is not None and mask.shape == strange.shape and (mask & strange).any():
            kind = types[int(node_type[mask & strange][0])]
            raise ValueError(
                f"Expected training nodes to be of the target {target!r}, but got one of {kind!r}"
            )


def _reads_attr(model: nn.Module, has_attr: bool) -> tuple[bool, bool]:
    """Two answers: does a model accept `edge_attr_dict`, and does it require this argument?"""
    parameters = inspect.signature(model.forward).parameters
    if "edge_attr_dict" in parameters:
        default = parameters["edge_attr_dict"].default
        return True, default is inspect.Parameter.empty
    takes = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    reject_if(
        has_attr and not takes,
        f"{type(model).__name__}'s forward to have edge_attr_dict, since edge_columns are given",
        list(parameters),
    )
    return has_attr, False


def _check_columns(
    name: str, whole: Tensor, cut: Mapping[Any, Tensor], columns: Mapping[Any, int]
) -> None:
    """Raise an error if a node has values other than 0 outside the columns of its type.

    A tensor that was checked once is not checked again.
    """
    counts = tuple(columns.items())
    if _seen.get(whole) == counts:
        return
    reject_if(
        int(whole.count_nonzero()) != sum(int(each.count_nonzero()) for each in cut.values()),
        f"{name} to be 0 outside the columns of each one's own type",
        f"other numbers: columns {dict(columns)} stand in the order of the graph's",
    )
    _seen[whole] = counts

"""Checks of the named relations and reverses before edges are split."""

from __future__ import annotations

from torch import Tensor

from ...graph import Graph
from ...warn import warn
from .reverses import copying_relations, reversed_share, turned_relations


def check_relations(
    graph: Graph, edge_type: int | None, rev_edge_type: int | None, is_undirected: bool | None
) -> None:
    """Raise unless these are relations of the graph that go together."""
    if rev_edge_type is not None and edge_type is None:
        raise ValueError("Expected edge_type beside rev_edge_type, but got none")
    if rev_edge_type is not None and rev_edge_type == edge_type:
        raise ValueError(
            f"Expected rev_edge_type to be another relation than edge_type, but got "
            f"{edge_type} twice: pair_split(graph, edge_type={edge_type}, is_undirected=True)"
        )
    for name, value in {"edge_type": edge_type, "rev_edge_type": rev_edge_type}.items():
        if value is None:
            continue
        if graph.edge_type is None or not (graph.edge_type == value).any():
            some = [] if graph.edge_type is None else graph.edge_type.unique().tolist()
            raise ValueError(f"Expected {name} to be one of the relations {some}, but got {value}")


def check_reverses(
    graph: Graph,
    keys: Tensor,
    edge_type: int | None,
    rev_edge_type: int | None,
    is_undirected: bool | None,
    presence: bool,
) -> None:
    """Raise if messages would be the reverses of most pairs; warn if the caller chose this."""
    if edge_type is None and (is_undirected or (is_undirected is False and not presence)):
        return
    n, types = graph.num_nodes, graph.edge_type
    if types is None:
        turned = {(0, 0): share} if (share := reversed_share(keys, n)) else {}
    else:
        turned = turned_relations(graph.edge_index, types, n, only=edge_type)
    across = {pair: share for pair, share in turned.items() if pair[0] != pair[1]}
    if rev_edge_type is not None and across.pop((edge_type, rev_edge_type), None) is None:  # type: ignore[arg-type]
        others = [f"rev_edge_type={other}" for _, other in across]
        raise ValueError(
            f"Expected rev_edge_type to have most edges of relation {edge_type} turned round, but "
            f"got {rev_edge_type}, which has not" + (f": {others[0]}" if others else "")
        )
    within = {pair: share for pair, share in turned.items() if pair[0] == pair[1]}
    if across and is_undirected is not False:
        raise ValueError(turned_round(across, rev_edge_type))
    if within and is_undirected is None:
        of = "" if edge_type is None else f"edge_type={edge_type}, "
        raise ValueError(
            f"Expected is_undirected to be given, since {max(within.values()):.0%} of the edges "
            "have their reverse, which tells which pairs are edges, but got None: "
            f"pair_split(graph, {of}is_undirected=True) asks about both as one; "
            "is_undirected=False asks about each, and its reverse may be a message"
        )
    if presence and is_undirected is False and (across or within):
        share = max({**across, **within}.values())
        warn(
            f"Expected few messages to be reverses of pairs, but {share:.0%} of the edges have "
            "their reverse and is_undirected is False: a model can read from the messages which "
            "pairs are edges",
        )


def warn_of_copies(graph: Graph, edge_type: int) -> None:
    """Warn if another relation, whose edges all stay messages, has most edges of this one."""
    copies = copying_relations(graph.edge_index, graph.edge_type, edge_type, graph.num_nodes)  # type: ignore[arg-type]
    for other, share in copies.items():
        warn(
            f"Expected few messages to be copies of pairs, but relation {other} has {share:.0%} of "
            f"the edges of relation {edge_type}, which tells which pairs are edges: "
            f"graph.with_edges(graph.edge_type != {other}) leaves it out",
        )


def turned_round(across: dict[tuple[int, int], float], named: int | None = None) -> str:
    """Error about a relation that reverses another relation, with the call that works."""
    (of, other), share = next(iter(across.items()))
    call = f"pair_split(graph, edge_type={of}, rev_edge_type={other})"
    if named is not None:
        call = f"graph.with_edges(graph.edge_type != {other})"
    return (
        f"Expected no relation but rev_edge_type to have the edges of relation {of} turned round, "
        f"which tells which pairs are edges, but relation {other} has {share:.0%} of them and "
        f"rev_edge_type is {named}: {call} keeps them out of the messages"
    )

"""Linear deterministic greedy: nodes are placed as they stream by, with few cut edges (LDG)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...checks import check_count, check_number
from ...graph import Graph
from ...kinds import typed
from ...progress import shown
from .checks import check_num_clients, filled

BLOCKS = 64  # of the smallest graphs; a block that is the whole graph would place it blindly
LARGEST = 2**14  # nodes of a block: a table of them and 100 parts takes 13 MB


@typed
def ldg_partition(
    graph: Graph,
    num_clients: int,
    *,
    passes: int = 10,
    slack: float = 0.05,
    block: int | None = None,
    seed: int = 0,
) -> list[Tensor]:
    """Clients of bounded size with few edges between them, placed in a stream of nodes (LDG).

    With C the capacity ``ceil((1 + slack) * n / num_clients)``, a node v goes to the part i of the
    largest ``|N(v) in P_i| * (1 - |P_i| / C)``. A node without a placed neighbour goes to the
    smallest part, as does one whose part is full. Each further pass places all nodes anew, and a
    neighbour that it has not placed yet counts where the pass before put it.

    Nodes come in blocks of consecutive ids. Nodes of one block do not see each other's new places,
    which makes it fast; the capacity holds all the same. Beside the edges and a table of block x
    clients it needs about 30 bytes a node and one an edge. Edges that are sorted by target may lie
    in a mapped file.

    Args:
        graph: each edge counts for its target, so a directed graph should have both directions.
        num_clients: number of clients; each gets at least one node.
        passes: how often all nodes are placed; 1 is LDG, more are restreamed LDG.
        slack: by how much a client may be larger than the mean, as a share of it.
        block: nodes that are placed at once; 1 is the published rule. Default a 64th of the nodes,
            at most 16,384, and fewer for over 100 clients.
        seed: of the order of the blocks, the same in each pass.

    Returns:
        One sorted int64 tensor of node ids per client; every node is in exactly one, and none has
        more than C.

    Raises:
        ValueError: if `num_clients` is not in ``[1, num_nodes]``, `passes` or `block` is below 1,
            or `slack` is negative.

    Example:
        >>> graph = fgl.data.load("synthetic")
        >>> parts = fgl.data.partitions.ldg_partition(graph, 3)
        >>> sum(part.numel() for part in parts), max(part.numel() for part in parts) <= 948
        (2708, True)

    Source: Stanton & Kliot 2012, https://doi.org/10.1145/2339530.2339722 (the rule); Nishimura &
    Ugander 2013, https://doi.org/10.1145/2487575.2487696 (more passes)
    """
    n = graph.num_nodes
    check_num_clients(num_clients, n)
    check_count(passes=passes)
    check_number("slack", slack, at_least=0)
    if block is None:
        block = max(1, min(n // BLOCKS, LARGEST, 100 * LARGEST // num_clients))
    check_count(block=block)
    capacity = math.ceil(round(n * (1 + slack) / num_clients, 6))  # 1.1 is a little more
    ends, sources = _by_target(graph.edge_index.cpu(), n)
    generator = torch.Generator().manual_seed(seed)
    starts = (torch.randperm(-(-n // block), generator=generator) * block).tolist()
    owner = torch.full((n,), num_clients, dtype=torch.int32)  # one more part for the unplaced
    with shown("LDG", passes * len(starts), unit="block") as advance:
        for _ in range(passes):
            size = torch.zeros(num_clients, dtype=torch.int64)
            for start in starts:
                stop = min(start + block, n)
                begin, end = (int(ends[start - 1]) if start else 0), int(ends[stop - 1])
                degree = ends[start:stop].diff(prepend=ends.new_tensor([begin]))
                owners = owner.index_select(0, sources[begin:end])
                part = _placed(_counts(degree, owners, num_clients), size, capacity)
                owner[start:stop] = part
                size += part.bincount(minlength=num_clients)
                advance(1)
    return [part.to(graph.device) for part in filled(owner.long(), num_clients)]


def _by_target(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Ends of each node's edges, int64 ``[n]``, and the sources of the edges, node by node."""
    source, target = edge_index
    if bool((target[1:] < target[:-1]).any()):
        source = source[target.argsort(stable=True)]
    return target.bincount(minlength=num_nodes).cumsum(0), source


def _counts(degree: Tensor, owners: Tensor, num_parts: int) -> Tensor:
    """Neighbours of each node of a block in each part, int64 ``[block, parts]``."""
    base = torch.arange(0, len(degree) * (num_parts + 1), num_parts + 1)
    key = base.repeat_interleave(degree, output_size=len(owners)).add_(owners)
    count = key.bincount(minlength=len(degree) * (num_parts + 1))
    return count.view(len(degree), num_parts + 1)[:, :num_parts]


def _placed(count: Tensor, size: Tensor, capacity: int) -> Tensor:
    """The parts of a block's nodes, int64 ``[block]``; no part grows beyond the capacity."""
    score = count * (1 - size.double() / capacity)
    part = score.argmax(1)
    part[score.amax(1) <= 0] = len(size)  # no neighbour, or only full parts
    order = part.argsort(stable=True)  # within a part, by number
    demand = part.bincount(minlength=len(size) + 1)
    rank = torch.arange(len(part)) - (demand.cumsum(0) - demand)[part[order]]
    room = torch.cat([capacity - size, size.new_zeros(1)])
    rest = order[rank >= room[part[order]]].sort().values
    part[rest] = len(size)
    grown = size + part.bincount(minlength=len(size) + 1)[: len(size)]
    part[rest] = _smallest(grown, len(rest))
    return part


def _smallest(size: Tensor, count: int) -> Tensor:
    """Parts for `count` nodes, placed one after the other, each in the smallest part so far."""
    if not count:
        return size.new_zeros(0)
    low = size.sort().values
    rises = (low * torch.arange(1, len(low) + 1) - low.cumsum(0) < count).sum()  # parts that grow
    top = (low[:rises].sum() + count) // rises + 1  # no part grows beyond it
    room = (top - size).clamp(min=0)
    part = torch.arange(len(size)).repeat_interleave(room)
    rank = torch.arange(len(part)) - (room.cumsum(0) - room)[part]
    level = size[part] + rank  # a part's size before each node that it may get
    return part[(level * len(size) + part).argsort()][:count]

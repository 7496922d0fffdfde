"""Minibatches of nodes and their sampled neighbours, as graphs that any model can read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from .checks import check_fanouts, check_index, reject_if
from .graph import EDGE_FIELDS, NODE_FIELDS, Graph
from .graph.fields import changed_copy, taken
from .graph.windows import check_no_series
from .sparse import SparseMatrix, row_sum
from .sparse.matrix import check_degrees, rows_of
from .sparse.pattern import Pattern

BITS = 31  # bits of a random number: ``draw * degree`` fits int64 for every degree below 2^32
NOBODY = torch.iinfo(torch.int32).max


class NeighbourSampler:
    """Sampler of neighbourhoods: at each hop, a given number of neighbours is drawn per node.

    The neighbours of a node are the sources of the node's incoming edges. Neighbours are sampled
    uniformly and without replacement. If a node has at most as many neighbours as the fan-out, all
    of them are kept. The neighbours of a node are sampled only at the hop that first reaches the
    node. Each node occurs once in the batch. Edges of weight 0 are never sampled.

    The features may stay in CPU memory (`Graph.to`). Then the feature rows of a batch are selected
    on the CPU and copied to the device of the edges.

    A batch is a `Graph`. The nodes of a batch are the seeds in the given order, followed by the new
    nodes of each hop. In a batch, `train_mask` selects the seeds, `node_id` holds the indices of
    the nodes in the whole graph, and `adj` holds the sampled edges.

    - `SAGE` computes the mean over the sampled neighbours, an unbiased estimate of the mean over
      all neighbours.
    - `GAT` attends to the sampled neighbours and the node itself.
    - `GCN` reads ``D^-1/2 (A + I) D^-1/2`` with the degrees D of the *whole* graph. The entry of
      each sampled neighbour is multiplied by ``degree / drawn``: the number of all neighbours
      divided by the number of sampled neighbours. This gives an unbiased estimate of the whole row.
      If `fgl.augment` drops edges of a batch, the degrees count only the remaining edges of the
      batch.

    If all neighbours are kept, and if the model has as many layers as there are hops, the logits of
    the seeds equal their logits on the whole graph.

    Args:
        graph: one graph. The number of nodes and the number of edges must fit int32.
        fanouts: number of neighbours per node for each hop, at least 1; -1 means all neighbours.

    Raises:
        TypeError: if a fan-out is not an integer.
        ValueError: if there are no fan-outs, if a fan-out is 0 or below -1, or if `graph` is a
            collection.

    Example:
        >>> path = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> graph = fgl.Graph(torch.ones(4, 1), path)
        >>> batch = NeighbourSampler(graph, (-1,))(torch.tensor([0, 3]))
        >>> batch.node_id, batch.train_mask
        (tensor([0, 3, 1, 2]), tensor([ True,  True, False, False]))
        >>> batch.edge_index
        tensor([[2, 3],
                [0, 1]])

    Source: Hamilton et al. 2017, https://arxiv.org/abs/1706.02216
    """

    def __init__(self, graph: Graph, fanouts: Sequence[int] = (10, 10)) -> None:
        self.fanouts = check_fanouts(fanouts, unlimited=True)
        check_no_series(graph, "NeighbourSampler")
        if graph.batch is not None or graph.edge_label_index is not None:
            got = "a collection" if graph.batch is not None else "pairs of nodes"
            raise ValueError(f"Expected a graph whose examples are nodes, but got {got}")
        self.graph = graph
        adj = graph.adj
        crow, col, self.value = adj.pattern.crow, adj.pattern.col, adj.value
        self.fields = {name: graph.entries(name) for name in EDGE_FIELDS[1:] if graph.has(name)}
        if adj.present is not None and not bool(adj.present.all()):
            present = adj.present
            col, self.value = col[present], adj.value[present]  # type: ignore[index]  # present says so
            self.fields = {name: value[present] for name, value in self.fields.items()}
            crow = torch.cat([crow[:1], present.cumsum(0)])[crow]
        if max(graph.num_nodes, col.numel()) >= NOBODY:
            raise ValueError(f"Expected at most {NOBODY} edges and nodes, but got {col.numel()}")
        # Memory access limits the sampling, so tables are int32, with begin and degree adjacent.
        self.neighbour = col.int()
        self.table = torch.stack([crow[:-1], crow.diff()], 1).int()
        self._place = torch.full((graph.num_nodes,), NOBODY, dtype=torch.int32, device=col.device)

    def __call__(self, seeds: Tensor, *, generator: torch.Generator | None = None) -> Graph:
        """The minibatch of the given seed nodes.

        Args:
            seeds: int64 ``[batch]`` without repeats, on the graph's device.
            generator: random generator on the graph's device; by default torch's global generator.

        Raises:
            TypeError: if `seeds` is not an int64 tensor.
            ValueError: if `seeds` has the wrong shape, if a seed occurs twice, or if a seed is not
                a node of the graph.
        """
        check_index("seeds", seeds, (None,), self.graph.num_nodes)
        reject_if(len(seeds.unique()) < len(seeds), "seeds to be without repeats", "a node twice")
        return self.unchecked(seeds, generator=generator)

    def unchecked(self, seeds: Tensor, *, generator: torch.Generator | None = None) -> Graph:
        """The minibatch of the given seeds, without a check that the seeds are distinct nodes."""
        return self.batch(*self.draw(seeds, generator), len(seeds))

    def draw(
        self, seeds: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Sample the nodes and edges of a minibatch, without checks.

        Returns:
            Four tensors. The first tensor holds the nodes, int32 ``[n]``, and begins with the
            expanded nodes. The second tensor holds the number of sampled neighbours of each
            expanded node, int64. The other two tensors, both int32 ``[m]``, have one entry per
            sampled edge. The third tensor holds the index of the edge's source among the nodes, and
            the fourth tensor holds the edge's index in the adjacency. The edges are grouped by
            expanded node, in the order of the expanded nodes.
        """
        frontier = seeds.int()
        nodes, counts, entries, sources = [frontier], [], [], []
        try:
            self._place.scatter_(0, seeds, self._numbers(0, len(seeds)))
            for fanout in self.fanouts:
                begin, degree = self.table.index_select(0, frontier).unbind(1)
                count, entry = drawn(begin, degree, fanout, generator)
                source = self.neighbour.index_select(0, entry)
                frontier = self._add(source, sum(map(len, nodes)))
                counts.append(count)
                entries.append(entry)
                sources.append(source)
                nodes.append(frontier)
            union = torch.cat(nodes)
            return (
                union,
                torch.cat(counts),
                self._place.index_select(0, torch.cat(sources)),
                torch.cat(entries),
            )
        finally:
            self._place.index_fill_(0, torch.cat(nodes).long(), NOBODY)

    def _numbers(self, start: int, stop: int) -> Tensor:
        return torch.arange(start, stop, dtype=torch.int32, device=self._place.device)

    def _add(self, nodes: Tensor, before: int) -> Tensor:
        """Give new nodes consecutive numbers, starting at `before`; return each new node once."""
        number = self._numbers(before, before + len(nodes))
        where = nodes.long()
        self._place.scatter_reduce_(0, where, number, "amin")  # the first occurrence of a node
        new = nodes.masked_select(self._place.index_select(0, nodes) == number)
        if len(new) < len(nodes):  # close the gaps
            self._place.scatter_(0, new.long(), number[: len(new)])
        return new

    def batch(
        self, nodes: Tensor, counts: Tensor, sources: Tensor, entries: Tensor, num_seeds: int
    ) -> Graph:
        """The graph of the sampled nodes and edges, with the features of these nodes."""
        whole, ids = self.graph, nodes.long()
        adj = self.matrix(nodes, counts, sources, entries)
        fields = {name: value.index_select(0, entries) for name, value in self.fields.items()}
        if whole.edge_weight is not None and adj.value is not None:
            fields["edge_weight"] = adj.value
        return changed_copy(
            whole,
            x=rows_of(whole.x, ids),
            edge_index=torch.stack([adj.pattern.col, adj.pattern.row]),
            **fields,
            in_order=fields,  # in the order of sampling, which is the order of adj
            **{"node_id": ids, **taken(whole, NODE_FIELDS, ids)},
            y=None if whole.y is None else whole.y.index_select(0, ids),
            train_mask=torch.arange(len(ids), device=ids.device) < num_seeds,
            val_mask=None,
            test_mask=None,
            adj=adj,
        )

    def matrix(
        self, nodes: Tensor, counts: Tensor, sources: Tensor, entries: Tensor
    ) -> SampledMatrix:
        """The adjacency of the sampled edges."""
        size, last = len(nodes), len(counts) + 1
        crow = torch.zeros(size + 1, dtype=torch.int64, device=nodes.device)
        torch.cumsum(counts, 0, out=crow[1:last])
        crow[last:] = len(entries)
        pattern = Pattern(crow, sources.long(), (size, size), str(self.graph.backend))
        value = None if self.value is None else self.value.index_select(0, entries)
        if value is None and self.graph.x.dtype != torch.get_default_dtype():
            value = pattern.ones(self.graph.x.dtype)
        return SampledMatrix(self, nodes, pattern, value)

    @cached_property
    def scale(self) -> tuple[Tensor, Tensor]:
        """The inverse square roots of the row sums of ``A + I``, and the diagonal of ``A + I``."""
        with torch.inference_mode(False):
            adj = self.graph.adj.astype(self.graph.x.dtype)
            check_degrees(adj.value)
            pattern = adj.pattern
            value = adj.values
            loop = value.new_ones(adj.shape[0])
            if bool((pattern.row == pattern.col).any()):
                looped = adj.with_self_loops
                pattern = looped.pattern
                value = looped.values
                loop = value[pattern.row == pattern.col]
                degree = row_sum(pattern, value)
            else:
                degree = row_sum(pattern, value) + 1
            return torch.where(degree == 0, torch.inf, degree).rsqrt(), loop


class SampledMatrix(SparseMatrix):
    """Adjacency matrix of a minibatch; a GCN normalises it by the degrees in the whole graph.

    Example:
        >>> star = torch.tensor([[1, 2, 3, 0, 0, 0], [0, 0, 0, 1, 2, 3]])
        >>> graph = fgl.Graph(torch.ones(4, 1), star)
        >>> batch = NeighbourSampler(graph, (2,))(torch.tensor([0]))
        >>> batch.adj.gcn_norm.to_dense()[0].sum(), graph.adj.gcn_norm.to_dense()[0].sum()
        (tensor(1.3107), tensor(1.3107))
    """

    def __init__(
        self, sampler: NeighbourSampler, nodes: Tensor, pattern: Pattern, value: Tensor | None
    ) -> None:
        super().__init__(pattern, value)
        self.sampler = sampler
        self.nodes = nodes

    def _normalised(self) -> SparseMatrix:
        """The minibatch's rows of `gcn_norm`; each entry is multiplied by ``degree / drawn``."""
        n, own = self.shape[0], self.pattern
        scale, loop = (each.index_select(0, self.nodes) for each in self.sampler.scale)
        value = own.ones(self.dtype) if self.value is None else self.value
        degree = self.sampler.table.index_select(0, self.nodes)[:, 1]
        times = degree / own.crow.diff().clamp(min=1)
        value = value * (scale * times.to(scale.dtype)).index_select(0, own.row)
        value = value * scale.index_select(0, own.col)
        value = value.masked_fill(own.row == own.col, 0)  # the diagonal is exact and added below
        pattern, places = own.joined
        out = value.new_empty(pattern.nnz).index_copy(0, places, value)
        return SparseMatrix(pattern, out.index_copy(0, pattern.crow[:n], loop * scale * scale))


def drawn(
    begin: Tensor, degree: Tensor, fanout: int, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Sample `fanout` distinct entries of each row; if a row has fewer entries, take all of them.

    The function uses Robert Floyd's algorithm for all rows at once, in O(rows * fanout^2). In step
    ``k = 0, 1, ..., fanout - 1``, one entry is drawn from the first m entries of each row, where
    ``m = degree - fanout + k + 1``. If the drawn entry is already in the sample, the m-th entry is
    taken instead.

    Args:
        begin: int32 ``[n]``, index of each row's first entry.
        degree: int32 ``[n]``, number of entries of each row.
        fanout: at least 1, or -1 for all.
        generator: random generator; by default torch's global generator.

    Returns:
        Two tensors: the number of sampled entries of each row, int64 ``[n]``; and the indices of
        all sampled entries, int32, row after row.

    Example:
        >>> begin, degree = torch.tensor([[0, 2], [2, 1]], dtype=torch.int32)
        >>> drawn(begin, degree, 2)
        (tensor([2, 1]), tensor([0, 1, 2], dtype=torch.int32))
    """
    count = degree if fanout < 0 else degree.clamp(max=fanout)
    total = count.cumsum(0)
    size, many = _where_more(total, degree > count)
    shift = begin - (total - count)
    place = torch.arange(size, device=begin.device)
    entry = (shift.repeat_interleave(count, output_size=size) + place).int()
    if many.numel():
        rest = degree.index_select(0, many).long() - fanout
        draws = torch.randint(
            2**BITS, (fanout, many.numel()), generator=generator, device=begin.device
        )
        chosen = torch.empty_like(draws)
        for k in range(fanout):
            last = rest + k
            torch.mul(draws[k], last + 1, out=chosen[k]).bitwise_right_shift_(BITS)
            if k:
                same = chosen[:k] == chosen[k]
                again = same.view(torch.uint8).amax(0)  # 5 times faster than torch.any
                torch.where(again.bool(), last, chosen[k], out=chosen[k])
        first = total.index_select(0, many) - fanout
        where = torch.arange(fanout, device=begin.device)[:, None] + first
        chosen += begin.index_select(0, many)
        entry.scatter_(0, where.flatten(), chosen.flatten().int())
    return count.long(), entry


def _where_more(total: Tensor, more: Tensor) -> tuple[int, Tensor]:
    """Return the total number of entries, and the indices of the rows for which `more` is True.

    On a GPU, both results need only one synchronisation.
    """
    if not len(total):
        return 0, total
    if not total.is_cuda:
        return int(total[-1]), more.nonzero().squeeze(1)
    size, count = torch.stack([total[-1], more.sum()]).tolist()
    return size, torch.nonzero_static(more, size=count).squeeze(1)

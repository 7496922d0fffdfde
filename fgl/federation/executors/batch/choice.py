"""The default number of clients that train as one batch."""

import math
import statistics
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import torch

from ....checks import check_number
from ....graph import Graph
from ....predict import reads
from ....sparse import SparseMatrix
from ...method.method import Method
from ...training.minibatches import local_steps
from ...training.train import trainable
from .cohort import batch_norms, check_kind
from .train_cohort import check_optimizer, kind_of

CACHE = {"cpu": 64 * 2**20, "cuda": 4 * 2**30}  # bytes that a cohort may work on, by device
STEP = 4  # of a parameter: itself, its gradient, two numbers of Adam
SAVED = 4  # of a layer's output: product, propagated, activated, dropped out
ALONE = 1 / 12  # share of the cache from which a client's own data keep the machine busy
ALONE_GRAPHS = 3 / 5  # the same for many small graphs: more products a byte, and more launches
GRAPHS = 10  # clients that share a batch of small graphs, though they do not fit together
FEWEST = 3  # clients that are worth a batch


class Choice(NamedTuple):
    """The chosen number of clients per batch, the reason, and whether batches are impossible.

    Example:
        >>> print(Choice(8, "together they fit the cache"))
        8 clients train as one batch (clients_at_once=8): together they fit the cache
    """

    clients_at_once: int
    why: str
    refused: bool = False

    def __str__(self) -> str:
        number = self.clients_at_once
        way = (
            "clients train one at a time" if number == 1 else f"{number} clients train as one batch"
        )
        return f"{way} (clients_at_once={number}): {self.why}"


def choose(method: Method, clients: Sequence[Graph], *, cache: int | None = None) -> Choice:
    """Choose how many clients train as one batch, from the sizes of the clients and of the model.

    The memory of one client's step is estimated as the size of ``4 P + D`` numbers. P is the number
    of trained parameters. D is the sum of three counts: the client's feature values, the client's
    edges, and four times the values in the outputs of all layers. For a time series, the outputs at
    every time point of every window in a step are counted. The memory is estimated for the client
    with the largest D.

    The number of batches is the memory that all clients' steps use, divided by the cache size and
    rounded. Since the number is rounded, a batch may need up to 1.5 times the cache size.

    Two rules determine whether clients train one at a time. Let M be the largest D of all clients,
    and let A be the mean of D over all clients. By the first rule, clients train one at a time if
    the size of ``M^2 / A`` numbers is more than a twelfth of the cache size. A client whose data
    need more than a twelfth of the cache keeps all cores busy without a batch. The factor ``M / A``
    accounts for padding, since a batch pads all clients to the size of the largest client. By the
    second rule, clients train one at a time if the tensors of one step of three clients do not fit
    in the cache. A different rule replaces both rules if each client has a collection of graphs:
    clients train one at a time if the size of M numbers is more than three fifths of the cache
    size. Otherwise at least ten clients share a batch. For collections of graphs, products with
    dense weights take most of the time. The speed of dense products depends less on the cache than
    the speed of sparse products.

    Clients that have their own models are batched by kind of model. For each kind of model that
    several clients have, this function chooses how many of these clients train at once. The result
    is the smallest of these numbers.

    The result is the same on every computer, since the cache size is a constant and is not
    measured. If a loss does not work in a batch, the first round detects this error, and `fgl.run`
    then trains one client at a time (see `Round.one_by_one`).

    Args:
        method: the method with the model and the optimiser.
        clients: the clients' graphs.
        cache: size of the cache in bytes; by default 64 MiB on a CPU, 4 GiB on a GPU.

    Returns:
        The `Choice`. If clients should train one at a time, `clients_at_once` of the choice is 1.

    Raises:
        ValueError: if `cache` is not above 0.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> method = fgl.fedavg(fgl.nn.GCN(2, 8, 2))
        >>> choose(method, [graph] * 5).clients_at_once
        5
        >>> choose(method, [graph] * 5, cache=1_000).clients_at_once
        1
    """
    if cache is not None:
        check_number("cache", cache, above=0)
    if method.own.models is not None:
        return _choose_of_kinds(method, clients, cache)
    refused = _refused(method, clients)
    if refused:
        by_design = any(getattr(m, "one_by_one", False) for m in method.model.modules())
        return Choice(1, refused, refused=len(clients) > 1 and not by_design)
    cache = CACHE.get(clients[0].device.type, CACHE["cpu"]) if cache is None else cache
    of_clients = [_data_bytes(method, each) for each in clients]
    data = max(of_clients)
    each, small_graphs = _trained_bytes(method) + data, clients[0].batch is not None
    reason = (
        f"a client's step needs about {each / 2**20:.3g} MiB; the cache has {cache / 2**20:.3g}"
    )
    padded = data * data / (statistics.mean(of_clients) or 1)
    alone = data > ALONE_GRAPHS * cache if small_graphs else padded > ALONE * cache
    if alone:
        return Choice(1, reason)
    if not small_graphs and FEWEST * each > cache:
        return Choice(1, reason)
    batches = max(1, round(len(clients) * each / cache))
    at_once = math.ceil(len(clients) / batches)
    fewest = GRAPHS if small_graphs else 1
    return Choice(min(max(at_once, fewest), len(clients)), reason)


def _choose_of_kinds(method: Method, clients: Sequence[Graph], cache: int | None) -> Choice:
    """Choose how many clients of each kind of model train at once; return the smallest number."""
    kinds: dict[Hashable, list[Graph]] = {}
    for graph in clients:
        kinds.setdefault(kind_of(method, graph), []).append(graph)
    alone = replace(method, own=replace(method.own, modules=(), models=None))
    choices = [
        choose(replace(alone, model=method.model_of(some[0])), some, cache=cache)
        for some in kinds.values()
        if len(some) > 1
    ]
    return min(choices, default=Choice(1, "no two clients have models of one kind"))


def _refused(method: Method, clients: Sequence[Graph]) -> str:
    """The reason why clients cannot train as a batch.

    The text is empty if no reason is known before the first step.
    """
    if len(clients) < 2:
        return "one client is no batch" if clients else "there is no client"
    sizes = {graph.num_nodes for graph in clients}
    mixing = batch_norms(method.model)
    padded = len(sizes) > 1 or method.train.batches is not None or reads(method.model).edge_index
    if mixing and padded:
        return f"{type(mixing[0]).__name__} would mix padded nodes in"
    alone = [m for m in method.model.modules() if getattr(m, "one_by_one", False)]
    if alone:
        return f"{type(alone[0]).__name__} takes one client at a time"
    try:
        check_kind(clients, range(len(clients)))
        check_optimizer(method.train.optimizer([torch.zeros(1, requires_grad=True)]))
    except Exception as error:
        return str(error).split(";")[0]
    return ""


def _trained_bytes(method: Method) -> int:
    """Bytes of the trained tensors, of the gradients, and of two optimiser values per parameter."""
    tensors = {**dict(method.model.named_parameters()), **method.own.personal}
    names = trainable(method)
    return STEP * sum(t.numel() * t.element_size() for n, t in tensors.items() if n in names)


def _data_bytes(method: Method, graph: Graph) -> int:
    """Bytes of a client's features, edges and layer outputs."""
    size = graph.x.dtype.itemsize
    entries = graph.x.nnz if isinstance(graph.x, SparseMatrix) else graph.x.numel()
    out = sum(p.shape[0] for p in method.model.parameters() if p.dim() == 2)
    index = 8 if isinstance(graph.x, SparseMatrix) else 0
    edges, times = graph.num_edges * (size + 8), _times(method, graph)
    if graph.has("window_index"):  # of the series only the windows of a step are touched
        entries = graph.num_nodes * graph.num_features * times
    if reads(method.model).edge_index:  # PyG's layers write a message for each edge
        edges += SAVED * graph.num_edges * out * size * times
    return entries * (size + index) + edges + SAVED * graph.num_nodes * out * size * times


def _times(method: Method, graph: Graph) -> int:
    """Number of time points in all windows that one step reads; 1 for a plain graph."""
    if not graph.has("window_index"):
        return 1
    batch = graph
    with torch.random.fork_rng([]), suppress(Exception):  # a draw may read what clients receive
        batch, _ = next(iter(local_steps(method.train, graph, {})), (graph, {}))
    return int(batch.window_index.numel())  # type: ignore[union-attr]

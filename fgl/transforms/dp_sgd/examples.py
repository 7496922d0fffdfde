"""Graphs of single examples for DP-SGD, and checks of the methods that DP-SGD trains.

An error of a check reveals no example of a client.
"""

import copy
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ...checks import reject_if
from ...federation import Method, Params, in_mode
from ...graph import EDGE_FIELDS, NODE_FIELDS, Graph
from ...sparse import SparseMatrix
from ...sparse.matrix import rows_of

LOG = logging.getLogger("fgl")
TRIED = 6  # made-up examples whose single losses are compared with their joint loss
SIZE = 3  # nodes of a made-up graph
NEAR = 1e-4
NOT_ALONE = (
    "Expected examples that are independent, which graphs of a collection and rows of a graph "
    "without edges are, but got a graph with edges: a node is in the gradients of all nodes that "
    "see it, and so is an edge, one that is to be predicted too"
)
PUBLIC = ("num_features", "device")  # not num_classes, which may be the largest label plus one
COUNTS = ("num_nodes", "num_graphs", "num_train", "num_examples")


class Unseen:
    """A view of a client's graph that hides all examples, so that messages cannot contain them.

    The view always reports 1 example and 1 node, since the true numbers are private too.

    Args:
        graph: the client's graph.

    Example:
        >>> graph = fgl.Graph(torch.ones(3, 2), torch.zeros(2, 0, dtype=torch.int64))
        >>> Unseen.of(graph).num_features, Unseen.of(graph).num_train
        (2, 1)
        >>> Unseen.of(graph).x
        Traceback (most recent call last):
        ValueError: Expected a method whose receive and send do not ask what a client's examples ...
    """

    def __init__(self, graph: Graph) -> None:
        self._form = {**{name: getattr(graph, name) for name in PUBLIC}, **dict.fromkeys(COUNTS, 1)}

    @classmethod
    def of(cls, graph: Graph) -> Any:
        """Return a view of a client's graph without any example.

        Type checkers accept the view as a `Graph`.
        """
        return cls(graph)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        reason = "since clipping and noise cover its training alone"
        want = f"a method whose receive and send do not ask what a client's examples say, {reason}"
        reject_if(name not in self._form, want, f"one that reads {name}")
        return self._form[name]


def alone(graph: Graph, which: Tensor) -> Graph:
    """A separate graph that holds one or more of a client's examples.

    The new graph's number of classes is inferred from the labels of these examples only. The number
    of classes of the client's graph is not copied, since it may depend on other examples.

    Args:
        graph: a collection of graphs, or a graph without edges.
        which: indices of the examples, int64 ``[n]`` or a scalar.

    Example:
        >>> graph = fgl.Graph(torch.ones(3, 2), torch.zeros(2, 0).long(), y=torch.tensor([0, 1, 0]))
        >>> alone(graph, torch.tensor(1)).y
        tensor([1])
    """
    which = which.view(-1)
    if graph.y is None:
        raise ValueError("Expected graph.y to be a tensor of labels, but got None")
    y = graph.y[which]
    labels = len(y) and not y.is_floating_point()
    num_classes = int(y.max()) + 1 if labels else None
    if graph.batch is not None:
        chosen = graph.select(which)
        chosen.__dict__["num_classes"] = num_classes
        return chosen
    return Graph(rows_of(graph.x, which).to_dense(), graph.edge_index, y=y, num_classes=num_classes)


def like_row(graph: Graph) -> Graph:
    """A graph with one row of zeros, in the form of a client's graph.

    The function `of_row` fills this graph with values.
    """
    y: Any = graph.y
    return _like_row(graph.num_features, graph.x.dtype, y.dtype, graph.device)


@cache
def _like_row(width: int, dtype: torch.dtype, of_y: torch.dtype, device: torch.device) -> Graph:
    x, y = torch.zeros(1, width, dtype=dtype), torch.zeros(1, dtype=of_y)
    row = Graph(x, torch.zeros(2, 0, dtype=torch.int64), y=y).to(device)
    row.__dict__["num_classes"] = None
    _ = row.adj  # vmap cannot create it
    return row


def of_row(like: Graph, x: Tensor, y: Tensor) -> Graph:
    """A graph with a single node, which has features `x` and label `y`.

    All other fields come from the graph `like`. The new graph is created without checks, so that it
    can be created under vmap.
    """
    row = copy.copy(like)
    row.__dict__.update(x=x[None], y=y[None])
    return row


def check_method(method: Method) -> None:
    """Raise a ValueError if the method mixes examples or changes gradients."""
    want = "no adjust, since gradients are clipped example by example and it would be dropped"
    reject_if(method.train.adjust is not None, f"the method's training to have {want}", "one")
    want = "max_grad_norm to be None, since gradients are clipped example by example"
    reject_if(method.train.max_grad_norm is not None, want, method.train.max_grad_norm)
    kind = nn.modules.batchnorm._BatchNorm
    mixing = [name for name, part in method.model.named_modules() if isinstance(part, kind)]
    reject_if(mixing, "the model to have no batch norm, by which examples see each other", mixing)


@torch.no_grad()
def check_alone(method: Method, graph: Graph, context: Any) -> None:
    """Check on made-up examples that the loss is the mean of the losses of single examples.

    The check reads only the form of the client's graph and none of its examples, so an error
    reveals no example. The loss is called in evaluation mode, at random parameters, so that no term
    of the loss is 0 by chance. Torch's random state is restored afterwards. A loss may also be a
    mean over all known labels. In that case, an example has half of the weight if only half of the
    example's labels are known.

    Args:
        method: the method whose loss is checked.
        graph: the client's graph; only its form is read (`made_up`).
        context: the context of this round.

    Raises:
        ValueError: if the loss is not the mean of the losses of single examples, if the loss raises
            an error for a single example, or if the graph has edges or pairs of nodes.

    Example:
        >>> graph = fgl.Graph(torch.eye(3), torch.zeros(2, 0).long(), y=torch.tensor([0, 1, 0]))
        >>> check_alone(fgl.fedavg(fgl.nn.GCN(3, 4, 2)), graph, {})
    """
    others = (graph.edge_label_index, graph.window_index)
    mixed = graph.edge_index.numel() or any(each is not None for each in others)
    if graph.batch is None and mixed:
        raise ValueError(NOT_ALONE)
    for public, shares in _trials(graph):
        every = torch.arange(public.num_examples, device=graph.device)
        with _asking(method, graph) as params:
            try:
                whole = method.loss(params, alone(public, every), context)
                each = [method.loss(params, alone(public, one), context) for one in every.unbind()]
            except Exception as error:
                reason = str(error) or type(error).__name__
                raise ValueError(
                    "Expected a method whose loss can be asked of one example alone, with what it "
                    f"received, since each one's gradient is clipped, but got {reason}"
                ) from error
        losses = torch.stack(each).double()
        means = [losses.mean(), (losses * shares).sum() / shares.sum()]
        agrees = [torch.isclose(whole.double(), mean, rtol=NEAR, atol=NEAR) for mean in means]
        reject_if(
            losses.isfinite().all() and not any(agrees),
            "a method whose loss is the mean of its examples' losses, since each one's gradient "
            "is clipped alone",
            "one that compares them, adapts to them or draws",
        )


@torch.no_grad()
def usable(method: Method, graph: Graph, context: Any, examples: Tensor) -> Tensor:
    """Int64 indices of the examples for which the loss raises no error.

    All other examples are left out.

    For example, a loss raises an error if a label is not one of the model's classes. Without this
    function, the error would reveal to the server that such an example exists. The client's log
    contains the number of excluded examples.

    Args:
        method, graph, context: the method, the client's graph, and the context of this round.
        examples: int64 ``[n]``, the client's training examples.

    Example:
        >>> y = torch.tensor([0, 9, 1])
        >>> graph = fgl.Graph(torch.eye(3), torch.zeros(2, 0).long(), y=y, num_classes=10)
        >>> usable(fgl.fedavg(fgl.nn.GCN(3, 4, 2)), graph, {}, torch.arange(3))
        tensor([0, 2])
    """
    with _asking(method, graph) as params:
        left = _asked(lambda some: method.loss(params, alone(graph, some), context), examples)
    lost, text = len(examples) - len(left), "The loss of %d of %d examples raises"
    if lost:
        LOG.warning(f"{text}: they count for nothing in DP-SGD", lost, len(examples))
    return left


def _asked(loss: Callable[[Tensor], Any], examples: Tensor) -> Tensor:
    """The examples for which the loss raises no error.

    The examples are found by repeated halving.
    """
    if not len(examples):
        return examples
    try:
        loss(examples)
        return examples
    except Exception:  # a model or a loss may raise anything
        if len(examples) == 1:
            return examples[:0]
    half = len(examples) // 2
    return torch.cat([_asked(loss, examples[:half]), _asked(loss, examples[half:])])


@contextmanager
def _asking(method: Method, graph: Graph) -> Iterator[Params]:
    """Set evaluation mode, and yield random parameters near the method's initial parameters.

    Afterwards, torch's random states are restored.
    """
    cuda = [graph.device] if graph.device.type == "cuda" else []
    with torch.random.fork_rng(cuda), in_mode(method.model, False):
        yield _elsewhere(method)


def _trials(graph: Graph) -> Iterator[tuple[Graph, Tensor]]:
    """Made-up examples, and each example's fraction of known labels, which is 1 or 1/2."""
    whole = made_up(graph)
    y: Any = whole.y
    yield whole, torch.ones(TRIED, device=graph.device)
    if y.is_floating_point() and y.dim() == 2 and y.shape[1] > 1:
        labelled = torch.ones_like(y, dtype=torch.bool)
        labelled[0, 1:] = labelled[1, :1] = False
        yield whole.replace(y=torch.where(labelled, y, torch.nan)), labelled.double().mean(1)


def made_up(graph: Graph) -> Graph:
    """Make up public examples in the form of a client's graph.

    The features of these examples are 0 and 1.

    The result has the fields, widths and dtypes of the client's graph, but its values do not depend
    on the client's examples. The made-up labels are 0 and 1.

    Args:
        graph: a collection of graphs, or a graph without edges.

    Raises:
        ValueError: if the graph has no `y`.

    Example:
        >>> one = fgl.Graph(torch.ones(1, 2), torch.zeros(2, 0).long(), y=torch.tensor([0]))
        >>> other = fgl.Graph(torch.zeros(9, 2), torch.zeros(2, 0).long(), y=torch.arange(9))
        >>> made_up(one).x.equal(made_up(other).x), made_up(one).y.equal(made_up(other).y)
        (True, True)
    """
    if graph.y is None:
        raise ValueError("Expected graph.y to be a tensor of labels, but got None")
    size = 1 if graph.batch is None else SIZE
    nodes, generator = TRIED * size, torch.Generator().manual_seed(0)

    def bits(*shape: int, dtype: torch.dtype) -> Tensor:
        return torch.randint(2, shape, generator=generator).to(dtype)

    x = bits(nodes, graph.num_features, dtype=graph.x.dtype)
    x[torch.arange(nodes), torch.arange(nodes) % max(graph.num_features, 1)] = 1
    edges = torch.zeros(2, 0, dtype=torch.int64)
    if graph.batch is not None:  # paths, there and back
        path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        edges = torch.cat([path + start for start in range(0, nodes, SIZE)], 1)
    y = bits(TRIED, *graph.y.shape[1:], dtype=graph.y.dtype)
    fields: dict[str, Any] = {"train_mask": torch.ones(TRIED, dtype=torch.bool)}
    sizes = {**dict.fromkeys(EDGE_FIELDS, edges.shape[1]), **dict.fromkeys(NODE_FIELDS, nodes)}
    for name, size in {**sizes, "u": TRIED}.items():
        if graph.has(name):
            of: Tensor = getattr(graph, name)
            fields[name] = bits(size, *of.shape[1:], dtype=of.dtype)
    fields = {name: value for name, value in fields.items() if graph.has(name)}
    fields |= {n: torch.zeros_like(fields[n]) for n in ("edge_type", "node_type") if n in fields}
    if "node_id" in fields:
        fields["node_id"] = torch.arange(nodes)
    if graph.batch is not None:
        fields["batch"] = torch.arange(nodes) // SIZE
    features = SparseMatrix.from_dense(x) if isinstance(graph.x, SparseMatrix) else x
    return Graph(features, edges, y=y, backend=graph.backend, **fields).to(graph.device)


def _elsewhere(method: Method) -> Params:
    """Change initial parameters randomly, so that they also differ from received parameters."""
    torch.manual_seed(0)
    params = {**method.initial(), **method.own.personal}
    floats = {name: value for name, value in params.items() if value.is_floating_point()}
    return params | {name: t + 0.1 * torch.randn_like(t) for name, t in floats.items()}

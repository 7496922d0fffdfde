"""Predictions: outputs of a model that reads fields of a graph."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.func import functional_call

from .checks import reject_if
from .graph import EDGE_FIELDS, TIME_FIELDS, Graph
from .graph.windows import unscaled
from .kinds import check_kind, explained

OF_PAIRS = ("edge_label_index", "edge_label_type")
OF_NODES = ("node_type", "z", "pos", "u", *OF_PAIRS, "node_mask", "train_mask", "train_labels")
FIELDS = (*EDGE_FIELDS, *OF_NODES, *TIME_FIELDS)
WITH_EDGE_INDEX = ("x", "edge_index", "batch", "num_nodes", "batch_size", "num_graphs")


class Reads(NamedTuple):
    """The fields of a graph that a `forward` method reads, found by the names of its parameters.

    Args:
        edge_index: True if `forward` reads edges or positions in PyG's format. Otherwise the first
            arguments of `forward` are `Graph.inputs`.
        names: parameters that are passed by name, in order.
        needed: the parameters in `names` that have no default.
        strange: the names of parameters that have no default and are not fields of a graph.
        unnamed: True if the name of the first parameter is not a field of a graph. The first
            parameter then gets the features.
        alone: the parameter's name if `forward` has exactly one parameter. In this case, `predict`
            raises a TypeError.

    Example:
        >>> reads(fgl.nn.GCN(4, 8, 2)).names
        ()
    """

    edge_index: bool
    names: tuple[str, ...]
    needed: frozenset[str]
    strange: tuple[str, ...]
    unnamed: bool = False
    alone: str = ""


_known: WeakKeyDictionary[nn.Module, Reads] = WeakKeyDictionary()


def reads(model: nn.Module) -> Reads:
    """Find the fields that a model reads.

    A model with ``forward(x, adj)`` follows fgl's convention; a model with ``edge_index`` follows
    PyG's convention.

    Example:
        >>> class Net(torch.nn.Module):
        ...     def forward(self, x, edge_index, edge_attr, batch=None):
        ...         return x
        >>> reads(Net()).names, sorted(reads(Net()).needed)
        (('x', 'edge_index', 'edge_attr', 'batch'), ['edge_attr', 'edge_index', 'x'])
    """
    if model not in _known:
        parameters = _parameters(model)
        read = _read(parameters)
        if len(parameters) == 1 and not _takes_more(model):
            read = read._replace(alone=next(iter(parameters)))
        cached = [each for each in model.modules() if getattr(each, "cached", None) is True]
        if read.edge_index and cached:
            raise ValueError(
                "Expected layers without cached=True, since all clients share the module and would "
                f"get the first one's edges, but got {type(cached[0]).__name__}"
            )
        _known[model] = read
    return _known[model]


def _parameters(model: nn.Module) -> dict[str, bool]:
    """Parameters of a `forward` method: dict from name to True if the parameter has no default."""
    inner = getattr(model, "reads_like", getattr(model, "_orig_mod", None))  # torch.compile's
    if isinstance(inner, nn.Module):
        return _parameters(inner)
    stated = getattr(getattr(model, "signature", None), "param_dict", None)  # PyG's Sequential
    parameters = inspect.signature(model.forward).parameters if stated is None else stated
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        name: parameter.default is inspect.Parameter.empty
        for name, parameter in parameters.items()
        if getattr(parameter, "kind", None) not in variadic
    }


def _takes_more(model: nn.Module) -> bool:
    """Whether a `forward` method accepts any number of arguments."""
    kinds = {each.kind for each in inspect.signature(model.forward).parameters.values()}
    return inspect.Parameter.VAR_POSITIONAL in kinds


def _read(parameters: Mapping[str, bool]) -> Reads:
    edge_index = not parameters.keys().isdisjoint(("edge_index", "pos", "z"))
    edge_index = edge_index and "adj" not in parameters
    readable = (*WITH_EDGE_INDEX, *FIELDS) if edge_index else FIELDS
    names = tuple(name for name in parameters if name in readable)
    needed = frozenset(name for name in names if parameters[name])
    others = tuple(name for name, need in parameters.items() if need and name not in readable)
    unnamed = edge_index and next(iter(parameters)) not in readable
    if unnamed:
        others = others[1:]
    dicts = tuple(name for name in others if name in ("x_dict", "edge_index_dict"))
    return Reads(edge_index, names, needed, others if edge_index else dicts, unnamed)


_standing: ContextVar[tuple[nn.Module, nn.Module] | None] = ContextVar("standing", default=None)


@contextmanager
def standing_in(model: nn.Module, own: nn.Module) -> Iterator[None]:
    """A context in which `predict` calls `own` (a client's architecture) instead of `model`.

    Example:
        >>> model, own = torch.nn.Linear(1, 1), torch.nn.Linear(2, 1)
        >>> with standing_in(model, own):
        ...     stand_in(model) is own
        True
    """
    token = _standing.set((model, own))
    try:
        yield
    finally:
        _standing.reset(token)


def stand_in(model: nn.Module) -> nn.Module:
    """Return the given model, or the module that replaces the model inside `standing_in`.

    Example:
        >>> model = torch.nn.Linear(1, 1)
        >>> stand_in(model) is model
        True
    """
    pair = _standing.get()
    return pair[1] if pair is not None and pair[0] is model else model


@explained
def predict(
    model: nn.Module,
    params: Mapping[str, Tensor],
    graph: Graph,
    **options: Any,
) -> Any:
    """A model's output for a graph, with given parameters.

    The model stays in its mode (training or evaluation), so call ``model.eval()`` first to turn off
    dropout. `Result.predict` and the scores of a run use evaluation mode.

    The model's `forward` method gets the fields that have the names of its parameters. A `forward`
    method that has a parameter ``edge_index``, `z` or `pos` is called like PyG's models. Such a
    method can read `x`, `edge_index`, `edge_weight`, `edge_attr`, `edge_type`, `edge_time`,
    `node_type`, `z`, `pos`, `u`, `edge_label_index`, `edge_label_type`, `window_index`,
    `horizon_index`, `node_mask`, `train_mask`, `train_labels`, `batch`, `num_nodes` and
    `num_graphs`. Any other `forward` method gets `Graph.inputs` and the fields of edges and nodes
    that its parameters name. Fields of edges are in the order of the entries of `adj`. If a
    parameter has a default, the graph may lack the field with the parameter's name. A model in
    which every node depends on all other nodes should read `node_mask`. This mask excludes the
    padding in a batch of clients.

    Args:
        model: the architecture, see also `standing_in`.
        params: dict of all parameters and buffers of the model, with the names in
            ``model.state_dict()``.
        graph: the graph.
        options: keyword arguments for the model's `forward` method, such as
            ``return_embedding=True``.

    Returns:
        The output of the `forward` method.

    Raises:
        ValueError: if the graph lacks a field for a parameter without a default, or if `params`
            lacks a tensor of the model.
        TypeError: if `forward` requires a field that no graph has, if `forward` calls PyG's layers
            but has no parameter `edge_index`, or if `forward` reads `edge_index` and the features
            are sparse.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]))
        >>> model = fgl.nn.GCN(2, 8, 3)
        >>> predict(model, dict(model.named_parameters()), graph).shape
        torch.Size([2, 3])
    """
    check_kind("model", model, nn.Module)
    check_kind("graph", graph, Graph)
    model = stand_in(model)
    read = reads(model)
    if read.alone:
        raise TypeError(
            f"Expected {type(model).__name__}'s forward to name what it reads, such as "
            f"(x, edge_index) or (x, adj), but got {read.alone!r} alone"
        )
    if "x_dict" in read.strange:
        raise TypeError(
            f"Expected {type(model).__name__}'s forward to name fields of one graph, but got "
            f"{list(read.strange)}: fgl.nn.Hetero(model, columns, relations, target) makes dicts"
        )
    _check_params(model, params)
    if _tied(model):
        twice = _second_paths(model)
        params = {n: p for n, p in with_ties(model, params).items() if n not in twice}
    call = partial(functional_call, model, dict(params), tie_weights=False)  # tied above
    try:
        return _called(call, model, read, graph, options)
    except FOREIGN as error:
        _check_width(error, model, graph)
        if isinstance(error, TypeError):
            _check_parameters(model, () if read.edge_index else graph.inputs, options)
        if not str(error).startswith(("Expected", "Round")):
            _check_dtype(error, params, graph)
            _explain(error, model, graph, read)
        raise


_names: WeakKeyDictionary[nn.Module, list[frozenset[str]]] = WeakKeyDictionary()


def _check_params(model: nn.Module, params: Any) -> None:
    """Raise an error if `params` lacks a tensor; otherwise the model would use its own tensor."""
    check_kind("params", params, Mapping)
    if model not in _names:
        _names[model] = _names_of(model)
    missing = [sorted(names)[0] for names in _names[model] if names.isdisjoint(params)]
    if missing:
        raise ValueError(
            f"Expected params to have all names of {type(model).__name__}, as model.state_dict() "
            f"has, but got {list(params)[:3] or 'none'} without {missing[:3]}: "
            "{**model.state_dict(), **params} takes the rest from the model"
        )


_ties: WeakKeyDictionary[nn.Module, dict[str, str]] = WeakKeyDictionary()


def with_ties(model: nn.Module, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the parameters; if two parameters are tied, the second gets the value of the first.

    Example:
        >>> layer = torch.nn.Linear(1, 1, bias=False)
        >>> model = torch.nn.Sequential(layer, layer)
        >>> with_ties(model, {"0.weight": torch.ones(1, 1), "1.weight": torch.zeros(1, 1)})
        {'0.weight': tensor([[1.]]), '1.weight': tensor([[1.]])}
    """
    ties = {name: params[one] for name, one in _tied(model).items() if one in params}
    return {**params, **ties}


def _tied(model: nn.Module) -> dict[str, str]:
    """Map the names of tied tensors to the first name of the same tensor.

    A tied parameter or buffer has several names in the model's state. The keys of the dict are all
    of these names except the first name.
    """
    if model not in _ties:
        tensors = model.state_dict(keep_vars=True).items()
        first: dict[int, str] = {}
        each = [(name, first.setdefault(id(tensor), name)) for name, tensor in tensors]
        _ties[model] = {name: one for name, one in each if name != one}
    return _ties[model]


def _second_paths(model: nn.Module) -> set[str]:
    """Redundant names of tensors in modules that the model contains several times.

    Each tensor of such a module has several names. All of these names except the first are
    redundant. `torch.func.functional_call` must get the tensor under one name. With several names,
    `functional_call` would replace the tensor several times. After the call, the model would keep
    the replacement instead of the original tensor.
    """
    pairs = _tied(model).items()
    ends = ([each.rpartition(".") for each in pair] for pair in pairs)
    return {
        ".".join(filter(None, (two[0], two[2])))
        for two, one in ends
        if two[2] == one[2] and model.get_submodule(two[0]) is model.get_submodule(one[0])
    }


def _names_of(model: nn.Module) -> list[frozenset[str]]:
    """Names of each tensor in a model's state; a tied tensor has several names."""
    names: dict[int, set[str]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if isinstance(tensor, Tensor):
            names.setdefault(id(tensor), set()).add(name)
    return [frozenset(each) for each in names.values()]


class OtherWidth(RuntimeError, ValueError):
    """Error for a graph whose number of features differs from the number that a model expects.

    Example:
        >>> str(OtherWidth("Expected GCN to take 4 features, but got 3"))
        'Expected GCN to take 4 features, but got 3'
    """


def _check_width(error: Exception, model: nn.Module, graph: Graph) -> None:
    """Raise a clear error if a matrix product failed because the sizes do not match."""
    width, text = graph.num_features, str(error)
    if "cannot be multiplied" in text or text.startswith(f"Expected x to have shape [{width}, *]"):
        raise OtherWidth(
            f"Expected {type(model).__name__} to take {width} features, as {graph!r} has, but got "
            f"{text}"
        ) from error


def _check_dtype(error: Exception, params: Mapping[str, Tensor], graph: Graph) -> None:
    """Raise a clear error if a product failed because features and parameters differ in dtype."""
    dtypes = sorted({str(own.dtype) for own in params.values() if own.is_floating_point()})
    if "dtype" in str(error) and len(dtypes) == 1 and str(graph.x.dtype) != dtypes[0]:
        raise TypeError(
            f"Expected graph.x to be {dtypes[0]} as the parameters, but got {graph.x.dtype}: "
            f"graph.replace(x=graph.x.to({dtypes[0]})), or model.to({graph.x.dtype})"
        ) from error


FOREIGN = (RuntimeError, ValueError, TypeError, LookupError, AttributeError)


def _explain(error: Exception, model: nn.Module, graph: Graph, read: Reads) -> None:
    """Raise a clearer error if the type or the text of the given error shows the cause."""
    text, name = str(error), type(model).__name__
    if isinstance(error, TypeError | LookupError | AttributeError):
        again = TypeError if isinstance(error, TypeError) else ValueError
        raise again(
            f"{name}'s forward raised {type(error).__name__}: {text}, for {graph!r}"
        ) from error
    if "MessagePassing.propagate" in text and not read.edge_index:
        of = getattr(model, "_orig_mod", model)
        got = list(inspect.signature(of.forward).parameters)
        raise TypeError(
            f"Expected {type(of).__name__}'s forward to name the edges edge_index, since its "
            f"layers are PyG's, but got {got}, which are given fgl's adj"
        ) from error
    if isinstance(error, NotImplementedError) and "not implemented for" in text:
        raise TypeError(
            f"Expected x to be of a dtype that torch computes {name} in on {graph.device}, but got "
            f"{graph.x.dtype}: graph.replace(x=graph.x.float()) and model.float(). {text}"
        ) from error
    if "dtype" in text:
        fields = {each: _field(graph, each) for each in ("edge_weight", "edge_attr", "edge_time")}
        for each, value in fields.items():
            if each not in read.names or value is None or not value.is_floating_point():
                continue
            if value.dtype != graph.x.dtype:
                raise TypeError(
                    f"Expected {each} to be {graph.x.dtype} as x for {name}, but got "
                    f"{value.dtype}: .to({graph.x.dtype})"
                ) from error


def _check_parameters(
    model: nn.Module, inputs: tuple[Any, ...], options: Mapping[str, Any]
) -> None:
    """Raise an error if `forward` lacks a parameter for an input that is passed to it."""
    signature, name = inspect.signature(model.forward), type(model).__name__
    parameters = signature.parameters
    open_ended = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    missing = [] if open_ended else [key for key in options if key not in parameters]
    if "return_embedding" in missing:
        raise TypeError(
            f"Expected {name}'s forward to take return_embedding=True, but got {list(parameters)}: "
            "fgl.nn.Embedded(model, before=...) takes it for any model"
        )
    reject_if(missing, f"{name}'s forward to take {missing}", list(parameters), TypeError)
    try:
        signature.bind_partial(*inputs)
    except TypeError:
        pooled = ", pool), since a client's examples are graphs: rows of nodes have to be pooled, "
        pooling = f"{pooled}as by fgl.nn.GIN" if len(inputs) == 3 else ")"
        raise TypeError(
            f"Expected {name}'s forward to take (x, adj{pooling}, but got {list(parameters)}"
        ) from None


def _called(
    call: Callable[..., Any], model: nn.Module, read: Reads, graph: Graph, options: dict[str, Any]
) -> Any:
    """Call the model with the fields that it reads."""
    if graph.has("window_index"):
        _check_reads_windows(model, read, graph)
    if not read.names:
        return unscaled(graph, call(graph.inputs, options))
    if not read.edge_index:
        own = {name: _field(graph, name) for name in read.names}
        arguments = {**_checked(model, read, own), **options}
        return unscaled(graph, call(graph.inputs, arguments))
    reading = graph.reading
    own = {name: reading.value(name) for name in read.names}
    arguments = {**_checked(model, read, own), **options}
    first = (reading.value("x"),) if read.unnamed else ()
    with reading.around(model):
        return unscaled(graph, call(first, arguments))


def _check_reads_windows(model: nn.Module, read: Reads, graph: Graph) -> None:
    """Raise an error if a model cannot read windows or cannot ignore edges of later times."""
    name = type(model).__name__
    if not read.edge_index and type(model).__module__.startswith("fgl.nn"):
        raise ValueError(
            "Expected a model whose forward reads windows, x [windows, steps, num_nodes, "
            f"num_features], such as (x, edge_index, edge_weight), but got {name} of fgl.nn"
        )
    missing = [field for field in ("edge_time", "window_index") if field not in read.names]
    if missing and graph.has("edge_time"):
        raise ValueError(
            f"Expected {name}'s forward to read {missing[0]}, since edges of times after a window "
            "are among the graph's, but got none"
        )


def check_reads(model: nn.Module, graph: Graph, outer: str) -> None:
    """Raise an error if the clients' common graph lacks a field that the clients' model reads.

    Args:
        model: the clients' model.
        graph: the graph that all clients have in common; its features may be random.
        outer: the name of the method, for the error.

    Raises:
        ValueError: if a field is missing; the error names the field.

    Example:
        >>> probes = fgl.Graph(torch.eye(4), torch.tensor([[0], [1]]))
        >>> check_reads(fgl.nn.GINE(4, 8, 2, edge_dim=3), probes, "fedpub")
        Traceback (most recent call last):
        ValueError: Expected fedpub's probes to have what GINE reads, but got no ['edge_attr']
    """
    needed = reads(model).needed & {*FIELDS, "batch"}
    missing = sorted(name for name in needed if not graph.has(name))
    reject_if(
        missing, f"{outer}'s probes to have what {type(model).__name__} reads", f"no {missing}"
    )


def _field(graph: Graph, name: str) -> Tensor | None:
    if name == "edge_weight":
        return graph.adj.value
    if name == "train_labels":
        return graph.train_labels
    if not graph.has(name):
        return None
    return graph.entries(name) if name in EDGE_FIELDS else getattr(graph, name)


def _checked(model: nn.Module, read: Reads, own: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `forward` by name; raise an error if a needed field is missing."""
    if read.strange:
        raise TypeError(
            f"Expected {type(model).__name__}'s forward to read fields of a graph, or what has a "
            f"default, but got {list(read.strange)}: it may read {(*WITH_EDGE_INDEX, *FIELDS)}"
        )
    missing = [name for name in read.names if name in read.needed and own[name] is None]
    reject_if(
        missing,
        f"the graph to have {missing}, which {type(model).__name__}'s forward reads",
        "none",
    )
    return {name: value for name, value in own.items() if value is not None}

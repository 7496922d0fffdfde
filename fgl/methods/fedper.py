"""FedPer: the server averages one part of the model; each client keeps the other part."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from ..checks import reject_if
from ..federation import Message, Method, Params, State, layer
from ..graph import Graph
from ..personalize import part
from .own_models import own_models


@layer
def fedper(
    fedavg: Method, *, shared: Sequence[str], models: Callable[[Graph], nn.Module] | None = None
) -> Method:
    """Average the layers named in `shared`; each client keeps all other layers (FedPer).

    A client deploys the whole model that it trained last, with its own copy of the shared layers.
    If `shared` names all modules except the norms, the method is FedBN.

    With `models`, clients may have different models. Feature widths, numbers of classes, and all
    layers outside `shared` may then differ. The shared tensors must have the same names, shapes and
    dtypes in all clients' models.

    Args:
        fedavg: FedAvg built for a task. With `models`, the model of `fedavg` only defines the
            shared tensors and the initial values of these tensors. The loss of `fedavg` then calls
            the client's own model.
        shared: names of modules, such as ``("convs.0",)``.
        models: a function ``graph -> module``, called once per client; it returns the client's own
            model. A seed derived from the shared tensors initialises the layers that are not
            shared. By default, all clients have the model of `fedavg`.

    Raises:
        TypeError: if `shared` is a string, or if `models` is not a function.
        ValueError: if a name matches no tensor, or if no name is given. With `models`, the error is
            also raised if all tensors are shared, or if `fedavg` comes from a method that requires
            one architecture.

    Example:
        >>> method = fedper(fgl.fedavg(fgl.nn.GCN(4, 8, 2)), shared=("convs.0",))
        >>> graph = fgl.Graph(torch.eye(4), torch.tensor([[0], [1]]))
        >>> params, context = method.receive({"model": method.initial()}, {}, graph)
        >>> list(method.send(params, context, {}, graph)[0]["model"])
        ['convs.0.bias', 'convs.0.lin.weight']
        >>> wide = lambda graph: fgl.nn.GCN(4, 8, graph.num_classes)
        >>> method = fedper(fgl.fedavg(fgl.nn.GCN(4, 8, 2)), shared=("convs.0",), models=wide)
        >>> list(method.own.modules)
        ['convs.1']

    Source: Arivazhagan et al. 2019, https://arxiv.org/abs/1912.00818
    """
    reject_if(not shared, "shared to name a layer", "none")
    common = part(fedavg.initial(), *shared)  # raises if there is no such layer
    if models is not None:
        return own_models(fedavg, own=others(fedavg.initial(), common), models=models)
    base = own_models(fedavg)

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, state = base.send(params, context, state, graph)
        return {**message, "model": part(message["model"], *shared)}, state

    return replace(base, send=send)


def others(names: Collection[str], common: Collection[str]) -> list[str]:
    """The names of the outermost modules that contain no shared tensor.

    Args:
        names: names of all tensors.
        common: names of the shared tensors.

    Raises:
        ValueError: if all tensors are shared.

    Example:
        >>> others(["in.w", "in.b", "convs.0.w", "convs.1.w"], ["convs.0.w"])
        ['in', 'convs.1']
    """
    out: dict[str, None] = {}
    for name in names:
        if name in common:
            continue
        ends = [i for i, letter in enumerate(name) if letter == "."] + [len(name)]
        paths = [name[:end] for end in ends]
        alone = [p for p in paths if not any(each.startswith(f"{p}.") for each in common)]
        out[alone[0]] = None
    want = "shared to leave something to the clients, whose models differ"
    reject_if(not out, want, f"all of {list(names)}")
    return list(out)

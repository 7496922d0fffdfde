"""Checks of the network, the client's graph and the upload that a method gets."""

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..checks import reject_if
from ..federation import Message, Method, Params
from ..graph import Graph
from ..nn import observed
from ..predict import predict

Network = TypeVar("Network", bound=nn.Module)


def network_of(method: Method, kind: type[Network], outer: str, way: str) -> Network:
    """Return the model that clients train, if it is of the given class.

    Args:
        method: the method that the builder `outer` extends.
        kind: a class of `fgl.nn`.
        outer: name of the builder that calls this function.
        way: advice on how to build a suitable method; the error message ends with this text.

    Raises:
        ValueError: if the model is not of the class `kind`.

    Example:
        >>> network_of(fgl.fedavg(fgl.nn.GCN(4, 8, 2)), fgl.nn.SSP, "fedssp", "model='ssp'")
        Traceback (most recent call last):
        ValueError: Expected fedssp to be given a method that trains an fgl.nn.SSP, but got GCN:...
    """
    if isinstance(method.model, kind):
        return method.model
    raise ValueError(
        f"Expected {outer} to be given a method that trains an fgl.nn.{kind.__name__}, but got "
        f"{type(method.model).__name__}: {way}"
    )


def embedder(model: nn.Module) -> Callable[[Params, Graph], Tensor]:
    """A function of parameters and a graph that returns the embeddings of a frozen model.

    Raises:
        TypeError: if the model has no embeddings.

    Example:
        >>> model = fgl.nn.GCN(4, 8, 2)
        >>> graph = fgl.Graph(torch.eye(4), torch.tensor([[0], [1]]))
        >>> embedder(model)(model.state_dict(), graph).shape
        torch.Size([4, 8])
    """
    frozen = copy.deepcopy(model).eval()
    with observed(model):
        pass  # raises if the model has no embeddings

    @torch.no_grad()
    def embed(params: Params, graph: Graph) -> Tensor:
        embedding: Tensor = predict(frozen, params, graph, return_embedding=True)[1]
        return embedding

    return embed


def check_one_graph(graph: Graph, outer: str) -> None:
    """Raise a ValueError if a client of the method `outer` holds a collection of graphs.

    Example:
        >>> check_one_graph(fgl.Graph(torch.eye(2), torch.tensor([[0], [1]])), "fedgm")
    """
    reject_if(graph.batch is not None, f"{outer}'s clients to hold one graph", "a collection")


def check_sees_all(outer: str, got: int, want: int) -> None:
    """Raise a ValueError unless a local step reads all nodes of a client.

    Args:
        outer: name of the method.
        got: number of nodes that the step reads.
        want: number of nodes of the client.
    """
    reject_if(
        got != want,
        f"{outer} to see a client's {want} nodes in every step",
        f"{got}: it does not train on drawn nodes",
    )


def check_entry(message: Message, key: str, shape: Sequence[int]) -> Tensor:
    """Return an upload's tensor.

    Raise a ValueError unless the tensor exists and has the given shape.

    Example:
        >>> check_entry({"energy": torch.tensor(2.0)}, "energy", [])
        tensor(2.)
    """
    entry = message.get(key)
    if isinstance(entry, Tensor) and list(entry.shape) == list(shape):
        return entry
    got = list(entry.shape) if isinstance(entry, Tensor) else type(entry).__name__
    raise ValueError(f"Expected {key} to have shape {list(shape)}, but got {got}")


def check_prototypes(message: Message, most: float) -> tuple[Tensor, Tensor]:
    """Raise a ValueError unless an upload has prototypes and each prototype's number of examples.

    Args:
        message: the upload, with the entries ``"prototypes"`` and ``"counts"``. Both entries are
            returned.
        most: largest allowed sum of the counts.

    Example:
        >>> check_prototypes({"prototypes": torch.eye(2), "counts": torch.tensor([3, 0])}, 5)[1]
        tensor([3, 0])
    """
    rows, counts = message.get("prototypes"), message.get("counts")
    if rows is None or counts is None or rows.dim() != 2 or rows.shape[:1] != counts.shape:
        raise ValueError("Expected a row of prototypes for each count, but got other shapes")
    together = counts.double().sum()  # integers would wrap around
    odd = counts.is_floating_point() or not len(counts) or counts.min() < 0
    want = f"counts to be integers from 0, {most:g} together"
    reject_if(odd or together > most, want, counts.tolist())
    return rows, counts


def latest_uploads(
    state: Mapping[str, Any], inbox: Mapping[int, Message], keys: Collection[str]
) -> dict[str, Any]:
    """The newest entries of all clients: from a client's upload in this round, or from the state.

    Example:
        >>> latest_uploads({"n": {"0": 3, "1": 4}}, {1: {"n": 5}}, ["n"])
        {'n': {'0': 3, '1': 5}}
    """
    new = {key: {str(k): message[key] for k, message in inbox.items()} for key in keys}
    return {key: {**state.get(key, {}), **new[key]} for key in keys}

"""Models of clients that differ: each client has its own, and all share one part of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ...graph import Graph
from ...seeds import set_seed
from .describe import architecture, bytes_of
from .message import Params, check_model


class _Own(NamedTuple):
    """A client's model: its kind, the module that is called, its first tensors."""

    kind: Hashable
    module: nn.Module
    first: Params


class Models:
    """The clients' own models, made from their graphs once; equal models are one module.

    The initial tensors of a client's own part are drawn with a seed that follows from the common
    part and is the same for all clients. So they are the same after a resume and on another
    machine.

    Args:
        make: ``graph -> module``, makes a client's own model.
        model: a model with the part that all clients share.
        own: names of modules of `model` that are each client's own.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.Linear(2, 2))
        >>> def make(graph):
        ...     return torch.nn.Sequential(torch.nn.Linear(graph.num_features, 2), model[1])
        >>> models = Models(make, model, ["0"])
        >>> models(fgl.Graph(torch.eye(3), torch.zeros(2, 0).long()))[0].weight.shape
        torch.Size([2, 3])
    """

    def __init__(
        self, make: Callable[[Graph], nn.Module], model: nn.Module, own: Collection[str]
    ) -> None:
        state = model.state_dict()
        self.make, self.common = make, without(state, own)
        self._seed = int(_digest(self.common), 16) >> 1
        self._known: WeakKeyDictionary[Graph, _Own] = WeakKeyDictionary()
        self._kinds: dict[Hashable, list[_Own]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """The fields to pickle; the models are made again."""
        return {**vars(self), "_known": None, "_kinds": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _known=WeakKeyDictionary())

    def __call__(self, graph: Graph, name: str = "the client's model") -> nn.Module:
        """A client's model.

        Args:
            graph: the client's graph.
            name: the model's name in errors.

        Raises:
            TypeError: if `make` returns no module, or a common tensor is of another dtype.
            ValueError: if a common tensor is missing or of another shape, or parameters are tied.
        """
        return self._of(graph, name).module

    def kind(self, graph: Graph) -> Hashable:
        """A key that is equal for clients whose models can train as one batch."""
        return self._of(graph).kind

    def first(self, graph: Graph) -> Params:
        """The tensors that a client starts from."""
        return dict(self._of(graph).first)

    def _of(self, graph: Graph, name: str = "the client's model") -> _Own:
        if graph not in self._known:
            self._known[graph] = self._once(self._made(graph, name))
        return self._known[graph]

    def _made(self, graph: Graph, name: str) -> nn.Module:
        with torch.random.fork_rng([graph.device] if graph.device.type == "cuda" else []):
            set_seed(self._seed)
            module: Any = self.make(graph)
        if not isinstance(module, nn.Module):
            raise TypeError(f"Expected {name} to be a module, but got {type(module).__name__}")
        check_has_shapes(module, name)
        module.to(graph.device).eval()  # as the method's own in a run, but for local training
        state = module.state_dict()
        check_model({key: state[key] for key in state if key in self.common}, self.common, name)
        check_untied(module, name)
        return module

    def _once(self, module: nn.Module) -> _Own:
        """The common module of all clients whose modules and first tensors are equal."""
        first = {name: t.detach().clone() for name, t in module.state_dict().items()}
        shapes = tuple((name, t.dtype, t.shape, t.device) for name, t in first.items())
        kind = json.dumps(architecture(module)), shapes
        models = self._kinds.setdefault(kind, [])
        for other in models:
            if all(first[name].equal(tensor) for name, tensor in other.first.items()):
                return other
        models.append(_Own(kind, module, first))
        return models[-1]

    def described(self, graph: Graph) -> dict[str, Any]:
        """A client's own part, described for JSON: shapes and a digest of the architecture."""
        own = self._of(graph)
        shapes = {n: list(t.shape) for n, t in own.first.items() if n not in self.common}
        text = json.dumps(architecture(own.module)).encode()
        digest = hashlib.blake2b(text, digest_size=4).hexdigest()
        return {**shapes, "architecture": f"{type(own.module).__name__} #{digest}"}


def without(tensors: Mapping[str, Tensor], own: Collection[str]) -> dict[str, Tensor]:
    """The tensors that belong to none of the named modules, detached.

    Example:
        >>> list(without(torch.nn.Linear(1, 1).state_dict(), ["bias"]))
        ['weight']
    """
    return {name: t.detach() for name, t in tensors.items() if not is_under(name, own)}


def is_under(name: str, modules: Collection[str]) -> bool:
    """Whether a tensor belongs to one of the named modules.

    Example:
        >>> is_under("conv.weight", ["conv"]), is_under("conv2.weight", ["conv"])
        (True, False)
    """
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def check_has_shapes(model: nn.Module, name: str = "model") -> None:
    """Raise a ValueError if a lazy layer has not seen data yet.

    Example:
        >>> check_has_shapes(torch.nn.LazyLinear(1))
        Traceback (most recent call last):
        ValueError: Expected model to have parameters of known shapes, but got lazy ones in
            LazyLinear: call it once on a client's data before, model(graph.x, graph.edge_index)
    """
    if any(map(nn.parameter.is_lazy, [*model.parameters(), *model.buffers()])):
        raise ValueError(
            f"Expected {name} to have parameters of known shapes, but got lazy ones in "
            f"{type(model).__name__}: call it once on a client's data before, "
            "model(graph.x, graph.edge_index)"
        )


def check_untied(model: nn.Module, name: str = "the model") -> None:
    """Raise a ValueError if two parameters share one tensor, since training would separate them.

    Example:
        >>> check_untied(torch.nn.Linear(1, 1))
    """
    names = [key for key, _ in model.named_parameters(remove_duplicate=False)]
    once = [key for key, _ in model.named_parameters()]
    if len(names) != len(once):
        tied = [key for key in names if key not in once]
        raise ValueError(f"Expected {name}'s parameters to be untied, but got {tied} tied")


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in tensors.items():
        digest.update(name.encode())
        digest.update(bytes_of(tensor))
    return digest.hexdigest()

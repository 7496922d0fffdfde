"""Settings: the fields that the settings of several tasks have in common.

Each field is a command-line flag.
"""

import hashlib
import inspect
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from torch import Tensor, nn

from .. import data
from ..checks import Count, Share, check_device, reject_if
from ..data import Damage
from ..data.partitions import Skew
from ..federation import fold_in
from ..graph import Graph
from ..kinds import typed
from ..seeds import drawing_from, one_thread
from .task import Local, Task

Kind = TypeVar("Kind")
Network = TypeVar("Network", bound=nn.Module)
FIRST = ("dataset", "clients")
LAST = ("skew", "damage", "local", "device", "sparse")


@typing.dataclass_transform(kw_only_default=True, frozen_default=True)
def declares(kind: type[Kind]) -> type[Kind]:
    """Mark a class as a base class of settings; only `setting` uses the fields of the class."""
    return kind


@typing.dataclass_transform(kw_only_default=True, frozen_default=True)
def setting(kind: type[Kind]) -> type[Kind]:
    """Convert a class to a frozen dataclass. The dataclass's fields are in the order of the flags.

    `dataset` and `clients` come first. `skew`, `damage`, `local`, `device` and `sparse` come last.
    All other fields come after `clients` and before `skew`. The last declaration of a field in the
    class and its bases determines the field's place, even if this declaration only changes the
    default.

    Example:
        >>> @setting
        ... class Small(Setting):
        ...     clients: int = 2
        ...     parts: int = 3
        ...     hidden: int = 8
        >>> Small(parts=4)
        Small(dataset=..., clients=2, dropout=0.5, parts=4, hidden=8, damage=..., local=...,
        device=...)
    """
    types = typing.get_type_hints(kind, include_extras=True)
    declared = [name for each in reversed(kind.__mro__) for name in inspect.get_annotations(each)]
    place = {name: index for index, name in enumerate(declared)}
    between = sorted(types.keys() - {*FIRST, *LAST}, key=lambda name: place[name])
    kind.__annotations__ = {n: types[n] for n in (*FIRST, *between, *LAST) if n in types}
    if "load" in vars(kind):
        kind.load = typed(kind.load)  # type: ignore[attr-defined]
    return typed(dataclass(frozen=True, kw_only=True)(kind))


@declares
class Setting:
    """Fields that all tasks' settings have."""

    dataset: str = "synthetic"
    """A known dataset, or the name of a folder under FGL_DATA."""
    clients: Any
    """Number of clients."""
    hidden: Count
    """Width of a hidden layer."""
    dropout: Share = 0.5
    """Fraction of units set to zero."""
    damage: Damage = Damage()
    local: Local = Local()
    device: str = "cpu"
    """The device to compute on, as torch names it."""

    published: ClassVar[dict[str, dict[str, Any]]] = {}

    def __post_init__(self) -> None:
        check_device(self.device)

    if not TYPE_CHECKING:  # else mypy would accept any name

        def __getattr__(self, name: str) -> Any:
            of, task = type(self).__name__, name in Task.__dataclass_fields__
            hint = f": {of}(...).load(seed=0) makes the task, which has it" if task else ""
            error = f"Expected {of} to have {name}, but got none{hint}"
            raise AttributeError(error, name=name, obj=self)

    def damaged(
        self, clients: Sequence[Graph], seed: int, features: Callable[[Graph], Graph] | None = None
    ) -> list[Graph]:
        """The graphs of the clients after `fgl.data.damaged` has removed or corrupted data."""
        chance = fold_in(seed, "damage")
        return data.damaged(clients, self.damage, seed=chance, features=features)

    def seeded(self, seed: int, make: Callable[..., Network], *sizes: Any, **how: Any) -> Network:
        """A network on the setting's device, created with a seed.

        `seed` determines the initial parameters of the network.
        """
        with one_thread(), drawing_from(seed):
            return make(*sizes, **how).to(self.device)


PARTITIONS: dict[str, Any] = {
    "louvain": data.partitions.louvain_partition,
    "louvain_igraph": partial(data.partitions.louvain_partition, engine="igraph"),
    "leiden": data.partitions.leiden_partition,
    "metis": data.partitions.metis_partition,
    "ldg": data.partitions.ldg_partition,
    "random": data.partitions.random_partition,
}


REMEMBERED = 32  # number of remembered partitions per process,
LARGE = 200_000  # of graphs with fewer nodes
_partitions: dict[Any, tuple[Tensor, ...]] = {}


def partitioned(name: str, graph: Graph, num_clients: int, **how: Any) -> list[Tensor]:
    """Cut a graph by one of `PARTITIONS`; return a tensor of node ids per client.

    Results are cached, since all trials of a study use the same partition, and Louvain takes
    seconds.

    Example:
        >>> graph = fgl.data.load("synthetic")
        >>> [part.numel() for part in partitioned("random", graph, 3, seed=0)]
        [903, 903, 902]
    """
    cut = PARTITIONS[name]
    if graph.num_nodes >= LARGE:
        large: list[Tensor] = cut(graph, num_clients, **how)
        return large
    edges = graph.edge_index.cpu().contiguous().numpy()
    digest = hashlib.sha256(edges.tobytes()).hexdigest()
    key = cut, digest, graph.num_nodes, num_clients, tuple(sorted(how.items()))
    if key not in _partitions:
        parts = cut(graph, num_clients, **how)
        while len(_partitions) >= REMEMBERED:
            del _partitions[next(iter(_partitions))]
        _partitions[key] = tuple(part.cpu() for part in parts)
    return [part.to(graph.device, copy=True) for part in _partitions[key]]


@declares
class Cut(Setting):
    """The fields that tasks share if their clients are parts of one graph."""

    clients: Count = 5
    partition: Literal["louvain", "louvain_igraph", "leiden", "metis", "ldg", "random"] = "louvain"
    """The division of nodes: communities, a balanced cut (metis, or ldg for large graphs), or
    at random."""
    skew: Skew = Skew()
    sparse: Literal["torch", "torch_sparse"] = "torch"
    """The library of the sparse kernels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        expected = f"unseen to leave a client of {self.clients}"
        reject_if(self.skew.unseen >= self.clients, expected, self.skew.unseen)

    def split_nodes(self, split: Any, seed: int) -> Graph:
        """Load the dataset, and split its nodes into training, validation and test nodes."""
        graph = data.splits.split(data.load(self.dataset), split, dataset=self.dataset, seed=seed)
        return graph.replace(backend=self.sparse).to(self.device)

    def check_all_train(self) -> None:
        """Raise a ValueError if `unseen` is above 0 but the setting cannot score unseen clients."""
        unseen = self.skew.unseen
        reject_if(unseen, f"unseen to be 0 for {type(self).__name__}", unseen)

    def cut(self, graph: Graph, seed: int) -> list[Tensor]:
        """The clients' node ids: one tensor per client."""
        if self.skew.skew_by != "nothing":
            return self.skew.parts(graph, self.clients, seed=seed)
        return partitioned(self.partition, graph, self.clients, seed=seed)

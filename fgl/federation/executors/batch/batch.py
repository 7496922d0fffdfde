"""The batch executor: clients run in this process, and several of them train as one batch."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor

from ....graph import Graph
from ....seeds import fold_in
from ....transfer import to_host
from ...gate.guard import unchanged
from ...method.message import State, pick
from ...method.method import Method
from ...training.optimizer import is_scalar
from ...training.train import Trained
from ..loop import Loop, Ready, Score, kept_optimizer
from .cohort import Cohort
from .padding import GROUP
from .train_cohort import kind_of, train_cohort


class Batch(Loop):
    """Executor that trains up to `clients_at_once` clients in this process as one batch.

    Clients of similar size are grouped into a cohort, so that little padding is needed. Cohorts are
    reused in later rounds. A cohort is split if its contexts have different keys.

    Args:
        method: the method; its loss must run under `vmap`.
        clients: every client's graph.
        clients_at_once: the largest number of clients in a cohort.
        or_alone: the behaviour if some clients cannot be batched. If True, all clients train one at
            a time from then on, and `one_by_one` gives the reason. By default an error is raised.
        seed, states, score: see `Loop`.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> batch = Batch(fgl.fedavg(fgl.nn.GCN(2, 8, 2)), [graph] * 5, 2, seed=0)
        >>> batch.groups([0, 1, 2, 3, 4])
        [(0,), (1, 2), (3, 4)]
    """

    def __init__(
        self,
        method: Method,
        clients: Sequence[Graph],
        clients_at_once: int,
        *,
        or_alone: bool = False,
        seed: int,
        states: Mapping[int, State] | None = None,
        score: Score | None = None,
    ) -> None:
        super().__init__(method, clients, seed=seed, states=states, score=score)
        self.clients_at_once, self._or_alone = clients_at_once, or_alone
        self._checked: dict[Any, set[str]] = {}  # by model, kinds of padding that were compared
        self._checked_in = -1  # the round of these comparisons
        self._cohorts: dict[tuple[int, ...], Cohort] = {}

    def groups(self, who: Sequence[int]) -> list[tuple[int, ...]]:
        """Form groups of clients with similar sizes and with equal step counts of their optimisers.

        The groups have nearly equal numbers of clients.

        If clients have their own models, each group contains only models of one kind.
        """
        if self.one_by_one:
            self.padding = 0.0
            return super().groups(who)
        by_kind: dict[Any, list[int]] = {}
        ages = _ages({client: self.states.get(client, {}) for client in who})
        for client in sorted(who, key=lambda client: self.clients[client].num_nodes):
            kind = kind_of(self.method, self.clients[client])
            by_kind.setdefault((ages[client], kind), []).append(client)
        groups: list[tuple[int, ...]] = []
        for members in by_kind.values():
            count = -(-len(members) // self.clients_at_once)
            bounds = [len(members) * i // count for i in range(count + 1)]
            groups += [tuple(sorted(members[a:b])) for a, b in pairwise(bounds)]
        size = [graph.num_nodes for graph in self.clients.values()]
        slots = sum(len(group) * max(size[c] for c in group) for group in groups)
        self.padding = 1 - sum(size[c] for c in who) / slots if slots else 0.0
        # Cohorts that this round does not use are dropped, or they would grow without bound.
        used = [own for own in self._cohorts if any({*own} <= {*group} for group in groups)]
        self._cohorts = pick(self._cohorts, used)
        return groups

    def _trained(self, index: int, ready: Sequence[Ready]) -> list[Trained]:
        if not self.one_by_one:
            try:
                return super()._trained(index, ready)
            except Exception as error:  # one of a client's own comes again when it is alone
                if not self._or_alone or len(ready) == 1:
                    raise
                self.one_by_one = str(error) or type(error).__name__
        return [done for one in ready for done in super(Batch, self)._trained(index, [one])]

    def _minimised(self, index: int, ready: Sequence[Ready]) -> list[Trained]:
        trained: dict[int, Trained] = {}
        for rows in _alike(self.method, ready):
            some = [ready[row] for row in rows]
            alone = len(some) == 1
            done = super()._minimised(index, some) if alone else self._together(index, some)
            trained.update(zip(rows, done, strict=True))
        return [trained[row] for row in range(len(ready))]

    def _together(self, index: int, ready: Sequence[Ready]) -> list[Trained]:
        if index != self._checked_in and index.bit_count() <= 1:  # a term may begin late
            for kinds in self._checked.values():
                kinds &= {kind for kind in kinds if kind.startswith(GROUP)}
            self._checked_in = index
        members = tuple(one.client for one in ready)
        if members not in self._cohorts:
            self._cohorts[members] = Cohort([one.graph for one in ready], members)
        cohort = self._cohorts[members]
        with unchanged(cohort.tensors):  # copies of the graphs' tensors, which stay for all rounds
            return train_cohort(
                self.method,
                [one.params for one in ready],
                cohort,
                [one.context for one in ready],
                seeds=[fold_in(self.seed, index, client) for client in members],
                optimizers=[kept_optimizer(self.method, one.state) for one in ready],
                checked=self._checked.setdefault(kind_of(self.method, ready[0].graph), set()),
                tracer=self._tracer,
            )


def _alike(method: Method, ready: Sequence[Ready]) -> list[list[int]]:
    """Group the positions of clients by the keys of their contexts and of dicts in the contexts.

    If clients have their own parts of the model, the shapes of these parts must also be equal
    within a group.
    """
    by_kind: dict[Any, list[int]] = {}
    for row, one in enumerate(ready):
        keys: Any = ()
        if isinstance(one.context, Mapping):
            keys = tuple(
                (key, tuple(value) if isinstance(value, Mapping) else None)
                for key, value in one.context.items()
            )
        shapes = [(name, value.shape) for name, value in one.params.items() if method.own.modules]
        by_kind.setdefault((keys, tuple(shapes)), []).append(row)
    return list(by_kind.values())


def _ages(states: Mapping[int, State]) -> dict[int, tuple[tuple[str, float], ...]]:
    """The entries and the step counts of each stored optimiser.

    Clients in a cohort must have optimisers with equal entries and equal step counts, since a
    cohort has one optimiser.
    """
    kept_by: dict[int, Any] = {k: state.get("optimizer", {}) for k, state in states.items()}
    # A method may keep a tensor of its own under this name.
    optimizers = {k: {} if isinstance(own, Tensor) else own for k, own in kept_by.items()}
    counts = [value for own in optimizers.values() for p, value in own.items() if is_scalar(p)]
    ages = iter(to_host(*counts))
    return {
        client: tuple((path, float(next(ages)) if is_scalar(path) else 0.0) for path in own)
        for client, own in optimizers.items()
    }

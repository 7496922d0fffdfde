"""Local steps of a cohort: a step's graphs, contexts and masks, and `vmap` over the clients."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from ....graph import Graph
from ....seeds import set_seed
from ....sparse.batched_pattern import Member
from ...method.message import Params
from ...method.method import Method, Training
from ...method.rules import Ragged
from ...training.minibatches import local_steps, with_train_mask
from ...training.optimizer import Layout, named
from ...training.train import check_scalar
from .cohort import ONE_BY_ONE, Cohort, Stacked, taken_apart

Hook = Callable[[Params, Params, Any], Params]


class View:
    """The graphs, contexts and training masks of one local step of a cohort.

    Args:
        method: the method; its loss and hooks are called once for all clients.
        layout: layout of the stacked parameters.
    """

    cohort: Any  # a Cohort

    def __init__(self, method: Method, layout: Layout) -> None:
        self.method, self.layout = method, layout
        self.contexts: Sequence[Any] = ()
        self.mask: Tensor | None = None
        self.is_new = True
        self._parts: dict[str, Stacked] = {}
        self._stacked: dict[tuple[int, ...], tuple[list[Any], Stacked]] = {}
        self._known: Mapping[tuple[int, ...], tuple[list[Any], Stacked]] = {}

    def at(self, cohort: Cohort, contexts: Sequence[Any], mask: Tensor | None) -> View:
        """The view of a step; values that were stacked for the previous step are reused."""
        view = View(self.method, self.layout)
        view.cohort, view.contexts, view.mask = cohort, contexts, mask
        same = self.__dict__.get("cohort") is cohort
        view.is_new = not same or contexts is not self.contexts
        if same:
            view._known = self._stacked
        if not view.is_new:
            view._parts, view._stacked = self._parts, self._stacked
        return view

    def part(self, key: str) -> Stacked:
        """An entry of the clients' contexts, which is stacked at its first use."""
        if key not in self._parts:
            values = [context[key] for context in self.contexts]
            which = tuple(map(id, values))  # the values are held, so their ids stay theirs
            cached = self._known.get(which)
            stack = self.cohort.stack(f"context[{key!r}]", values) if cached is None else cached[1]
            self._stacked[which] = values, stack
            self._parts[key] = stack
        return self._parts[key]

    def read(self) -> list[str]:
        """Names of the context entries read so far; empty if all clients share one context."""
        return list(self._parts)

    def context_tensors(self, keys: Sequence[str]) -> tuple[list[Tensor], list[Any]]:
        """Split the contexts' entries at `keys` into two lists: tensors, and all other values."""
        first = self.contexts[0]
        if all(context is first for context in self.contexts):
            return taken_apart(first)
        if not all(isinstance(context, Mapping) for context in self.contexts):
            return [], [*self.contexts]
        if any(key not in first for key in keys):
            return [], [None]
        parts = [self.part(key) for key in keys]
        tensors = [tensor for part in parts for tensor in part.tensors]
        return tensors, [list(first), *(each for part in parts for each in part.fixed)]

    def renewed(self) -> View:
        """A view of this step with copies of two things: the mask, and the contexts' tensors.

        The copies have no cached values: values that were computed from an original tensor are
        computed again.
        """
        view = type(self)(self.method, self.layout)
        memo: dict[int, Any] = {}
        view.cohort, view.contexts = self.cohort, [_copied(each, memo) for each in self.contexts]
        view.mask = None if self.mask is None else self.mask.clone()
        return view

    def context(self, client: Member) -> Any:
        """The current client's context."""
        first = self.contexts[0]
        if all(context is first for context in self.contexts):
            return first
        if all(isinstance(context, Mapping) for context in self.contexts):
            return _Context(self, client)
        return self.cohort.stack("context", self.contexts)(client)

    def losses(self, stacks: Params) -> Tensor:
        """The clients' losses ``[K]``.

        Each client uses its own row of the stacked parameters.
        """

        def loss(client: Member, mask: Tensor | None, local: Params) -> Tensor:
            graph = self.cohort.graph(client)
            if mask is not None:
                graph = with_train_mask(graph, mask)
            value = self.method.loss(self.layout.turn(local), graph, self.context(client))
            check_scalar(value)
            return value

        return self._mapped("loss", loss, stacks)  # type: ignore[no-any-return]

    def hook(self, name: str, function: Hook) -> Hook:
        """A hook that calls `Training.adjust` or `settle` for each client and its context."""
        function = named(name, function)

        def one(client: Member, mask: Tensor | None, first: Params, second: Params) -> Params:
            return function(first, second, self.context(client))

        def all_at_once(first: Params, second: Params, context: Any) -> Params:
            changed: Params = self._mapped(name, one, first, second)
            return changed

        return all_at_once

    def _mapped(self, name: str, function: Callable[..., Any], *trees: Params) -> Any:
        """Map a function over clients.

        If an operation is not supported, the error names the operation and a remedy.
        """
        stacks = self.cohort.known()
        clients: list[Member] = []

        def one(index: Tensor, mask: Tensor | None, parts: list[Tensor], *own: Params) -> Any:
            client = Member(index, {id(stack): p for stack, p in zip(stacks, parts, strict=True)})
            clients.append(client)
            return function(client, mask, *own)

        dims = (0, None if self.mask is None else 0, 0, *[0] * len(trees))
        try:
            out = vmap(one, dims, randomness="different")(
                self.cohort.index, self.mask, stacks, *trees
            )
        except RuntimeError as error:
            text = str(error)
            if not any(word in text for word in ("vmap", "functorch", "atching rule")):
                raise
            frames = traceback.extract_tb(error.__traceback__)
            frame = [f for f in frames if "torch" not in Path(f.filename).parts][-1]
            where = f"{Path(frame.filename).name}:{frame.lineno} `{frame.line}`"
            raise RuntimeError(
                f"Expected the {name} to run under torch.func.vmap, but got {where}: "
                f"{text.splitlines()[0]}{ONE_BY_ONE}"
            ) from error
        self.cohort.remember(clients[0].lifted)
        return out


class Alone(View):
    """A client's local step, without `vmap`.

    The field `cohort` is the client's graph, not a `Cohort`.
    """

    @classmethod
    def of(cls, method: Method, layout: Layout, graph: Graph, context: Any) -> Alone:
        """Return a view of one step of the client that holds this graph."""
        view = cls(method, layout)
        view.cohort, view.contexts = graph, [context]
        return view

    def losses(self, stacks: Params) -> Tensor:
        """The client's loss at the given parameters and buffers."""
        value = self.method.loss(self.layout.turn(stacks), self.cohort, self.contexts[0])
        check_scalar(value)
        return value


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    """A copy of a context with copied tensors.

    If a tensor occurs twice, it is copied once.
    """
    if id(value) in memo:
        return memo[id(value)]
    new = value
    if isinstance(value, Tensor) and value.layout == torch.strided:
        new = value.clone()
    elif isinstance(value, Ragged):
        new = Ragged(_copied(value.values, memo), _copied(value.mask, memo))
    elif type(value) in (list, tuple):
        new = type(value)(_copied(each, memo) for each in value)
    elif isinstance(value, Mapping):
        new = {key: _copied(each, memo) for key, each in value.items()}
    memo[id(value)] = new
    return new


class _Context(Mapping[str, Any]):
    """The context of a client inside `vmap`.

    An entry is stacked when the loss first reads it.
    """

    def __init__(self, view: View, client: Member) -> None:
        self._view, self._client = view, client

    def __getitem__(self, key: str) -> Any:
        if key not in self._view.contexts[0]:
            raise KeyError(key)
        return self._view.part(key)(self._client)

    def __iter__(self) -> Iterator[str]:
        return iter(self._view.contexts[0])

    def __len__(self) -> int:
        return len(self._view.contexts[0])


class StepPlan:
    """All steps of a cohort.

    All clients of the cohort take the same number of steps. A client that has fewer steps than
    another client repeats its last step, and the results of the repetitions are ignored.

    Args:
        how: settings of local training: the number of steps, or the `batches`.
        cohort: the clients.
        contexts: the clients' contexts, one per client.
        seeds: one seed per client; a client's seed is the same as in a run without batches.
    """

    def __init__(
        self, how: Training, cohort: Cohort, contexts: Sequence[Any], seeds: Sequence[int]
    ) -> None:
        self.cohort = cohort
        self.given: Sequence[Any] = contexts
        self.drawn: list[Sequence[tuple[Graph, Any]]] = []
        for graph, context, seed in zip(cohort.graphs, contexts, seeds, strict=True):
            if how.batches is None:  # nothing is drawn
                self.drawn.append(local_steps(how, graph, context))
                continue
            with torch.random.fork_rng([]):
                set_seed(seed)
                self.drawn.append(local_steps(how, graph, context))
        self.counts = [len(steps) for steps in self.drawn]

    def at(self, step: int) -> tuple[Cohort, Sequence[Any], Tensor | None]:
        """Return a step's cohort, its contexts, and training masks ``[K, num_nodes]`` or None.

        If the contexts have not changed since the previous step, the same list object is returned
        again.
        """
        own = self.cohort.graphs
        pairs = [steps[min(step, len(steps) - 1)] if steps else None for steps in self.drawn]
        idle = next(pair for pair in pairs if pair)  # the batch of a client without any step
        contexts = [(pair or idle)[1] for pair in pairs]
        if any(new is not old for new, old in zip(contexts, self.given, strict=True)):
            self.given = contexts
        graphs = [pair[0] if pair else None for pair in pairs]
        whole = [None if g is None else g.__dict__.get("masked", g) for g in graphs]
        if all(g is None or g is mine for g, mine in zip(whole, own, strict=True)):
            return self.cohort, self.given, self._masks(graphs)
        return self.cohort.of_step(graphs), self.given, None

    def _masks(self, graphs: Sequence[Graph | None]) -> Tensor | None:
        """Masks of the examples that each client uses in this step; None if all are used."""
        own = self.cohort.graphs
        if all(graph is None or graph is mine for graph, mine in zip(graphs, own, strict=True)):
            return None
        shape = (len(own), self.cohort.num_examples)
        masks = torch.zeros(shape, dtype=torch.bool, device=self.cohort.index.device)
        for row, graph in zip(masks, graphs, strict=True):
            if graph is not None:
                mask = graph.training_mask
                row[: mask.numel()] = mask
        return masks

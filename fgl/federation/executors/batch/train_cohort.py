"""Local training of a cohort: K clients train together, and one dimension of the tensors is K.

An element-wise optimiser updates each entry by itself. So one optimiser for stacked parameters
``[K, ...]`` acts like K optimisers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn, optim

from ....graph import Graph
from ....predict import reads, with_ties
from ....progress import shown
from ...method.message import Params
from ...method.method import Method
from ...training.optimizer import (
    SCALARS,
    Layout,
    change_grads,
    fused,
    is_scalar,
    load_state,
    made,
    state_of,
    step_settled,
)
from ...training.train import Trained, trainable, training
from .cohort import ONE_BY_ONE, Cohort, batch_norms, kind_of_graph
from .padding import check_padding
from .rows import Rows, stands_still
from .steps import StepPlan, View
from .traced import Refused, Step, Tracer, differentiated, same_bits

ELEMENTWISE = (
    *(optim.SGD, optim.Adam, optim.AdamW, optim.Adagrad, optim.Adadelta, optim.Adamax),
    *(optim.ASGD, optim.NAdam, optim.RAdam, optim.RMSprop, optim.Rprop),
)
HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


def train_cohort(
    method: Method,
    params: Sequence[Params],
    cohort: Cohort,
    contexts: Sequence[Any],
    *,
    seeds: Sequence[int],
    optimizers: Sequence[Mapping[str, Tensor]] | None = None,
    checked: set[str] | None = None,
    tracer: Tracer | None = None,
) -> list[Trained]:
    """Train all clients of a cohort together.

    Apart from the random numbers of the loss, each client's result is the same as if `train` had
    trained this client.

    A step has three parts: the loss, mapped over the clients by ``torch.func.vmap``; one backward
    pass; and one optimiser step on the stacked parameters. A client with fewer minibatches finishes
    before clients with more minibatches.

    Args:
        method: the method; its loss must run under `vmap`, and its optimiser must be element-wise.
        params: each client's initial parameters; not changed.
        cohort: the clients' graphs.
        contexts: the contexts from `method.receive`, one per client. A tensor object that all
            contexts share is not stacked.
        seeds: one seed per client, for this client's minibatches. The first seed determines
            dropout, augmentation and all other random numbers of the loss. So the loss gets other
            random numbers than in `train`, which uses each client's own seed.
        optimizers: each client's optimiser state; all states must have the same number of steps.
            Default none.
        checked: kinds of padding that earlier calls checked, see `check_padding`. This call checks
            all other kinds of padding in the cohort, and then adds these kinds to the set. A
            loss that uses random numbers even in evaluation mode is not checked. Default empty.
        tracer: an object that records steps and repeats them. By default every step is an ordinary
            step.

    Returns:
        One `Trained` per client; the parameters of all clients are views of one stack.

    Raises:
        ValueError: if the clients cannot be stacked, if the optimiser is not element-wise, or if
            padded nodes change the loss.
        RuntimeError: if the loss cannot be mapped; the error names the line and the operation.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> method = fgl.fedavg(fgl.nn.GCN(2, 8, 2), train=fgl.Training(num_steps=2))
        >>> cohort, start = Cohort([graph, graph]), method.initial()
        >>> trained = train_cohort(method, [start, start], cohort, [{}, {}], seeds=[0, 1])
        >>> len(trained), len(trained[0].losses)
        (2, 2)
    """
    check_one_kind(method, cohort)
    _check_model(method.model_of(cohort.graphs[0]), cohort)
    plan, alone = StepPlan(method.train, cohort, contexts, seeds), _alone(method, params[0], cohort)
    checked = set() if checked is None else checked
    trains = partial(_train, method, params, plan, alone, seeds, optimizers, checked)
    if tracer is None:
        return trains(differentiated, {})
    trained = _on_rows(trains, tracer, cohort)
    if trained is None:
        trained = trains(tracer.differentiate, {})
    tracer.rest(cohort)
    return trained


def _on_rows(
    trains: Callable[..., list[Trained]], tracer: Tracer, cohort: Cohort
) -> list[Trained] | None:
    """Train only the touched rows; None if this is not possible."""
    compact = tracer.compact(cohort)
    if compact is None:
        return None
    try:
        trained = trains(compact.differentiate, compact.rows)
    except Refused:
        tracer.no_compact(cohort)
        return None
    if not compact.is_due():
        return trained
    ordinary = trains(differentiated, {})
    if not all(map(_same, ordinary, trained)):
        tracer.why = "its loss gave other numbers when only the touched rows were trained"
    return ordinary


def _train(
    method: Method,
    params: Sequence[Params],
    plan: StepPlan,
    alone: Template,
    seeds: Sequence[int],
    optimizers: Sequence[Mapping[str, Tensor]] | None,
    checked: set[str],
    differentiate: Callable[[Step], Tensor],
    rows: Mapping[str, Rows],
) -> list[Trained]:
    """Train all clients.

    If `rows` has an entry for the name of a stack, only the rows in this entry are trained.

    Raises:
        Refused: if a row that is not in this entry would change, if a step does not use the
            cohort's graphs, or if `differentiate` raises `Refused`.
    """
    cohort = plan.cohort
    first, how = cohort.graphs[0], method.train
    layout, model = Layout(params[0], first), method.model_of(first)
    once = {id(own): layout.turn(own) for own in params}
    each = [once[id(own)] for own in params]
    stacks = _stack(each, (), rows)
    leaves = {name: stacks[name].requires_grad_() for name in alone.leaves}
    stepper = _optimizer(alone, leaves)
    if rows and not stands_still(how, stepper):
        raise Refused
    load_state(
        stepper, leaves, _stack([layout.turn(state) for state in optimizers or [{}]], SCALARS, {})
    )
    last = max(plan.counts)
    finished: dict[int, tuple[Params, Params]] = {}  # where a client was after its last step
    losses: list[Tensor] = []
    view = View(method, layout)
    progress = shown(f"local training of {len(cohort)} clients", last)
    with method.at(first), training(model, first.device, seeds[0]), progress as advance:
        for step in range(last + 1):
            done = [client for client, count in enumerate(plan.counts) if count == step]
            optimizer_state = state_of(stepper, leaves) if done and how.keep_optimizer else {}
            for client in done:
                early = stacks if step < last else {}
                early = {
                    name: stack.detach()[_place(rows, name, client)].clone()
                    for name, stack in early.items()
                }
                finished[client] = early, _own(optimizer_state, client)
            if step < last:
                view = view.at(*plan.at(step))
                if rows and view.cohort is not cohort:
                    raise Refused
                left = [client for client, count in enumerate(plan.counts) if count > step]
                check_padding(view, params, left, checked)
                losses.append(_step(view, stacks, leaves, stepper, differentiate))
                advance(1)
    history = torch.stack(losses, 1).tolist() if losses else [[]] * len(cohort)
    ends = {name: stack.detach() for name, stack in stacks.items()}
    for client, (early, _) in finished.items():
        for name, value in early.items():
            ends[name][_place(rows, name, client)] = value
    for name, touched in rows.items():
        ends[name] = touched.put(_stacked([own[name] for own in each]), ends[name])
    parts = {name: stack.unbind() for name, stack in layout.turn(with_ties(model, ends)).items()}
    return [
        Trained(
            {name: tensors[k] for name, tensors in parts.items()},
            history[k][:count],
            layout.turn(finished[k][1]),
        )
        for k, count in enumerate(plan.counts)
    ]


def _place(rows: Mapping[str, Rows], name: str, client: int) -> int | slice:
    """A client's index in a stack, or the client's slice of a compact stack."""
    return rows[name].of(client) if name in rows else client


def _same(one: Trained, other: Trained) -> bool:
    pairs = [(one.params[name], other.params[name]) for name in one.params]
    return repr(one.losses) == repr(other.losses) and all(same_bits(*pair) for pair in pairs)


def kind_of(method: Method, graph: Graph) -> Hashable:
    """A key that describes the model of a client.

    Clients with equal keys can train as one batch.

    Example:
        >>> kind_of(fgl.fedavg(torch.nn.Linear(1, 1)), None)
        ()
    """
    if method.own.models is None:
        return ()
    return method.own.models.kind(graph), str(kind_of_graph(graph))


def check_one_kind(method: Method, cohort: Cohort) -> None:
    """Raise a ValueError if the cohort's models differ in their shapes or modules."""
    kinds = [kind_of(method, graph) for graph in cohort.graphs]
    for client, kind in zip(cohort.clients, kinds, strict=True):
        if kind != kinds[0]:
            raise ValueError(
                f"Expected client {client} to have a model of the architecture of client "
                f"{cohort.clients[0]}'s, but got another{ONE_BY_ONE}"
            )


def _step(
    view: View,
    stacks: Params,
    leaves: Mapping[str, Tensor],
    stepper: optim.Optimizer,
    differentiate: Callable[[Step], Tensor],
) -> Tensor:
    """Take a local step of all clients. Return the losses ``[K]`` before the step."""
    how, layout = view.method.train, view.layout
    stepper.zero_grad()
    losses = differentiate(Step(view, stacks, leaves))
    if how.max_grad_norm is not None:
        _clip(list(leaves.values()), how.max_grad_norm)
    if how.adjust is not None:
        change_grads(leaves, view.hook("adjust", how.adjust), layout, None)
    if how.settle is None:
        stepper.step()
    else:
        hook = view.hook("settle", how.settle)
        step_settled(stepper, leaves, hook, layout, None, moments=how.settle_moments)
    return losses


class Template(NamedTuple):
    """The trained tensors of one client, and the optimiser that a factory returns for them."""

    leaves: Mapping[str, Tensor]
    optimizer: optim.Optimizer


def _alone(method: Method, params: Params, cohort: Cohort) -> Template:
    """Trained tensors and optimiser of one client.

    Raises:
        ValueError: if the optimiser is not element-wise, or if the optimiser has hooks. A hook
            expects the tensors of one client, but would get the stacked tensors of all clients.
    """
    names = trainable(method, cohort.graphs[0])
    own = {n: p.detach().clone().requires_grad_() for n, p in params.items() if n in names}
    optimizer = made(method.train.optimizer, own)
    check_optimizer(optimizer)
    return Template(own, optimizer)


def _optimizer(alone: Template, leaves: Mapping[str, Tensor]) -> optim.Optimizer:
    """A new optimiser of the stacks, with the parameter groups of one client's optimiser."""
    stacked = {id(tensor): leaves[name] for name, tensor in alone.leaves.items()}
    groups = [
        {**group, "params": [stacked[id(tensor)] for tensor in group["params"]]}
        for group in alone.optimizer.param_groups
    ]
    kind: Any = type(alone.optimizer)
    return fused(kind(groups))


def check_optimizer(optimizer: optim.Optimizer) -> None:
    """Raise a ValueError unless an optimiser is element-wise and has no hooks."""
    if any(getattr(optimizer, name) for name in HOOKS):
        raise ValueError(
            "Expected the optimizer to have no hooks of its own, but got a "
            f"{type(optimizer).__name__} with some, which would see the tensors of all clients in "
            f"one: Training's adjust and settle change a step of each client{ONE_BY_ONE}"
        )
    if type(optimizer) not in ELEMENTWISE:
        names = ", ".join(kind.__name__ for kind in ELEMENTWISE)
        got = type(optimizer).__name__
        raise ValueError(
            f"Expected the optimizer to be element-wise ({names}), but got {got}{ONE_BY_ONE}"
        )


def _stack(
    dicts: Sequence[Mapping[str, Tensor]],
    equal: Collection[str],
    rows: Mapping[str, Rows],
) -> Params:
    """Stack the clients' tensors that have the same name.

    If `rows` has an entry for a name, only the rows in this entry are stacked.

    If a name begins with a prefix in `equal`, the clients' tensors of this name are equal, so only
    one copy is made.
    """
    out = {}
    for path, first in dicts[0].items():
        tensors = [tensors[path] for tensors in dicts]
        if path.split("/")[0] in equal:
            out[path] = first.clone()
        else:
            out[path] = rows[path].taken(tensors) if path in rows else _stacked(tensors)
    return out


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    first = tensors[0].detach()
    if all(tensor is tensors[0] for tensor in tensors):
        stack = first.expand(len(tensors), *first.shape)
        return stack.clone(memory_format=torch.contiguous_format)
    return torch.stack([tensor.detach() for tensor in tensors])


def _own(state: Mapping[str, Tensor], client: int) -> Params:
    """A client's part of an optimiser's state."""
    return {
        path: (value if is_scalar(path) else value[client]).clone() for path, value in state.items()
    }


def _check_model(model: nn.Module, cohort: Cohort) -> None:
    """Raise an error if a batch norm's statistics would include padded nodes or the sink."""
    mixing = batch_norms(model)
    sink = reads(model).edge_index
    if mixing and (cohort.padding or sink):
        reason = "a batch of edge_index has one more node" if sink else "this cohort is padded"
        raise ValueError(
            f"Expected a model that keeps nodes apart, since {reason}, "
            f"but got {type(mixing[0]).__name__}{ONE_BY_ONE}"
        )


def _clip(leaves: Sequence[Tensor], max_norm: float) -> None:
    """Apply `torch.nn.utils.clip_grad_norm_` to every client separately."""
    grads = [leaf.grad for leaf in leaves if leaf.grad is not None]
    norms = torch.stack([grad.reshape(len(grad), -1).norm(dim=1) for grad in grads]).norm(dim=0)
    scale = (max_norm / (norms + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(scale.view(-1, *[1] * (grad.dim() - 1)))

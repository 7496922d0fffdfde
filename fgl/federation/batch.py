"""The batch executor: K clients' local training as one, clients being a tensor dimension.

Optimisers are element-wise, so one of them on stacked parameters ``[K, ...]`` is K of them.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.func import vmap

from ..sparse import Member
from .cohort import ONE_BY_ONE, Cohort
from .evaluate import in_mode
from .message import Message, Params
from .method import Method, Training, set_seed
from .schedule import Plan, with_train_mask
from .train import (
    Trained,
    by_columns,
    check_reached,
    fused,
    load_state,
    state_of,
    trainable,
    training,
    turn,
)

ELEMENTWISE = (
    *(optim.SGD, optim.Adam, optim.AdamW, optim.Adagrad, optim.Adadelta, optim.Adamax),
    *(optim.ASGD, optim.NAdam, optim.RAdam, optim.RMSprop, optim.Rprop),
)


ClientLoss = Callable[[Member, Params, Tensor | None], Tensor]
SCALARS = ("step", "mu_product", "eta", "mu")  # of an optimiser's state, the same for all clients


def train_cohort(
    method: Method,
    params: Sequence[Params],
    cohort: Cohort,
    contexts: Sequence[Message],
    *,
    seeds: Sequence[int],
    optimizers: Sequence[Mapping[str, Tensor]] | None = None,
    check: bool = True,
) -> list[Trained]:
    """What `train` makes of every client of a cohort, in one step for all.

    ``torch.func.vmap`` of the loss over the clients, one backward, one optimiser on the stacked
    parameters. A client with fewer minibatches than another is finished when it has none left.

    Args:
        method: its loss must run under `vmap`, its optimiser be element-wise.
        params: where each client starts; not changed.
        cohort: the clients' graphs.
        contexts: what `method.receive` made, one per client; a tensor that all of them share (the
            very same) is passed on once.
        seeds: one per client, for its minibatches; the first one decides dropout, augmentation and
            whatever else the loss draws, which is not what the clients would draw one by one.
        optimizers: state for each client to go on from, after as many steps for all; default none.
        check: compare the smallest client's loss with that of its graph alone, where the cohort is
            padded and the loss, in eval mode, draws nothing.

    Returns:
        One `Trained` per client; their parameters are views of one stack.

    Raises:
        ValueError: if the clients cannot be stacked, the optimiser is not element-wise, or padded
            nodes get into the loss.
        RuntimeError: if the loss cannot be mapped, naming the line and the operation.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> method = fgl.Method(fgl.nn.GCN(2, 8, 2), train=fgl.Training(num_steps=2))
        >>> cohort, start = Cohort([graph, graph]), method.initial()
        >>> trained = train_cohort(method, [start, start], cohort, [{}, {}], seeds=[0, 1])
        >>> len(trained), len(trained[0].losses)
        (2, 2)
    """
    names, turned = trainable(method), by_columns(params[0], cohort.graphs[0])
    once = {id(own): turn(own, turned) for own in params}
    stacks = _stack([once[id(own)] for own in params])
    leaves = {name: s.requires_grad_() for name, s in stacks.items() if name in names}

    def loss_of(seen: Cohort, given: Sequence[Message]) -> ClientLoss:
        context_of = seen.stack("context", given)

        def client_loss(client: Member, local: Params, mask: Tensor | None) -> Tensor:
            graph = seen.graph(client)
            if mask is not None:
                graph = with_train_mask(graph, mask)
            return method.loss(turn(local, turned), graph, context_of(client))

        return client_loss

    plan = Plan(method.train, cohort, contexts, seeds)
    steps = plan.counts
    seen, given, mask = plan.at(0)
    client_loss = loss_of(seen, given)
    mixing = [m for m in method.model.modules() if isinstance(m, nn.modules.batchnorm._NormBase)]
    if mixing and cohort.padding:
        raise ValueError(
            f"Expected a model that keeps nodes apart, since this cohort is padded, "
            f"but got {type(mixing[0]).__name__}{ONE_BY_ONE}"
        )
    if check and seen.padding and any(steps):
        _check_padding(method, params, seen, given, client_loss, turned, steps)
    stepper = _optimizer(method.train, params[0], leaves)
    load_state(stepper, leaves, _stack([turn(state, turned) for state in optimizers or [{}]]))
    finished: dict[int, tuple[Params, Params]] = {}
    losses: list[Tensor] = []
    with training(method.model, cohort.graphs[0].device, seeds[0]):
        for step in range(max(steps) + 1):
            done = [client for client, count in enumerate(steps) if count == step]
            kept = state_of(stepper, leaves) if done and method.train.keep_optimizer else {}
            for client in done:
                state = _own(kept, client)
                early = stacks if step < max(steps) else {}
                early = {name: stack.detach()[client].clone() for name, stack in early.items()}
                finished[client] = early, state
            if step == max(steps):
                break
            if step:
                last = given
                seen, given, mask = plan.at(step)
                if given is not last:
                    client_loss = loss_of(seen, given)
            stepper.zero_grad()
            loss = _mapped(client_loss, seen, stacks, mask)
            loss.sum().backward()
            check_reached(leaves, loss)
            if method.train.max_grad_norm is not None:
                _clip(list(leaves.values()), method.train.max_grad_norm)
            stepper.step()
            losses.append(loss.detach())
    history = torch.stack(losses, 1).tolist() if losses else [[]] * len(cohort)
    ends = {name: stack.detach() for name, stack in stacks.items()}
    for client, (early, _) in finished.items():
        for name, value in early.items():
            ends[name][client] = value
    each = {name: stack.unbind() for name, stack in turn(ends, turned).items()}
    return [
        Trained(
            {name: parts[k] for name, parts in each.items()},
            history[k][:count],
            turn(finished[k][1], turned),
        )
        for k, count in enumerate(steps)
    ]


def _check_padding(
    method: Method,
    params: Sequence[Params],
    cohort: Cohort,
    contexts: Sequence[Message],
    client_loss: Any,
    turned: set[str],
    steps: Sequence[int],
) -> None:
    """Raise a ValueError if a loss that draws nothing is another one for a padded client.

    At its parameters and beside them: where biases start at 0, padded nodes give 0 as well.
    """
    training = [client for client, count in enumerate(steps) if count]
    client = min(training, key=lambda client: cohort.graphs[client].num_nodes)
    names, start = trainable(method), params[client]
    graph, context = cohort.graphs[client], contexts[client]

    def twice(at: Params) -> tuple[Tensor, Tensor, Tensor]:
        """Alone, alone with another seed, and padded."""
        alone = []
        for seed in (0, 1):
            set_seed(seed)
            alone.append(method.loss(at, graph, context))
        stacks = _stack([turn(at, turned)] * len(cohort))
        return alone[0], alone[1], _mapped(client_loss, cohort, stacks, None)[client]

    with in_mode(method.model, False), torch.no_grad(), torch.random.fork_rng([]):
        set_seed(0)
        near = {name: _beside(p) if name in names else p for name, p in start.items()}
        found = [twice(start)]
        with contextlib.suppress(Exception):  # a loss need not be defined there
            found += [each for each in [twice(near)] if each[0].isfinite()]
    for one, other, padded in found:
        draws = not torch.equal(one, other) and not one.isnan()
        if not draws and not torch.allclose(padded, one, rtol=1e-3, atol=1e-5, equal_nan=True):
            raise ValueError(
                "Expected the loss to leave padded nodes out (no training mask has them; weigh by "
                f"graph.node_mask), but got {float(padded):.6g} instead of {float(one):.6g} for "
                f"client {cohort.clients[client]} in a batch{ONE_BY_ONE}"
            )


def _beside(value: Tensor) -> Tensor:
    """A tensor moved by up to a tenth of its entries' mean size, or of 1 where all are 0."""
    size = value.abs().mean()
    return value + 0.1 * torch.rand_like(value) * torch.where(size > 0, size, 1)


def _optimizer(how: Training, params: Params, leaves: Mapping[str, Tensor]) -> optim.Optimizer:
    """The client's optimiser, its groups as the factory makes them of one client's tensors."""
    alone = {name: params[name].detach().clone().requires_grad_() for name in leaves}
    made = how.optimizer(list(alone.values()))
    if type(made) not in ELEMENTWISE:
        known = ", ".join(kind.__name__ for kind in ELEMENTWISE)
        got = type(made).__name__
        raise ValueError(
            f"Expected the optimizer to be element-wise ({known}), but got {got}{ONE_BY_ONE}"
        )
    stacked = {id(tensor): leaves[name] for name, tensor in alone.items()}
    groups = [
        {**group, "params": [stacked[id(tensor)] for tensor in group["params"]]}
        for group in made.param_groups
    ]
    kind: Any = type(made)
    return fused(kind(groups))


def _stack(dicts: Sequence[Mapping[str, Tensor]]) -> Params:
    """One ``[K, ...]`` for every name; what an optimiser counts is the same for all, and one."""
    out = {}
    for path, first in dicts[0].items():
        tensors = [tensors[path].detach() for tensors in dicts]
        if path.split("/")[0] in SCALARS:
            out[path] = first
        elif all(other[path] is first for other in dicts):
            stack = first.detach().expand(len(tensors), *first.shape)
            out[path] = stack.clone(memory_format=torch.contiguous_format)
        else:
            out[path] = torch.stack(tensors)
    return out


def _own(state: Mapping[str, Tensor], client: int) -> Params:
    """One client's part of an optimiser's state."""
    return {
        path: (value if path.split("/")[0] in SCALARS else value[client]).clone()
        for path, value in state.items()
    }


def _mapped(loss: Any, cohort: Cohort, stacks: Params, mask: Tensor | None) -> Tensor:
    """Every client's loss ``[K]``; what `vmap` cannot take is named, with the way out."""
    known = cohort.known()
    clients: list[Member] = []

    def one(index: Tensor, local: Params, mask: Tensor | None, parts: list[Tensor]) -> Tensor:
        client = Member(index, {id(stack): p for stack, p in zip(known, parts, strict=True)})
        clients.append(client)
        value: Tensor = loss(client, local, mask)
        return value

    dims = (0, 0, None if mask is None else 0, 0)
    try:
        out: Tensor = vmap(one, dims, randomness="different")(cohort.index, stacks, mask, known)
    except RuntimeError as error:
        text = str(error)
        if not any(word in text for word in ("vmap", "functorch", "atching rule")):
            raise
        frames = traceback.extract_tb(error.__traceback__)
        frame = [f for f in frames if "torch" not in Path(f.filename).parts][-1]
        where = f"{Path(frame.filename).name}:{frame.lineno} `{frame.line}`"
        raise RuntimeError(
            f"Expected the loss to run under torch.func.vmap, but got {where}: "
            f"{text.splitlines()[0]}{ONE_BY_ONE}"
        ) from error
    cohort.remember(clients[0].lifted)
    if out.shape != (len(cohort),):
        raise ValueError(f"Expected the loss to be a scalar, but got shape {list(out.shape[1:])}")
    return out


def _clip(leaves: Sequence[Tensor], max_norm: float) -> None:
    """`torch.nn.utils.clip_grad_norm_` for every client on its own."""
    grads = [leaf.grad for leaf in leaves if leaf.grad is not None]
    norms = torch.stack([grad.reshape(len(grad), -1).norm(dim=1) for grad in grads]).norm(dim=0)
    scale = (max_norm / (norms + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(scale.view(-1, *[1] * (grad.dim() - 1)))

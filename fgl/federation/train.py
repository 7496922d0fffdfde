"""Local training: one client after the other, or a cohort at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn, optim

from ..graph import Graph
from ..sparse import SparseMatrix
from .evaluate import in_mode
from .message import Message, Params
from .method import Method, set_seed
from .schedule import local_steps

FUSED = (optim.SGD, optim.Adam, optim.AdamW, optim.Adagrad)


class Trained(NamedTuple):
    """What local training makes: parameters, the loss before each step, the optimiser's state.

    Example:
        >>> Trained({"w": torch.zeros(1)}, [0.7, 0.6], {}).losses
        [0.7, 0.6]
    """

    params: Params
    losses: list[float]
    optimizer: Params


def train(
    method: Method,
    params: Params,
    graph: Graph,
    context: Message,
    *,
    seed: int,
    optimizer: Mapping[str, Tensor] | None = None,
) -> Trained:
    """Minimise ``method.loss`` on one client, from `params`.

    Torch's global random state is seeded for the time of the call, and put back.

    Args:
        method: the loss, the optimiser and the number of steps.
        params: where to start; not changed.
        graph: the client's graph.
        context: what `method.receive` made.
        seed: decides minibatches, dropout, augmentation and whatever else the loss draws.
        optimizer: state to go on from (`Trained.optimizer` of an earlier call); default none.

    Returns:
        The trained parameters, the loss before each step, and the optimiser's state by
        ``"name/parameter"``.

    Example:
        >>> model = fgl.nn.GCN(2, 8, 2)
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> method = fgl.Method(model, train=fgl.Training(num_steps=2))
        >>> params, losses, _ = train(method, method.initial(), graph, {}, seed=0)
        >>> len(losses)
        2
    """
    names, turned = trainable(method), by_columns(params, graph)
    local = turn(params, turned)
    local = {
        name: value.detach()
        .clone(memory_format=torch.contiguous_format)
        .requires_grad_(name in names)
        for name, value in local.items()
    }
    leaves = {name: value.requires_grad_() for name, value in local.items() if name in names}
    stepper = fused(method.train.optimizer(list(leaves.values())))
    load_state(stepper, leaves, turn(optimizer or {}, turned))
    losses: list[Tensor] = []
    with training(method.model, graph.device, seed):
        for seen, given in local_steps(method.train, graph, context):
            stepper.zero_grad()
            loss = method.loss(turn(local, turned), seen, given)
            loss.backward()
            check_reached(leaves, loss)
            if method.train.max_grad_norm is not None:
                nn.utils.clip_grad_norm_(leaves.values(), method.train.max_grad_norm)
            stepper.step()
            losses.append(loss.detach())
    history = torch.stack(losses).tolist() if losses else []
    state = state_of(stepper, leaves) if method.train.keep_optimizer else {}
    ends = {name: value.detach() for name, value in local.items()}
    return Trained(turn(ends, turned), history, turn(state, turned))


def check_reached(leaves: Mapping[str, Tensor], loss: Tensor) -> None:
    """Raise a ValueError if a backward has given none of the parameters a gradient.

    A loss that is a leaf itself, ``torch.zeros((), requires_grad=True)``, says so on purpose.
    """
    if leaves and loss.grad_fn is not None and all(leaf.grad is None for leaf in leaves.values()):
        raise ValueError(
            "Expected the loss to depend on params, but got no gradient for any of them: call the "
            "model with torch.func.functional_call(model, params, inputs)"
        )


def by_columns(params: Mapping[str, Tensor], graph: Graph) -> set[str]:
    """Matrices that training lays out by columns: those that meet sparse features.

    Such a product reads a matrix by columns, and would copy it in every step.
    """
    if not isinstance(graph.x, SparseMatrix):
        return set()
    width = graph.num_features
    return {name for name, p in params.items() if p.dim() == 2 and p.shape[1] == width}


def turn(tensors: Mapping[str, Tensor], turned: set[str]) -> Params:
    """The same tensors, with those that are laid out by columns transposed.

    A name may have a prefix, as in the ``"exp_avg/name"`` of an optimiser's state.
    """
    return {
        path: value.mT if path.rsplit("/", 1)[-1] in turned and value.dim() > 1 else value
        for path, value in tensors.items()
    }


def fused(optimizer: optim.Optimizer) -> optim.Optimizer:
    """The same optimiser in one pass over the memory, where torch has that and nobody chose."""
    for group in optimizer.param_groups:
        chosen = any(group.get(key) for key in ("foreach", "fused", "differentiable"))
        fits = all(p.is_floating_point() and not p.is_complex() for p in group["params"])
        if type(optimizer) in FUSED and fits and not chosen:
            group["fused"] = True
    return optimizer


def trainable(method: Method) -> set[str]:
    """Names of the parameters that are trained."""
    return {name for name, p in method.model.named_parameters() if p.requires_grad}


@contextmanager
def training(model: nn.Module, device: torch.device, seed: int) -> Iterator[None]:
    """Training mode, gradients and a seed of its own; all put back at the end."""
    state = torch.get_rng_state()
    cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    set_seed(seed)
    try:
        with in_mode(model, True), torch.enable_grad():
            yield
    finally:
        torch.set_rng_state(state)
        if cuda is not None:
            torch.cuda.set_rng_state(cuda, device)


def state_of(optimizer: optim.Optimizer, leaves: Mapping[str, Tensor]) -> Params:
    """The optimiser's tensors by ``"key/parameter"``."""
    found = {}
    for name, leaf in leaves.items():
        for key, value in optimizer.state.get(leaf, {}).items():
            if isinstance(value, Tensor):
                found[f"{key}/{name}"] = value.detach()
            elif value is not None:
                raise TypeError(
                    f"Expected the optimizer's {key} to be a tensor, but got {value!r}: "
                    f"{type(optimizer).__name__} cannot be kept with keep_optimizer"
                )
    return found


def load_state(
    optimizer: optim.Optimizer, leaves: Mapping[str, Tensor], state: Mapping[str, Tensor]
) -> None:
    """Put back what `state_of` took."""
    for path, value in state.items():
        key, name = path.split("/", 1)
        copy_ = value.clone(memory_format=torch.contiguous_format)
        optimizer.state[leaves[name]][key] = copy_

"""Local training at a client or at the server: an optimiser minimises a loss."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...graph import Graph
from ...kinds import explained
from ...predict import stand_in, with_ties
from ...seeds import set_seed
from ..method.message import Params
from ..method.method import Adjust, Method, OptimizerFactory, Settle
from .minibatches import heard, local_steps
from .optimizer import Layout, change_grads, fused, load_state, made, named, state_of, step_settled

Differentiate = Callable[..., Tensor]
CALL = "call the model with torch.func.functional_call(model, params, inputs)"


class Trained(NamedTuple):
    """The result of local training: parameters, losses before the steps, and optimiser state.

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
    context: Any,
    *,
    seed: int,
    optimizer: Mapping[str, Tensor] | None = None,
    differentiate: Differentiate | None = None,
) -> Trained:
    """Train one client: minimise ``method.loss`` from the initial parameters `params`.

    Torch's global random state is seeded during the call and restored afterwards.

    Args:
        method: the method with the loss, the optimiser and the number of steps.
        params: the initial parameters; not changed.
        graph: the client's graph.
        context: the context from `method.receive`.
        seed: seed of the minibatches, dropout, augmentation and all other random numbers of the
            loss.
        optimizer: the optimiser's state from an earlier call, `Trained.optimizer`; by default a new
            state.
        differentiate: ``(layout, params, leaves, graph, context) -> loss``. The function computes
            the loss and sets the gradients of the leaves (the trained tensors). By default,
            autograd computes the gradients.

    Returns:
        The trained parameters, the loss before each step, and the optimiser's state: a dict with
        keys ``"name/parameter"``. The state is empty if the method does not keep it.

    Example:
        >>> model = fgl.nn.GCN(2, 8, 2)
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> method = fgl.fedavg(model, train=fgl.Training(num_steps=2))
        >>> params, losses, _ = train(method, method.initial(), graph, {}, seed=0)
        >>> len(losses)
        2
    """
    how = method.train
    with method.at(graph), training(method.model_of(graph), graph.device, seed):
        steps = local_steps(how, graph, context)
        done = minimise(
            method.loss,
            params,
            heard(steps),
            optimizer=how.optimizer,
            state=optimizer,
            names=trainable(method, graph),
            max_grad_norm=how.max_grad_norm,
            adjust=how.adjust,
            settle=how.settle,
            settle_moments=how.settle_moments,
            layout=Layout(params, graph),
            keep=how.keep_optimizer,
            differentiate=differentiate,
        )
    return done._replace(params=with_ties(method.model_of(graph), done.params))


def minimise(
    loss: Callable[..., Tensor],
    params: Mapping[str, Tensor],
    batches: Iterable[tuple[Any, ...]],
    *,
    optimizer: OptimizerFactory,
    state: Mapping[str, Tensor] | None = None,
    names: Iterable[str] | None = None,
    max_grad_norm: float | None = None,
    adjust: Adjust | None = None,
    settle: Settle | None = None,
    settle_moments: bool = False,
    layout: Layout | None = None,
    keep: bool = True,
    differentiate: Differentiate | None = None,
) -> Trained:
    """For each batch, take one optimiser step: ``params <- step(grad loss(params, *batch))``.

    This function trains the model of a client, or a model at the server. Random numbers come from
    torch's global generator.

    Args:
        loss: ``(params, *batch) -> scalar``.
        params: the initial parameters, a dict from name to tensor; not changed.
        batches: one tuple per step, with the arguments that the loss gets in addition to `params`.
            Each tuple is taken from `batches` just before the step that uses it.
        optimizer: function that returns a `torch.optim` optimiser for a list of tensors.
        state: the optimiser's state from an earlier call; by default a new state.
        names: names of the trained tensors; by default all floating-point tensors.
        max_grad_norm, adjust, settle, settle_moments: as in `Training`. The last entry of a batch
            is passed to `adjust` and `settle` as the context.
        layout: memory layout of the tensors; by default the layout is kept.
        keep: whether to return the optimiser's state.
        differentiate: ``(layout, params, leaves, *batch) -> loss``, a function that sets the
            gradients of the leaves; by default a backward pass.

    Returns:
        The trained parameters, the loss before each step, and the optimiser's state: a dict with
        keys ``"name/parameter"``.

    Raises:
        ValueError: if the loss does not depend on `params`, or if there are no tensors to train.
        TypeError: if the optimiser's state has an entry that is not a tensor.

    Example:
        >>> def loss(params, x, y):
        ...     return (params["w"] * x - y).square().sum()
        >>> batch = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 4.0])
        >>> sgd = lambda tensors: torch.optim.SGD(tensors, lr=0.1)
        >>> minimise(loss, {"w": torch.tensor(0.0)}, [batch] * 20, optimizer=sgd).params
        {'w': tensor(2.)}
    """
    layout = Layout(params) if layout is None else layout
    if names is None:
        names = [name for name, value in params.items() if value.is_floating_point()]
    names = set(names)
    turned = contiguous(layout.turn(params))
    local = {name: value.requires_grad_(name in names) for name, value in turned.items()}
    leaves = {name: value for name, value in local.items() if name in names}
    stepper = fused(made(optimizer, leaves))
    load_state(stepper, leaves, contiguous(layout.turn(state or {})))
    losses: list[Tensor] = []
    with torch.enable_grad():
        for batch in batches:
            stepper.zero_grad()
            if differentiate is None:
                value = loss(layout.turn(local), *batch)
                check_scalar(value)
                check_has_gradient(value)
                value.backward()
                check_reached(leaves, value)
            else:
                value = differentiate(layout, local, leaves, *batch)
            if max_grad_norm is not None:
                nn.utils.clip_grad_norm_(leaves.values(), max_grad_norm)
            if adjust is not None:
                change_grads(leaves, named("adjust", adjust), layout, batch[-1])
            if settle is None:
                stepper.step()
            else:
                hook = named("settle", settle)
                step_settled(stepper, leaves, hook, layout, batch[-1], moments=settle_moments)
            losses.append(value.detach())
            torch.clear_autocast_cache()  # the cache holds the old parameters
    history = torch.stack(losses).tolist() if losses else []
    ends = {name: value.detach() for name, value in local.items()}
    optimizer_state = state_of(stepper, leaves) if keep else {}
    return Trained(layout.turn(ends), history, layout.turn(optimizer_state))


def contiguous(tensors: Mapping[str, Tensor]) -> Params:
    """Copies of tensors in the usual order of memory, without their history."""
    form = torch.contiguous_format
    return {name: value.detach().clone(memory_format=form) for name, value in tensors.items()}


def check_scalar(value: Any) -> None:
    """Raise an error unless the loss is a single number."""
    if not isinstance(value, Tensor):
        raise TypeError(f"Expected the loss to be a scalar tensor, but got {value!r}")
    if value.dim():
        raise ValueError(f"Expected the loss to be a scalar, but got shape {list(value.shape)}")


def check_has_gradient(value: Tensor) -> None:
    """Raise an error if a loss, or a batch of losses, has no gradient."""
    if not value.requires_grad:
        raise ValueError(f"Expected the loss to depend on params, but got no gradient: {CALL}")


def check_reached(leaves: Mapping[str, Tensor], loss: Tensor) -> None:
    """Raise a ValueError if no parameter has a gradient after the backward pass.

    A loss that is itself a leaf, such as ``torch.zeros((), requires_grad=True)``, raises no error.
    A loss function can return a new zero tensor if a client has nothing to train.
    """
    if leaves and loss.grad_fn is not None and all(leaf.grad is None for leaf in leaves.values()):
        raise ValueError(
            f"Expected the loss to depend on params, but got no gradient for any of them: {CALL}"
        )


def trainable(method: Method, graph: Graph | None = None) -> set[str]:
    """Names of the tensors to train: the model's parameters and the personal tensors.

    Args:
        method: a method, with a model and with names of personal tensors (`method.own.personal`).
        graph: a client's graph, if clients have different models. With `graph`, the result names
            the tensors of this client's model. By default, the result names the tensors of
            `method.model`.

    Example:
        >>> sorted(trainable(fgl.fedavg(torch.nn.Linear(1, 1))))
        ['bias', 'weight']
    """
    model = stand_in(method.model) if graph is None else method.model_of(graph)
    names = {name for name, p in model.named_parameters() if p.requires_grad}
    return names | set(method.own.personal)


def gradient(method: Method, params: Params, graph: Graph, context: Any) -> Params:
    """The gradient of the method's loss at `params`, by name; unused tensors are left out.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> method = fgl.fedavg(fgl.nn.GCN(2, 8, 2))
        >>> list(gradient(method, method.initial(), graph, {}))[:1]
        ['convs.0.bias']
    """
    inside = stand_in(method.model) is not method.model  # if so, `graph` may be a minibatch
    with nullcontext() if inside else method.at(graph):
        return _gradient(method, params, graph, context)


def _gradient(method: Method, params: Params, graph: Graph, context: Any) -> Params:
    names = trainable(method)
    leaves = {k: v.detach().clone().requires_grad_(k in names) for k, v in params.items()}
    trained = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    with torch.enable_grad():
        loss = method.loss(leaves, graph, context)
        gradients = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    return {name: grad for name, grad in zip(trained, gradients, strict=True) if grad is not None}


@explained
@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """A context in which the model is in training or in evaluation mode.

    Afterwards each module's mode is restored.

    Example:
        >>> model = torch.nn.Dropout()
        >>> with in_mode(model, False):
        ...     model(torch.ones(3))
        tensor([1., 1., 1.])
        >>> model.training
        True
    """
    modes = [(module, module.training) for module in model.modules()]
    if any(mode != training for _, mode in modes):
        model.train(training)
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def random_states(device: torch.device) -> list[Tensor]:
    """Torch's random states: the state of the CPU, and of the GPU if the device is a GPU."""
    on_gpu = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *on_gpu]


def set_random_states(states: Sequence[Tensor], device: torch.device) -> None:
    """Restore the states that `random_states` returned."""
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state, device)


@contextmanager
def training(model: nn.Module, device: torch.device, seed: int) -> Iterator[None]:
    """A context with training mode, enabled gradients and the given seed.

    Afterwards the mode, the gradient setting and the random state are restored.

    Raises:
        ValueError: if the loss reads the parameters of `model` itself, and not `params`.
    """
    states, before = random_states(device), [own.grad for own in model.parameters()]
    set_seed(seed)
    try:
        with in_mode(model, True), torch.enable_grad():
            yield
    finally:
        set_random_states(states, device)
    for own, grad in zip(model.parameters(), before, strict=True):
        if own.grad is not grad:
            own.grad = grad
            raise ValueError(
                "Expected the loss to read params alone, but got one that reads model.parameters() "
                f"too, which do not train: {CALL}, and params.values() for a penalty"
            )

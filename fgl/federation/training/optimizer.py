"""The optimiser of local training: its steps, the hooks around a step, and the tensors' layout."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, optim

from ...checks import reject_if
from ...graph import Graph
from ...kinds import check_kind, shown
from ...sparse import SparseMatrix
from ..method.message import Params
from ..method.method import Adjust, OptimizerFactory, Settle

FUSED = (optim.SGD, optim.Adam, optim.AdamW, optim.Adagrad)
SCALARS = ("step", "mu_product", "eta", "mu")  # scalars in an optimiser's state


def is_scalar(path: str) -> bool:
    """Whether an entry of an optimiser's state is one number, such as the steps so far."""
    return path.split("/")[0] in SCALARS


class Layout:
    """The way in which parameters are stored in memory.

    A matrix that is multiplied by sparse features is stored by columns.

    A product of sparse features and a dense matrix reads the dense matrix by columns. If the dense
    matrix were stored by rows, every step of training would copy this matrix.

    Args:
        params: dict from name to tensor.
        graph: the client's graph. If the graph's features are sparse, each matrix with
            ``num_features`` columns is stored by columns, since such a matrix usually multiplies
            the features. Default none.
    """

    def __init__(self, params: Mapping[str, Tensor], graph: Graph | None = None) -> None:
        self.turned: set[str] = set()
        if graph is not None and isinstance(graph.x, SparseMatrix):
            width = graph.num_features
            self.turned = {n for n, p in params.items() if p.dim() == 2 and p.shape[1] == width}

    def turn(self, tensors: Mapping[str, Tensor]) -> Params:
        """Transpose each tensor that is stored by columns.

        A second call restores the original tensors.

        `tensors` can also be an optimiser's state, in which a parameter's name has a prefix, as in
        ``"exp_avg/name"``.
        """
        return {
            path: value.mT if path.rsplit("/", 1)[-1] in self.turned and value.dim() > 1 else value
            for path, value in tensors.items()
        }


def copies(leaves: Mapping[str, Tensor]) -> Params:
    """Copies of the tensors; later changes in place do not affect the copies."""
    return {name: leaf.detach().clone() for name, leaf in leaves.items()}


def change_grads(
    leaves: Mapping[str, Tensor], adjust: Adjust, layout: Layout, context: Any
) -> None:
    """Replace the gradients by the tensors that `adjust` returns.

    If a gradient is missing, `adjust` gets zeros.
    """
    for leaf in leaves.values():
        if leaf.grad is None:
            leaf.grad = torch.zeros_like(leaf)
    grads: Params = {name: leaf.grad for name, leaf in leaves.items()}  # type: ignore[misc]
    with torch.no_grad():
        old_grads, params = layout.turn(copies(grads)), layout.turn(copies(leaves))
        for name, grad in layout.turn(adjust(old_grads, params, context)).items():
            grads[name].copy_(grad)


@torch.no_grad()
def step_settled(
    stepper: optim.Optimizer,
    leaves: Mapping[str, Tensor],
    settle: Settle,
    layout: Layout,
    context: Any,
    *,
    moments: bool,
) -> None:
    """Take an optimiser step, then replace the parameters by the tensors that `settle` returns.

    With `moments`, the optimiser's moments are also replaced by the tensors that `settle` returns
    for them. Before the first step the moments are 0.
    """
    old = {"": layout.turn(copies(leaves))}
    old |= {key: layout.turn(copies(of)) for key, of in _moments(stepper, leaves, moments).items()}
    stepper.step()
    for key, now in {"": leaves, **_moments(stepper, leaves, moments)}.items():
        new = layout.turn(copies(now))
        before = old.get(key) or {name: torch.zeros_like(value) for name, value in new.items()}
        for name, tensor in layout.turn(settle(new, before, context)).items():
            now[name].copy_(tensor)


def _moments(
    stepper: optim.Optimizer, leaves: Mapping[str, Tensor], include: bool
) -> dict[str, dict[str, Tensor]]:
    """The optimiser's moments, by key (such as ``"exp_avg"``) and by name of the parameter."""
    moments: dict[str, dict[str, Tensor]] = {}
    for name, leaf in leaves.items() if include else ():
        for key, value in stepper.state.get(leaf, {}).items():
            if isinstance(value, Tensor) and key not in SCALARS:
                moments.setdefault(key, {})[name] = value
    return {key: each for key, each in moments.items() if len(each) == len(leaves)}


def named(name: str, hook: Adjust) -> Adjust:
    """Wrap a hook; each result must have the names and shapes of the hook's argument.

    Example:
        >>> forgetful = named("adjust", lambda grads, params, context: {})
        >>> forgetful({"w": torch.zeros(2)}, {}, None)
        Traceback (most recent call last):
        ValueError: Expected adjust to return tensors like those it is given, but got ['w'] ...
    """

    def call(first: Params, second: Params, context: Any) -> Params:
        returned: Any = hook(first, second, context)
        check_kind(f"{name}'s result", returned, Mapping)
        shapes, new = ({k: getattr(t, "shape", t) for k, t in x.items()} for x in (first, returned))
        wrong = [key for key in shapes | new if key not in shapes or shapes[key] != new.get(key)]
        want = f"{name} to return tensors like those it is given"
        reject_if(wrong, want, f"{wrong} missing, extra or of another shape")
        return dict(returned)

    return call


def made(optimizer: OptimizerFactory, leaves: Mapping[str, Tensor]) -> optim.Optimizer:
    """The optimiser for the trained tensors.

    If there are no trained tensors and the optimiser rejects an empty list, the error says that the
    model has no parameter that trains.
    """
    try:
        built: Any = optimizer(list(leaves.values()))
    except ValueError as error:
        if leaves:
            raise
        raise ValueError(
            "Expected the model to have a parameter that trains, but got none: "
            "requires_grad_(True) unfreezes one"
        ) from error
    if not hasattr(built, "param_groups"):
        raise TypeError(
            "Expected optimizer to return a torch.optim optimiser, such as lambda params: "
            f"torch.optim.SGD(params, lr=0.1), but got {shown(built)}"
        )
    taped = " with differentiable=True" if built.defaults.get("differentiable") else ""
    if taped or isinstance(built, optim.LBFGS):
        how = "in place and without a closure, as torch.optim.SGD and Adam do"
        raise ValueError(f"Expected optimizer to step {how}, but got {shown(built)}{taped}")
    return built  # type: ignore[no-any-return]


def fused(optimizer: optim.Optimizer) -> optim.Optimizer:
    """The given optimiser, with ``fused=True`` if torch supports it and the user chose no variant.

    On a CPU, torch's fused SGD does not change tensors of half precision with 16 or more entries.
    For such tensors the fused variant is switched off, even if the user set ``fused=True``.
    """
    for group in optimizer.param_groups:
        chosen = any(group.get(key) for key in ("foreach", "fused", "differentiable"))
        fits = all(p.dtype in (torch.float32, torch.float64) for p in group["params"])
        if type(optimizer) in FUSED and fits and not chosen:
            group["fused"] = True
        elif isinstance(optimizer, optim.SGD) and not (fits or group["params"][0].is_cuda):
            group["fused"] = False
    return optimizer


def state_of(optimizer: optim.Optimizer, leaves: Mapping[str, Tensor]) -> Params:
    """The optimiser state's tensors, with keys ``"key/parameter"``."""
    tensors = {}
    for name, leaf in leaves.items():
        for key, value in optimizer.state.get(leaf, {}).items():
            if isinstance(value, Tensor):
                tensors[f"{key}/{name}"] = value.detach()
            elif value is not None:
                raise TypeError(
                    f"Expected the optimizer's {key} to be a tensor, but got {value!r}: "
                    f"{type(optimizer).__name__} cannot be kept with keep_optimizer"
                )
    return tensors


def load_state(
    optimizer: optim.Optimizer, leaves: Mapping[str, Tensor], state: Mapping[str, Tensor]
) -> None:
    """Restore a state that `state_of` returned; later steps change the state's tensors in place."""
    for path, value in state.items():
        key, name = path.split("/", 1)
        optimizer.state[leaves[name]][key] = value

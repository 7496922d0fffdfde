"""What a server makes of its clients' tensors, stacked as ``[K, ...]``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

Params = dict[str, Tensor]


def mean(stack: Mapping[str, Tensor | Sequence[Tensor]], weight: Tensor) -> Params:
    """Weighted mean over clients: ``sum_k weight_k stack_k / sum_k weight_k``.

    Args:
        stack: name to ``[K, ...]``, or to K tensors ``[...]``; integers are averaged and rounded.
        weight: ``[K]``, non-negative (FedAvg: the numbers of examples).

    Returns:
        Name to ``[...]``, of the stack's dtypes.

    Raises:
        ValueError: if a weight is negative or not finite, if all are zero, or if `weight` does not
            have one entry per client.

    Example:
        >>> mean({"w": torch.tensor([[0.0], [4.0]])}, torch.tensor([3, 1]))
        {'w': tensor([1.])}

    Source: McMahan et al. 2017, https://arxiv.org/abs/1602.05629
    """
    share = _shares(weight)
    out = {}
    for name, value in stack.items():
        shape = list(value.shape) if isinstance(value, Tensor) else [len(value)]
        if shape[:1] != [share.numel()]:
            raise ValueError(
                f"Expected stack[{name!r}] to have {share.numel()} clients, but got shape {shape}"
            )
        shapes = {value[0].shape} if isinstance(value, Tensor) else {t.shape for t in value}
        if len(shapes) > 1:  # they would be broadcast
            raise ValueError(
                f"Expected stack[{name!r}] to have one shape, but got {sorted(map(tuple, shapes))}"
            )
        dtypes = {value.dtype} if isinstance(value, Tensor) else {t.dtype for t in value}
        if len(dtypes) > 1:
            got = sorted(map(str, dtypes))
            raise TypeError(f"Expected stack[{name!r}] to have one dtype, but got {got}")
        average = _weighted_sum(share, value)
        dtype = value[0].dtype
        out[name] = (average if dtype.is_floating_point else average.round()).to(dtype)
    return out


def _weighted_sum(share: Tensor, value: Tensor | Sequence[Tensor]) -> Tensor:
    """``sum_k share_k value_k`` in floating point, in the order of memory."""
    dtype = _exact(value[0])
    if isinstance(value, Tensor):
        exact = value.to(dtype)
        turned = exact.dim() == 3 and exact.mT.is_contiguous()  # tensordot would copy it
        total: Tensor = torch.tensordot(share.to(exact), exact.mT if turned else exact, dims=1)
        return total.mT if turned else total
    total = torch.zeros_like(value[0], dtype=dtype)
    for part, tensor in zip(share.tolist(), value, strict=True):
        total.add_(tensor, alpha=part)
    return total


def _exact(value: Tensor) -> torch.dtype:
    """What a mean is computed in: among bfloat16s the thousandth client would count nothing."""
    if value.is_complex():
        raise TypeError(f"Expected the clients' tensors to be real, but got {value.dtype}")
    if not value.is_floating_point():
        return torch.float64
    return torch.promote_types(value.dtype, torch.float32)


def mix(stack: Mapping[str, Tensor], matrix: Any, *, self_weight: float = 0.0) -> Params:
    """Each client's mix of all clients: ``out_i = rho x_i + (1 - rho) sum_j A_ij x_j``.

    Args:
        stack: name to ``[K, ...]``, e.g. the clients' updates; integers are mixed and rounded. A
            client's NaN or infinity reaches all others, also with weight 0, if A is dense.
        matrix: the client matrix A, float ``[K, K]``: a Tensor, dense or sparse, or anything of
            that shape with ``@``, as `SparseMatrix`. Its rows are used as they are.
        self_weight: rho in [0, 1], what a client keeps of its own beside its entry in the matrix.

    Returns:
        Name to ``[K, ...]``, of the stack's dtypes; with ``self_weight=1`` the stack, bit for bit.

    Raises:
        TypeError: if the matrix is not floating point.
        ValueError: if it is not of the clients' number, square and finite, or `self_weight` is not
            in [0, 1].

    Example:
        >>> A = torch.tensor([[0.5, 0.5], [0.0, 1.0]])
        >>> mix({"w": torch.tensor([[0.0], [4.0]])}, A, self_weight=0.5)
        {'w': tensor([[1.],
                [4.]])}

    Source: GPFL, TMLR 2025, Eq. 4 and 16
    """
    if not 0 <= self_weight <= 1:
        raise ValueError(f"Expected self_weight to be in [0, 1], but got {self_weight}")
    if isinstance(matrix, Tensor) and not matrix.is_floating_point():
        raise TypeError(f"Expected matrix to be floating point, but got {matrix.dtype}")
    shape = list(matrix.shape)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"Expected matrix to have shape [K, K], but got {shape}")
    ones = torch.ones(shape[0], 1, dtype=matrix.dtype, device=matrix.device)
    if not torch.isfinite(matrix @ ones).all():
        raise ValueError("Expected matrix to be finite, but got NaN or infinity")
    out = {}
    for name, value in stack.items():
        if value.shape[:1] != (shape[0],):
            got = list(value.shape)
            raise ValueError(f"Expected stack[{name!r}] to have {shape[0]} clients, but got {got}")
        if self_weight == 1:
            out[name] = value.clone()
            continue
        whole = not value.is_floating_point()
        exact = _exact(value)
        flat = value.to(exact).reshape(shape[0], math.prod(value.shape[1:]))
        mixed = torch.lerp(_as(matrix, exact) @ flat, flat, self_weight).view(value.shape)
        out[name] = (mixed.round() if whole else mixed).to(value.dtype)
    return out


def _as(matrix: Any, dtype: torch.dtype) -> Any:
    return matrix.to(dtype) if isinstance(matrix, Tensor) else matrix.astype(dtype)


def server_step(
    params: Mapping[str, Tensor],
    target: Mapping[str, Tensor],
    state: Mapping[str, Mapping[str, Tensor]],
    *,
    rule: Literal["sgd", "adam", "yogi", "adagrad"] = "sgd",
    lr: float = 1.0,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 1e-3,
) -> tuple[Params, dict[str, Params]]:
    """One step of a server optimiser on the pseudo-gradient ``D = target - params`` (FedOpt).

    ``m <- beta1 m + (1 - beta1) D`` and ``params + lr m / (sqrt(v) + tau)`` with
    ``v <- beta2 v + (1 - beta2) D^2`` (adam), ``v - (1 - beta2) D^2 sign(v - D^2)`` (yogi),
    ``v + D^2`` (adagrad), ``v_0 = tau^2``, no bias correction; sgd: ``m <- beta1 m + D`` and
    ``params + lr m``. With sgd, ``beta1 = 0``, ``lr = 1`` this is FedAvg. Integer tensors take
    the target's value.

    Args:
        params: the server's model.
        target: the clients' weighted mean.
        state: moments from the previous call, or ``{}``.
        rule: which optimiser.
        lr: server learning rate.
        beta1: decay of the first moment (momentum for sgd).
        beta2: decay of the second moment.
        tau: adaptivity.

    Returns:
        The new model, and the moments to pass next time.

    Raises:
        ValueError: for an unknown rule, if a name is missing from `target` or has another shape
            there, or if `state` is of a rule without second moments and this one has them.

    Example:
        >>> new, _ = server_step({"w": torch.zeros(1)}, {"w": torch.ones(1)}, {}, lr=0.5, beta1=0.0)
        >>> new
        {'w': tensor([0.5000])}

    Source: Reddi et al. 2021, https://arxiv.org/abs/2003.00295, Algorithm 2
    """
    if rule not in ("sgd", "adam", "yogi", "adagrad"):
        raise ValueError(f"Expected rule to be sgd, adam, yogi or adagrad, but got {rule!r}")
    new: Params = {}
    first: Params = {}
    second: Params = {}
    for name, old in params.items():
        if name not in target or target[name].shape != old.shape:
            got = list(target[name].shape) if name in target else "no such tensor"
            raise ValueError(
                f"Expected target[{name!r}] to have shape {list(old.shape)}, but got {got}"
            )
        if not old.is_floating_point():
            new[name] = target[name]
            continue
        delta = target[name] - old
        m = state["m"][name] if state else torch.zeros_like(old)
        if state and rule != "sgd" and name not in state.get("v", {}):
            raise ValueError(f"Expected state['v'] to hold {name!r} for {rule}, but got none")
        if rule == "sgd":
            first[name] = beta1 * m + delta
            new[name] = old + lr * first[name]
            continue
        v = state["v"][name] if state else torch.full_like(old, tau**2)
        first[name] = beta1 * m + (1 - beta1) * delta
        second[name] = _second_moment(rule, v, delta.square(), beta2)
        new[name] = old + lr * first[name] / (second[name].sqrt() + tau)
    return new, {"m": first} | ({"v": second} if second else {})


def _second_moment(rule: str, v: Tensor, square: Tensor, beta2: float) -> Tensor:
    if rule == "adagrad":
        return v + square
    if rule == "adam":
        return beta2 * v + (1 - beta2) * square
    return v - (1 - beta2) * square * torch.sign(v - square)


def _shares(weight: Tensor) -> Tensor:
    if weight.dim() != 1:
        raise ValueError(f"Expected weight to have shape [K], but got {list(weight.shape)}")
    share = weight.double()
    if not torch.isfinite(share).all() or (share < 0).any():
        raise ValueError(f"Expected weight to be finite and >= 0, but got {weight.tolist()}")
    if not (share > 0).any():
        raise ValueError(f"Expected weight to have a positive entry, but got {weight.tolist()}")
    return share / share.sum()

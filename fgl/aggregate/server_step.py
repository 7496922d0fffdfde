"""Step of a server optimiser: momentum, Adam, Yogi, Adagrad (FedOpt)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from ..checks import check_choice
from ..kinds import explained
from .root import root

Params = dict[str, Tensor]


@explained
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
    bias_correction: bool = False,
) -> tuple[Params, dict[str, Params]]:
    """Take a step of a server optimiser on the pseudo-gradient ``D = target - params`` (FedOpt).

    ``m <- beta1 m + (1 - beta1) D`` and ``params + lr m / (sqrt(v) + tau)`` with
    ``v <- beta2 v + (1 - beta2) D^2`` (adam), ``v - (1 - beta2) D^2 sign(v - D^2)`` (yogi),
    ``v + D^2`` (adagrad), ``v_0 = tau^2``, no bias correction; sgd: ``m <- beta1 m + D`` and
    ``params + lr m``. With sgd, ``beta1 = 0``, ``lr = 1`` this is FedAvg. With `bias_correction`
    the t-th step of adam has ``v_0 = 0`` and divides m by ``1 - beta1^t``, v by ``1 - beta2^t``:
    it is torch's Adam on the gradient ``-D``. Integer tensors take the target's value.

    Args:
        params: the server's model.
        target: the clients' weighted mean.
        state: moments from the previous call, or ``{}``.
        rule: which optimiser.
        lr: server learning rate.
        beta1: decay of the first moment (momentum for sgd).
        beta2: decay of the second moment.
        tau: adaptivity; Adam's epsilon.
        bias_correction: of adam's moments, as in its own paper, where FedOpt has none.

    Returns:
        The new model, and the moments to pass next time.

    Raises:
        ValueError: for an unknown rule, a bias correction of another rule than adam, if a name is
            missing from `target` or has another shape there, or if `state` lacks what this rule
            keeps.

    Example:
        >>> new, _ = server_step({"w": torch.zeros(1)}, {"w": torch.ones(1)}, {}, lr=0.5, beta1=0.0)
        >>> new
        {'w': tensor([0.5000])}

    Source: Reddi et al. 2021, https://arxiv.org/abs/2003.00295, Algorithm 2; the correction is
    Kingma and Ba 2015, https://arxiv.org/abs/1412.6980, Algorithm 1
    """
    check_choice("rule", rule, ("sgd", "adam", "yogi", "adagrad"))
    if bias_correction and rule != "adam":
        raise ValueError(f"Expected rule to be adam with bias_correction, but got {rule!r}")
    if bias_correction and state and "t" not in state:
        raise ValueError("Expected state['t'] to count the steps, but got none")
    t = 1 + int(state["t"]["t"]) if bias_correction and state else 1
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
        v = state["v"][name] if state else torch.full_like(old, 0.0 if bias_correction else tau**2)
        first[name] = m = beta1 * m + (1 - beta1) * delta
        second[name] = v = _second_moment(rule, v, delta * delta, beta2)
        if bias_correction:
            m, v = m / (1 - beta1**t), v / (1 - beta2**t)
        new[name] = old + lr * m / (root(v) + tau)
    steps = {"t": {"t": torch.tensor(t)}} if bias_correction else {}
    return new, {"m": first} | ({"v": second} if second else {}) | steps


def _second_moment(rule: str, v: Tensor, square: Tensor, beta2: float) -> Tensor:
    if rule == "adagrad":
        return v + square
    if rule == "adam":
        return beta2 * v + (1 - beta2) * square
    return v - (1 - beta2) * square * torch.sign(v - square)

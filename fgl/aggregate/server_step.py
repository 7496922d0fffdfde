"""Steps of server optimisers: momentum, Adam, Yogi and Adagrad (FedOpt)."""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from ..checks import check_choice, check_like, reject_if
from .mean import root

Params = dict[str, Tensor]


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

    For adam, yogi and adagrad, ``m <- beta1 m + (1 - beta1) D``, and the new model is
    ``params + lr m / (sqrt(v) + tau)``. The three rules compute v differently:
    ``v <- beta2 v + (1 - beta2) D^2`` for adam, ``v <- v - (1 - beta2) D^2 sign(v - D^2)`` for
    yogi, and ``v <- v + D^2`` for adagrad. Without bias correction, v starts at ``v_0 = tau^2``.
    For sgd: ``m <- beta1 m + D``, and the new model is ``params + lr m``. The rule sgd with
    ``beta1 = 0`` and ``lr = 1`` is FedAvg. With `bias_correction`, adam starts from ``v_0 = 0``.
    Step t then divides m by ``1 - beta1^t`` and v by ``1 - beta2^t``. With this correction, a step
    of the rule adam equals a step of `torch.optim.Adam` with the gradient ``-D``. Integer tensors
    are set to the target's values.

    Args:
        params: the server's model.
        target: the clients' weighted mean.
        state: moments from the previous call, or ``{}``.
        rule: name of the optimiser.
        lr: server learning rate.
        beta1: decay of the first moment (momentum for sgd).
        beta2: decay of the second moment.
        tau: constant that is added to the square root of v, like Adam's epsilon.
        bias_correction: whether to correct the bias of adam's moments. Adam's paper corrects the
            bias, and FedOpt does not.

    Returns:
        The new model, and the moments to pass to the next call.

    Raises:
        ValueError: if the rule is unknown, or if `bias_correction` is True and the rule is not
            adam. A ValueError is also raised if `target` lacks a tensor of `params` or has a
            different shape for it, or if `state` lacks moments of the rule.

    Example:
        >>> new, _ = server_step({"w": torch.zeros(1)}, {"w": torch.ones(1)}, {}, lr=0.5, beta1=0.0)
        >>> new
        {'w': tensor([0.5000])}

    Source: Reddi et al. 2021, https://arxiv.org/abs/2003.00295, Algorithm 2; the correction is from
    Kingma and Ba 2015, https://arxiv.org/abs/1412.6980, Algorithm 1
    """
    check_choice("rule", rule, ("sgd", "adam", "yogi", "adagrad"))
    check_like("target", target, params)
    _check_state(params, state, rule, bias_correction)
    floats = {name: old for name, old in params.items() if old.is_floating_point()}
    delta = {name: target[name] - old for name, old in floats.items()}
    before = state or _no_moments(floats, 0.0 if bias_correction else tau**2)
    new = {name: target[name] for name in params}
    if rule == "sgd":
        first = {name: beta1 * before["m"][name] + each for name, each in delta.items()}
        return new | {name: old + lr * first[name] for name, old in floats.items()}, {"m": first}
    first, second = _moments(rule, before, delta, beta1, beta2)
    t = 1 + int(before["t"]["t"]) if bias_correction else 1
    m_size, v_size = (1 - beta1**t, 1 - beta2**t) if bias_correction else (1.0, 1.0)
    for name, old in floats.items():
        new[name] = old + lr * (first[name] / m_size) / (root(second[name] / v_size) + tau)
    steps = {"t": {"t": torch.tensor(t)}} if bias_correction else {}
    return new, {"m": first} | ({"v": second} if second else {}) | steps


def _moments(
    rule: str, before: Any, delta: Mapping[str, Tensor], beta1: float, beta2: float
) -> tuple[Params, Params]:
    """The first and second moments after a step."""
    first = {n: beta1 * before["m"][n] + (1 - beta1) * each for n, each in delta.items()}
    second = {n: _second_moment(rule, before["v"][n], d * d, beta2) for n, d in delta.items()}
    return first, second


def _no_moments(params: Mapping[str, Tensor], square: float) -> dict[str, Params]:
    """Moments before the first step: m is 0, v is equal to `square`, and the step count t is 0."""
    first = {name: torch.zeros_like(each) for name, each in params.items()}
    second = {name: torch.full_like(each, square) for name, each in params.items()}
    return {"m": first, "v": second, "t": {"t": torch.tensor(0)}}


def _check_state(params: Mapping[str, Tensor], state: Any, rule: str, correction: bool) -> None:
    """Raise a ValueError unless a state has the rule's moments and its step count."""
    reject_if(correction and rule != "adam", "rule to be adam with bias_correction", repr(rule))
    reject_if(correction and state and "t" not in state, "state['t'] to count the steps", "none")
    if not state or rule == "sgd":
        return
    for name, old in params.items():
        want = f"state['v'] to hold {name!r} for {rule}"
        reject_if(old.is_floating_point() and name not in state.get("v", {}), want, "none")


def _second_moment(rule: str, v: Tensor, square: Tensor, beta2: float) -> Tensor:
    if rule == "adagrad":
        return v + square
    if rule == "adam":
        return beta2 * v + (1 - beta2) * square
    return v - (1 - beta2) * square * torch.sign(v - square)

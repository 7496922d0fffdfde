"""SCAFFOLD: clients add the server's control variate to each gradient, and subtract their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch

from .. import federation as fed
from ..checks import Weight, check_choice, check_number, reject_if
from ..federation import Means, Message, Method, Outbox, Params, State
from ..graph import Graph
from .fedopt import fedopt

Control = Literal["auto", "path", "gradient"]


@fed.layer
def scaffold(
    fedavg: Method, *, control: Control = "auto", lr: float | None = None, server_lr: Weight = 1.0
) -> Method:
    """FedAvg in which clients add ``c - c_i`` to every gradient (SCAFFOLD, Algorithm 1).

    The control variate ``c_i`` estimates the gradient of client i, and ``c`` is the mean over all
    clients. There are two options for the next control variate of a client:

    - The option ``"path"`` (option II in the paper) uses
      ``c_i - c + (theta^t - theta_i) / (S eta)`` after S local steps with learning rate eta. This
      is the mean gradient along the path if each step is ``-eta`` times its gradient.
    - The option ``"gradient"`` (option I in the paper) computes the gradient of each step's loss at
      ``theta^t``, over S further steps, and uses the mean of these gradients. This option also
      works with momentum and Adam, whose steps are not gradients. These further gradients, one per
      minibatch, are computed without dropout.

    All clients with examples have the same weight. The server computes
    ``theta += eta_g mean_i (theta_i - theta^t)`` and ``c += |S| / K mean_i (c_i^+ - c_i)`` over the
    participants. Uploads and downloads are twice as large as in FedAvg. Tensors that clients do not
    send, as with FedPer, are not corrected.

    Args:
        fedavg: FedAvg of a task; its gradients are corrected before the optimiser's step.
        control: how control variates are computed; default ``"path"`` with plain SGD, otherwise
            ``"gradient"``. With momentum or Adam, ``"path"`` also divides the path by the learning
            rate, but in this case the result is not a mean gradient.
        lr: eta, used only by ``"path"``; default the learning rate of the clients' optimiser. Plain
            SGD accepts no other value.
        server_lr: eta_g, at least 0.

    Raises:
        ValueError: if a number is out of range, `lr` is not given and the optimiser has several
            rates, `lr` differs from plain SGD's rate, or `fedavg` is a `fedselect`.

    Example:
        >>> method = scaffold(fgl.fedavg(torch.nn.Linear(1, 1)))
        >>> grads, context = {"weight": torch.ones(1, 1)}, {"correction": {"weight": -0.5}}
        >>> method.train.adjust(grads, {}, context)
        {'weight': tensor([[0.5000]])}

    Source: Karimireddy et al. 2020, https://arxiv.org/abs/1910.06378
    """
    by_path, eta = rate_of_path(fedavg, control, lr)
    reason = "its steps of one entry are not all that a client takes, which the control counts"
    fed.refuse(fedavg, "fedselect", "scaffold", reason)
    fed.refuse(fedavg, "opfgl", "scaffold", "its clients send sums, and no model")
    fed.refuse(fedavg, "scaffold", "scaffold", "both would keep their control under one name")
    names = fed.trainable(fedavg)
    base = fedavg if server_lr == 1 else fedopt(fedavg, rule="sgd", server_lr=server_lr)

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        params, context = fedavg.receive(message, state, graph)
        common = message.get("control", {})
        own = state.get("control", {})
        correction = {name: c - own[name] if name in own else c for name, c in common.items()}
        return params, {**context, "control": common, "correction": correction}

    def adjust(grads: Params, params: Params, context: Any) -> Params:
        grads = fedavg.train.adjusted(grads, params, context)
        by = context["correction"]
        return {name: grad + by[name] if name in by else grad for name, grad in grads.items()}

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new_state = fedavg.send(params, context, state, graph)
        sent = message["model"]
        own = state.get("control", {})
        zeros = {name: torch.zeros_like(params[name]) for name in sent if name in names}
        common = {**zeros, **context["control"]}
        own, start = {**zeros, **own}, context["start"]
        examples = message["num_examples"]
        if not context["trained"]["num_steps"] or not examples:
            shift = zeros  # no estimate of the gradient
        elif by_path:
            scale = 1 / (eta * int(context["trained"]["num_steps"]))  # type: ignore[operator]
            shift = {name: scale * (start[name] - params[name]) - common[name] for name in zeros}
        else:
            grads = mean_gradient(fedavg, start, graph, context)
            shift = {name: grads[name] - own[name] for name in zeros}
        new = fed.combine(torch.add, own, shift)
        message = {**message, "num_examples": (examples > 0).long(), "shift": shift}
        return message, {**new_state, "control": new}

    def controlled(outbox: Outbox, new: State, means: Means, state: State) -> tuple[Outbox, State]:
        common = common_control(means, state.get("control", {}))
        messages = fed.changed_messages(outbox, lambda message: {**message, "control": common})
        return messages, {**new, "control": common}

    aggregate = fed.after(base.aggregate, controlled, equally=("shift",))
    train = replace(fedavg.train, adjust=adjust)
    method = replace(fedavg, receive=receive, send=send, aggregate=aggregate, train=train)
    most = min(1, fedavg.rules.max_examples)  # all clients have the same weight
    return replace(method, rules=replace(method.rules, max_examples=most))


def rate_of_path(fedavg: Method, control: Control, lr: float | None) -> tuple[bool, float | None]:
    """Whether control variates come from a client's path, and the rate that divides the path.

    Raises:
        ValueError: if `control` is unknown, if the rate is not positive, or if it is not plain
            SGD's rate.

    Example:
        >>> rate_of_path(fgl.fedavg(torch.nn.Linear(1, 1)), "auto", None)
        (True, 0.1)
    """
    check_choice("control", control, ("auto", "path", "gradient"))
    plain = is_plain_sgd(fedavg)
    by_path = control == "path" or (control == "auto" and plain)
    eta = learning_rate(fedavg) if by_path and lr is None else lr
    if eta is not None:
        check_number("lr", eta, above=0)
        if by_path and plain and fedavg.train.settle is None:  # settle may change a step's length
            _check_rate(eta, rates(fedavg))
    return by_path, eta


def _check_rate(eta: float, all_rates: list[float]) -> None:
    """Raise an error if a rate is outside the range of plain SGD's rates by more than rounding."""
    if not all_rates[0] * (1 - 1e-6) <= eta <= all_rates[-1] * (1 + 1e-6):
        span = " to ".join(f"{rate:g}" for rate in sorted({all_rates[0], all_rates[-1]}))
        raise ValueError(
            f"Expected lr to be {span} as the clients' SGD has it, but got {eta:g}: leave lr out"
        )


def common_control(means: Means, before: Params) -> Params:
    """The mean control variate after a round with participants S: ``c + |S| / N mean_S shift``.

    Example:
        >>> inbox = fgl.federation.Inbox({1: {}, 3: {}}, num_clients=4)
        >>> means = Means({"shift": {"w": torch.tensor(2.0)}}, inbox)
        >>> common_control(means, {"w": torch.tensor(1.0)})
        {'w': tensor(2.)}
    """
    share = len(means.clients) / means.num_clients
    return {name: before.get(name, 0) + share * value for name, value in means["shift"].items()}


def mean_gradient(method: Method, params: Params, graph: Graph, context: Any) -> Params:
    """The loss's gradient at fixed `params`, averaged over a client's local steps.

    Returns:
        The gradient of each trained tensor, by name; zeros without a step.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> method = fgl.fedavg(fgl.nn.GCN(2, 8, 2))
        >>> list(mean_gradient(method, method.initial(), graph, {}))[:1]
        ['convs.0.bias']
    """
    names = fed.trainable(method)
    total = {name: torch.zeros_like(value) for name, value in params.items() if name in names}
    steps = fed.local_steps(method.train, graph, context)
    if steps and all(step is steps[0] for step in steps):
        steps = steps[:1]  # every step uses all of the client's data
    for batch, batch_context in steps:
        for name, grad in fed.gradient(method, params, batch, batch_context).items():
            total[name] = total[name] + grad / len(steps)
    return total


def groups_of(method: Method) -> tuple[type, list[dict[str, Any]]]:
    """The type of a method's optimiser, and its parameter groups' options."""
    optimizer = method.train.optimizer([p.detach().clone() for p in method.model.parameters()])
    return type(optimizer), optimizer.param_groups


def is_plain_sgd(method: Method) -> bool:
    """Whether an optimiser's step is the learning rate times the gradient, up to weight decay.

    Example:
        >>> is_plain_sgd(fgl.fedavg(torch.nn.Linear(1, 1)))
        True
    """
    kind, groups = groups_of(method)
    return kind is torch.optim.SGD and not any(group["momentum"] for group in groups)


def learning_rate(method: Method) -> float:
    """The learning rate of a method's optimiser.

    Raises:
        ValueError: if the optimiser has several rates.

    Example:
        >>> learning_rate(fgl.fedavg(torch.nn.Linear(1, 1)))
        0.1
    """
    all_rates = rates(method)
    reject_if(len(all_rates) != 1, "lr to be given where the optimizer has not one rate", all_rates)
    return all_rates[0]


def rates(method: Method) -> list[float]:
    """The distinct learning rates of a method's optimiser, in ascending order.

    Example:
        >>> rates(fgl.fedavg(torch.nn.Linear(1, 1)))
        [0.1]
    """
    return sorted({float(group["lr"]) for group in groups_of(method)[1]})

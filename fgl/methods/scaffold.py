"""SCAFFOLD: a client adds the server's control variate minus its own variate to each gradient."""

from dataclasses import replace
from typing import Any

import torch

from .. import federation as fed
from ..checks import Weight
from ..federation import Means, Message, Method, Outbox, Params, State
from ..graph import Graph
from .fedopt import fedopt


@fed.layer(sealed=("train.optimizer",))
def scaffold(fedavg: Method, *, server_lr: Weight = 1.0) -> Method:
    """FedAvg with equal weights; clients add ``c - c_i`` to every gradient (SCAFFOLD, Algorithm 1).

    The control variate ``c_i`` estimates the gradient of client i, and ``c`` is the mean of all
    clients' control variates. A client's optimiser determines the client's next control variate:

    - Plain SGD with one learning rate eta uses option II of the paper. After S local steps, the
      next variate is ``c_i - c + (theta^t - theta_i) / (S eta)``. This is the mean gradient over
      the S steps, since each step is ``-eta`` times a gradient.
    - Any other optimiser, such as Adam or SGD with momentum, uses option I of the paper. After S
      local steps, the client computes the gradients of the S minibatches at ``theta^t``, without
      dropout. The next variate is the mean of these S gradients.

    All clients with examples have the same weight. The server computes
    ``theta += eta_g mean_i (theta_i - theta^t)`` and ``c += |S| / K mean_i (c_i^+ - c_i)`` over the
    participants. Uploads and downloads are twice as large as in FedAvg. SCAFFOLD does not correct
    gradients of tensors that clients do not send (as in FedPer).

    Args:
        fedavg: FedAvg built for a task. Gradients are corrected before each step of the optimiser.
        server_lr: eta_g, at least 0.

    Raises:
        ValueError: if a number is out of range, or if the given method already uses SCAFFOLD,
            FedDC, FedSelect or O-pFGL. With `server_lr` other than 1, the given method may not use
            FedOpt, GCFL or GCFL+ either. A run raises a ValueError if an outer method replaces the
            optimizer of `fedavg`.

    Example:
        >>> method = scaffold(fgl.fedavg(torch.nn.Linear(1, 1)))
        >>> grads, context = {"weight": torch.ones(1, 1)}, {"correction": {"weight": -0.5}}
        >>> method.train.adjust(grads, {}, context)
        {'weight': tensor([[0.5000]])}

    Source: Karimireddy et al. 2020, https://arxiv.org/abs/1910.06378
    """
    reason = "its steps of one entry are not all that a client takes, which the control counts"
    fed.refuse(fedavg, "fedselect", "scaffold", reason)
    fed.refuse(fedavg, "opfgl", "scaffold", "its clients send sums, and no model")
    reason = "both would keep their control, or send its shift, under one name"
    fed.refuse(fedavg, ("scaffold", "feddc"), "scaffold", reason)
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
        own, examples = {**zeros, **own}, message["num_examples"]
        shift = zeros  # without an estimate of the gradient
        if examples:
            shift = change_of_control(fedavg, params, context, graph, own, common)
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


def change_of_control(
    method: Method, params: Params, context: Any, graph: Graph, own: Params, common: Params
) -> Params:
    """The change of a client's control variate in a round; 0 if the client took no step.

    With plain SGD, the new control variate is computed from the change of the client's model
    (option II in `scaffold`). With any other optimiser, the new control variate is the mean
    gradient at the received model (option I).
    """
    start, steps = context["start"], int(context["trained"]["num_steps"])
    if not steps:
        return fed.combine(torch.zeros_like, own)
    if eta := rate_of_path(method):  # of this round, if there is a schedule
        scale = 1 / (steps * eta)
        return {name: scale * (start[name] - params[name]) - common[name] for name in own}
    grads = mean_gradient(method, start, graph, context)
    return {name: grads[name] - own[name] for name in own}


def rate_of_path(fedavg: Method) -> float | None:
    """The learning rate of plain SGD, which steps by ``-rate`` times a gradient.

    The result is None for any other optimiser. The result is also None if SGD has momentum, has
    `maximize` set, has several learning rates, or has the learning rate 0.

    Example:
        >>> rate_of_path(fgl.fedavg(torch.nn.Linear(1, 1)))
        0.1
    """
    optimizer = fedavg.train.optimizer([*fedavg.model.parameters()])
    groups = optimizer.param_groups
    rates = {float(group["lr"]) for group in groups}
    plain = type(optimizer) is torch.optim.SGD
    plain = plain and not any(group["momentum"] or group["maximize"] for group in groups)
    return rates.pop() or None if plain and len(rates) == 1 else None


def common_control(means: Means, before: Params) -> Params:
    """The mean control variate after a round with participants S: ``c + |S| / N mean_S shift``.

    Example:
        >>> inbox = fgl.federation.Inbox({1: {}, 3: {}}, num_clients=4)
        >>> means = Means({"shift": {"w": torch.tensor(2.0)}}, inbox)
        >>> common_control(means, {"w": torch.tensor(1.0)})
        {'w': tensor(2.)}
    """
    share = len(means.clients) / means.num_clients
    return {name: share * value + before.get(name, 0) for name, value in means["shift"].items()}


def mean_gradient(method: Method, params: Params, graph: Graph, context: Any) -> Params:
    """Average the loss's gradients at `params` over all local steps of a client.

    Returns:
        A dict from the names of trained tensors to their average gradients, which are 0 if there is
        no step.

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

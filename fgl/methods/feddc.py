"""FedDC: clients track drifts, which are used to correct local training and the mean model."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .. import federation as fed
from ..checks import Weight
from ..federation import Inbox, Means, Message, Method, Outbox, Params, State
from ..graph import Graph
from .feddyn import drifting, half_square, inner
from .scaffold import change_of_control, common_control


@fed.layer(sealed=("train.optimizer",), checks=[fed.check_averages])
def feddc(fedavg: Method, *, penalty: Weight = 0.01) -> Method:
    """FedAvg with equal weights; clients track and correct their drift ``h_k`` (FedDC, Eq. 3).

    Client k minimises ``loss + alpha_k / 2 ||theta - (theta^t - h_k)||^2 + <theta, c_k - s_k>``
    with ``alpha_k = alpha n / n_k`` and ``c_k = s n / n_k``. After S steps with learning rate eta,
    the client updates two values:

    - ``h_k += theta_k - theta^t`` is the client's drift (Eq. 6);
    - ``s_k <- s_k - c_k + (theta^t - theta_k) / (S eta)`` is the mean of the client's gradients
      over the S local steps. With Adam, this formula does not give a mean gradient, since an Adam
      step is not a multiple of a gradient. With Adam, ``s_k`` is instead the mean gradient of the
      client's loss at ``theta^t``, as in `scaffold`.

    The server computes ``theta^{t+1} = mean_P theta_k + 1 / K sum_k h_k``, as in FedDyn. Here P is
    the set of participants, and K is the number of all clients. The server also adds
    ``1 / K sum_P n_k / n d_k`` to ``s``, where d_k is the change of ``s_k``. Client k has n_k
    training examples, and n is the mean of n_k over all clients. Clients send n_k before the first
    round (`fgl.federation.Joining`). A fixed point has ``s = 1 / K sum_k n_k / n s_k = 0`` and
    ``sum_k h_k = 0``. So at a fixed point, the total gradient over all clients' examples is 0. This
    holds whichever clients take part in a round.

    With plain SGD, this method computes the same local steps and the same models as the authors'
    code, apart from three differences. First, S is here the number of local steps of client k. In
    the authors' code, S is the mean of this number over clients. Second, clients here predict with
    the server's model theta. The authors also score means of the clients' models. Third, gradients
    are clipped only if `fedavg` clips gradients; the authors clip gradients at norm 10.

    Args:
        fedavg: FedAvg built for a task; the server must send the mean of the models.
        penalty: alpha, at least 0; the authors use 0.01 for CIFAR-10 and 0.1 for MNIST.

    Raises:
        ValueError: if a number is out of range, if the server of `fedavg` does not send the mean of
            the models, or if clients train tensors outside the model. A run raises a ValueError if
            an outer method replaces the optimizer of `fedavg`.

    Example:
        >>> method = feddc(fgl.fedavg(torch.nn.Linear(1, 1)))
        >>> graph = fgl.Graph(torch.ones(3, 1), torch.zeros(2, 0).long())
        >>> sizes = {"num_examples": torch.tensor(4), "num_clients": torch.tensor(2)}
        >>> _, context = method.receive({"model": method.initial(), **sizes}, {}, graph)
        >>> list(context)[-4:], context["share"]
        (['drift', 'share', 'own', 'common'], tensor(1.5000))

    Source: Gao et al. 2022, https://arxiv.org/abs/2203.11751; https://github.com/gaoliang13/FedDC
    """
    base = drifting(fedavg, "feddc")

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        params, context = base.receive(message, state, graph)
        zeros = {name: torch.zeros_like(value) for name, value in context["drift"].items()}
        own = {**zeros, **state.get("own", {})}
        sent: Any = message.get("gradient", {})
        common = {**zeros, **{name: sent[name] / context["share"] for name in sent}}
        return params, {**context, "own": own, "common": common}

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        start, drift, own = context["start"], context["drift"], context["own"]
        far = half_square(params, {name: start[name] - drift[name] for name in drift}, drift)
        tilt = inner({name: context["common"][name] - own[name] for name in own}, params)
        term: Tensor = penalty / context["share"] * far + tilt
        return fedavg.loss(params, graph, context) + term

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new_state = base.send(params, context, state, graph)
        own, change = context["own"], fed.combine(torch.zeros_like, context["own"])
        if message["num_examples"]:
            change = change_of_control(fedavg, params, context, graph, own, context["common"])
        shift = {name: context["share"] * value for name, value in change.items()}
        new = {name: own[name] + value for name, value in change.items()}
        return {**message, "shift": shift}, {**new_state, "own": new}

    @torch.no_grad()
    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        outbox, new = base.aggregate(inbox, state)
        if not outbox:
            return outbox, state
        gradient = common_control(Means.over(inbox, equally=["shift"]), state.get("gradient", {}))
        messages = fed.changed_messages(outbox, lambda message: {**message, "gradient": gradient})
        return messages, {**new, "gradient": gradient}

    return replace(base, receive=receive, loss=loss, send=send, aggregate=aggregate)

"""FedSSP: clients average their spectral encoders; each client keeps the rest of its model."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .. import federation as fed
from ..aggregate import mean
from ..checks import Weight
from ..federation import Broadcast, Inbox, Message, Method, Outbox, Params, State
from ..graph import Graph
from ..nn import SSP, observed
from ..personalize import part
from .inputs import check_entry, network_of
from .own_models import own_models


@fed.layer(checks=[fed.check_averages, fed.check_one_architecture])
def fedssp(fedavg: Method, *, weight: Weight = 25.0, draw: bool = True) -> Method:
    """Average the clients' spectral encoders; each client keeps the rest of its model (FedSSP).

    Clients send the tensors named in `SSP.SPECTRAL`, and the server averages these tensors with
    equal weights. A client also sends ``m_k``, the mean embedding of the graphs in the client's
    last local step. The client receives the consensus ``m``, which is the mean of ``m_k`` over the
    clients. From its second round on, a client minimises

    ``loss + weight / 2 mean_i (m_B - m)_i^2``.

    The mean is over the d entries i of an embedding, and ``m_B`` is the mean embedding of the
    graphs in one local step.

    The preference is a vector p that a client adds to embeddings before the head of its model. The
    preference is not trained until there is a consensus. Each client keeps its own head. The head
    is linear: ``W (e + p) + b = W e + (W p + b)``. So adding a preference has the same effect as
    adding W p to the head's bias.

    As in the public code, each client initialises its own model, including the shared part (see
    `draw`). In the first round the encoders are not averaged. Batch norm statistics are never sent.
    The public code seems to contain mistakes in the following places:

    - The public code runs only on a GPU. In the public code, the preference stays zero: the loss
      reads a copy of the preference, and the optimiser does not train this copy. During evaluation,
      the public code does not add the preference at all. Here the task's optimiser trains the
      preference, and the deployed model contains it. The public code also declares an SGD optimiser
      for the preference, with a learning rate of .005. However, the public code never resets the
      preference's gradient to zero.
    - The public code resets its moving average of embeddings in each step. So the average is only
      half of the step's mean embedding. The public code's tau of 100 corresponds to ``weight=25``.
    - The public code creates a new AdamW for each step. This is equivalent to
      ``AdamW(betas=(0, 0))``: the update is nearly the sign of the gradient. The learning rate is
      .001, and the weight decay is 5e-4. The flags for the learning rate and for dropout have no
      effect in the public code. The network's dropout is always .1.
    - The public code creates three things that it never uses: FedStar's structural encodings,
      client weights that depend on numbers of examples, and an Adam optimiser.
    - The public code splits a client's graphs into fixed minibatches, and leaves out graphs without
      edges. Here the task samples minibatches, also from graphs without edges.

    Args:
        fedavg: FedAvg built for a task whose model is a `fgl.nn.SSP`. The server must send the mean
            of the models.
        weight: weight of the distance to the consensus, at least 0.
        draw: if true, each client initialises its own model; if false, all clients start from the
            common model.

    Raises:
        ValueError: if the weight is negative, if the model is not a `fgl.nn.SSP`, or if the server
            of `fedavg` does not send the mean of the models.

    Example:
        >>> fedssp(fgl.fedavg(fgl.nn.SSP(4, 8, 2)), weight=10.0)
        fedssp(fedavg(SSP(...)), weight=10.0)

    Source: Tan et al. 2024, https://arxiv.org/abs/2410.20105; https://github.com/OakleyTan/FedSSP
    """
    width = network_of(fedavg, SSP, "fedssp", "model='ssp' in a task").width
    base = own_models(fedavg, draw=draw)
    shared = part(fedavg.initial(), *SSP.SPECTRAL).keys() & fed.trainable(fedavg)

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        params, context = base.receive(message, state, graph)
        return params, {**context, **fed.pick(message, ["consensus"])}

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        agreed = context.get("consensus")
        if agreed is None:
            params = {**params, "preference": params["preference"].detach()}
        with observed(fed.stand_in(base.model)) as passes:
            total = base.loss(params, graph, context)
        if agreed is None:
            return total
        far: Tensor = (passes[-1].embedding.mean(0) - agreed).square().mean()
        return total + weight / 2 * far

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new_state = base.send(params, context, state, graph)
        model = fed.pick(message["model"], shared)
        mean_embedding = message["model"]["mean_embedding"]
        return {**message, "model": model, "mean_embedding": mean_embedding}, new_state

    def accept(message: Message, client: int, state: State) -> None:
        fedavg.accept(message, client, state)
        check_entry(message, "mean_embedding", [width])

    @torch.no_grad()
    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        weight = (inbox.stack("num_examples") > 0).to(torch.float64)
        if not weight.any():
            return {}, state
        message: Message = mean({"consensus": inbox.stack("mean_embedding")}, weight)
        if "consensus" in state:  # clients keep their own first encoders for two rounds
            message = {**message, "model": mean(inbox.each("model"), weight)}
        return Broadcast(message, inbox.num_clients), {**state, **message}

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        return base.receive(message, state, graph)[0]

    functions: dict[str, Any] = {"receive": receive, "loss": loss, "send": send}
    return replace(base, **functions, accept=accept, aggregate=aggregate, deploy=deploy)

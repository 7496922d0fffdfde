"""MOON: a contrastive loss of the trained model, the received model and the client's last model."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .. import federation as fed
from ..checks import Positive, Weight
from ..federation import Message, Method, Params, Ragged, State
from ..graph import Graph
from ..losses import model_contrast
from ..nn import observed
from .inputs import check_sees_all, embedder


@fed.layer
def moon(fedavg: Method, *, contrast: Weight = 1.0, temperature: Positive = 0.5) -> Method:
    """FedAvg with a contrastive loss between models (MOON, Eq. 3; FedVGAE, Eq. 10).

    The loss's forward pass computes the embeddings of the trained model. In a client's first round,
    there is no contrastive term. In later rounds, the contrastive term makes embeddings less
    similar to those of the client's last model, and more similar to those of the received model.

    This method follows the authors' code, with four exceptions. The authors compute the contrast
    over a minibatch of training examples. Here the contrast is computed over all nodes of a client,
    since the contrast needs no labels. The authors compare the outputs of a projection head, that
    is, the inputs of the last layer. Here the model's embeddings are compared. Here the stored
    embeddings of an absent client do not change. The authors recompute the stored embeddings with
    the client's last model. Before the client's first round, this last model is an untrained
    network. The authors' code can store a queue of earlier models, but it uses only one model of
    the queue.

    Args:
        fedavg: FedAvg built for a task; the contrastive term is added to the task's loss. The model
            must take ``return_embedding=True``, and the loss must see all nodes in each step.
        contrast: weight of the term, at least 0; 0 turns the term off.
        temperature: temperature of the contrast, above 0.

    Raises:
        TypeError: if the model does not take ``return_embedding``.
        ValueError: if a number is out of range, if clients train tensors outside the model, or if
            the given method already uses MOON.

    Example:
        >>> graph = fgl.Graph(torch.eye(4), torch.tensor([[0], [1]]))
        >>> method = moon(fgl.fedavg(fgl.nn.GCN(4, 8, 2)))
        >>> params, context = method.receive({"model": method.initial()}, {}, graph)
        >>> context["near"].values.shape, context["far"].values.shape, context["taken"]
        (torch.Size([4, 8]), torch.Size([4, 1, 8]), tensor([False]))

    Source: Li et al. 2021, https://arxiv.org/abs/2103.16257; https://github.com/QinbinLi/MOON
    """
    if not contrast:
        return fedavg
    fed.refuse(fedavg, "moon", "moon", "both would keep their embeddings under one name")
    fed.check_model_alone(fedavg, "moon")
    fed.check_one_architecture(fedavg, "moon")
    embed = embedder(fedavg.model)

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        params, context = fedavg.receive(message, state, graph)
        positive = embed(context.get("received", params), graph)
        far = state.get("queue", positive.new_zeros(len(positive), 1, positive.shape[1]))
        taken = torch.arange(1, device=positive.device) < state.get("rounds", 0)
        return params, {**context, "near": Ragged(positive), "far": Ragged(far), "taken": taken}

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        with observed(fedavg.model) as passes:
            total = fedavg.loss(params, graph, context)
        positive = context["near"].values
        check_sees_all("moon", len(passes[-1].embedding), len(positive))
        term = model_contrast(
            passes[-1].embedding,
            positive,
            context["far"].values.transpose(0, 1),
            temperature=temperature,
            mask=context["near"].mask,
            queue_mask=context["taken"],
        )
        return total + contrast * term

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new_state = fedavg.send(params, context, state, graph)
        rounds = state.get("rounds", 0) + torch.tensor(1)
        return message, {**new_state, "rounds": rounds, "queue": embed(params, graph)[:, None]}

    return replace(fedavg, receive=receive, loss=loss, send=send)

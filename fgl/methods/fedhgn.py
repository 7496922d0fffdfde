"""FedHGN: clients average basis matrices.

Each client keeps the coefficients that combine the matrices.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from .. import federation as fed
from ..checks import Weight, reject_if
from ..federation import Means, Message, Method, Outbox, Params, State
from ..graph import Graph


@fed.layer(checks=[fed.check_model_alone])
def fedhgn(
    fedavg: Method, *, align: Weight = 0.5, coefficients: str = "comp", draw: bool = True
) -> Method:
    """Average the basis matrices of relations, but not the clients' coefficients (FedHGN).

    The matrix of relation r is ``W_r = sum_b c_rb V_b``. The server averages the bases V and all
    other tensors except the coefficients c. Each client keeps its own coefficients c. So relation
    number 1 may mean one relation at one client and another relation at another client. The server
    forwards each client's coefficients to all other clients. Client k minimises

    ``loss + align sum_layers sum_r min_{r'} ||c_r - c'_{r'}||^2``.

    The index r' runs over the relations of all other clients. In a client's first round, the
    penalty is 0.

    The published settings are 20 bases, SGD with a learning rate of .1, and 3 epochs per round. The
    network of the public code begins with a layer that sums node embeddings. Each client keeps this
    layer. This network has a linear last layer, but it has no node features and no matrix for
    self-loops. The public code initialises coefficients for each relation separately, with the gain
    of ReLU. Here the task defines the network, and the network's layers define the scale of initial
    coefficients.

    Args:
        fedavg: FedAvg built for a task; the task's model must have bases, such as
            ``fgl.nn.RGCN(..., num_bases=4)``.
        align: weight of the alignment, at least 0.
        coefficients: the part after the last dot in the name of each tensor that holds coefficients
            ``[num_relations, num_bases]``.
        draw: if true, each client initialises its own coefficients in its first round, by Glorot's
            uniform rule as in `fgl.nn.RGCN`. If false, all clients start from one common set of
            coefficients, so a relation number must have the same meaning for all clients.

    Raises:
        ValueError: if the model has no such coefficients, if `align` is negative, or if clients
            train tensors outside the model.

    Example:
        >>> net = fgl.nn.RGCN(4, 8, 2, num_relations=3, num_bases=2)
        >>> fedhgn(fgl.fedavg(net), align=0.1)
        fedhgn(fedavg(RGCN(...)), align=0.1)

    Source: Fu and King 2023, FedHGN, https://arxiv.org/abs/2305.09729;
    https://github.com/cynricfu/FedHGN
    """
    first = fedavg.initial()
    own = [name for name in first if name.rsplit(".", 1)[-1] == coefficients]
    want = f"the model to have coefficients of bases, called {coefficients!r}"
    reject_if(not own, want, f"{list(first)}: fgl.nn.RGCN has them with num_bases")
    empty = {name: first[name].new_zeros(1, first[name].shape[1]) for name in own}

    def whole(message: Message, state: State) -> Message:
        """Add the client's own coefficients to the model in the message."""
        mine = state.get("coefficients", {})
        return {**message, "model": {**first, **message.get("model", {}), **mine}}

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        if draw and "coefficients" not in state:
            fresh = {name: nn.init.xavier_uniform_(torch.empty_like(first[name])) for name in own}
            state = {**state, "coefficients": fresh}
        params, context = fedavg.receive(whole(message, state), state, graph)
        return params, {**context, "others": message.get("others", empty)}

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        apart = [nearest(params[name], context["others"][name]) for name in own]
        return fedavg.loss(params, graph, context) + align * torch.stack(apart).sum()

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new_state = fedavg.send(params, context, state, graph)
        model = message["model"]
        shared = fed.drop(model, own)
        mine = {name: model[name] for name in own}
        upload = {**message, "model": shared, "coefficients": mine}
        return upload, {**new_state, "coefficients": mine}

    @torch.no_grad()
    def with_others(outbox: Outbox, new: State, means: Means, state: State) -> tuple[Outbox, State]:
        inbox = means.inbox
        uploaded, tables = inbox.stack("coefficients"), state.get("coefficients", {})
        index = torch.tensor(inbox.clients)
        latest = {}
        for name, rows in uploaded.items():
            table = tables.get(name, rows.new_zeros(inbox.num_clients, *rows.shape[1:]))
            latest[name] = table.index_copy(0, index.to(rows.device), rows)
        sent = {
            client: {**message, "others": {n: _without(t, client) for n, t in latest.items()}}
            for client, message in outbox.items()
        }
        return sent, {**new, "coefficients": latest}

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        return fedavg.deploy(whole(message, state), state, graph)

    aggregate = fed.after(fedavg.aggregate, with_others, reads=("coefficients",))
    method = replace(fedavg, receive=receive, loss=loss, send=send)
    return replace(method, aggregate=aggregate, deploy=deploy)


def nearest(own: Tensor, others: Tensor) -> Tensor:
    """Distance to the other clients' nearest relations: ``sum_r min_{r'} ||c_r - c'_{r'}||^2``.

    Args:
        own: float ``[R, B]``.
        others: float ``[*, B]``, coefficients of all other clients.

    Returns:
        Scalar; 0 if there is no other client.

    Example:
        >>> nearest(torch.tensor([[0.0, 1.0], [5.0, 0.0]]), torch.tensor([[0.0, 0.0], [5.0, 2.0]]))
        tensor(5.)

    Source: Fu and King 2023 (alignment), https://arxiv.org/abs/2305.09729
    """
    if not others.shape[0]:
        return own.sum() * 0
    distance: Tensor = (own[:, None] - others[None]).square().sum(-1)
    return distance.min(1).values.sum()


def _without(table: Tensor, client: int) -> Tensor:
    """All other clients' coefficients, stacked along rows."""
    return torch.cat([table[:client], table[client + 1 :]]).flatten(0, 1)

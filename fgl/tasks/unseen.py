"""Unseen clients: they never train, and the models sent to other clients are scored on them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..checks import check_number, reject_if
from ..federation import Evaluate, Method, Outbox, Params, State, means, scored, together
from ..graph import Graph
from .scores import node_scores
from .task import Task


def with_unseen(task: Task, count: int) -> Task:
    """The given task with a change: the last `count` clients never train.

    ``unseen_accuracy`` is the accuracy at these last clients.

    An unseen client joins after training and has no state. The server sends a message to each
    training client, and the unseen client is scored with each of these messages. The score of the
    unseen client is the mean of these scores. If the method has one common model, the scores are
    all equal. ``unseen_accuracy`` is the mean of these scores over unseen clients. A client is
    scored on its own test nodes. If the server sends no model, as in local training,
    ``unseen_accuracy`` is left out. If the training clients have `node_id`, centralized training
    uses only the nodes of training clients. Without `node_id`, centralized training is not
    available.

    Args:
        task: a task that classifies nodes.
        count: number of unseen clients.

    Returns:
        The new task, or the given task if `count` is 0.

    Raises:
        ValueError: if no client is left to train, or if an unseen client has no test nodes.
        TypeError: if the labels of an unseen client are numbers instead of classes.

    Example:
        >>> task = fgl.tasks.Nodes(clients=4, hidden=8).load(seed=0)
        >>> task = with_unseen(task, 1)
        >>> result = fgl.run(task.fedavg, task, num_rounds=1)
        >>> len(task.clients), "unseen_accuracy" in result.history[0].metrics
        (3, True)

    Source: the setting of clients that join later, as in FedEgo, https://arxiv.org/abs/2208.13685
    """
    check_number("unseen", count, at_least=0, integer=True)
    if not count:
        return task
    reject_if(count >= len(task.clients), f"unseen to leave a client of {len(task.clients)}", count)
    members, unseen = list(task.clients[:-count]), list(task.clients[-count:])
    for own in unseen:
        other = own.has("batch") or own.has("edge_label_index") or not own.has("test_mask")
        reject_if(other, "unseen clients to have nodes with a test_mask", own)
        _ = own.labels  # raises if labels are numbers

    def scores(method: Method, clients: Sequence[Graph], **how: Any) -> Evaluate:
        score = node_scores(method.model)

        def newcomers(outbox: Outbox, states: Mapping[int, State]) -> dict[str, float]:
            pairs: dict[tuple[int, int], tuple[Params, Graph]] = {}
            for number, graph in enumerate(unseen):
                for client, message in outbox.items():
                    if "model" in message:
                        pairs[number, client] = method.deploy(message, {}, graph), graph
            values = scored(method.model, score, pairs)
            each: list[dict[str, float]] = []
            for number in range(len(unseen)):
                own = [v for (n, _), v in values.items() if n == number and "test_accuracy" in v]
                if own:
                    each.append({"unseen_accuracy": means(own)["test_accuracy"]})
            return means(each) if each else {}

        return together(task.scores(method, clients, **how), newcomers)

    return replace(task, clients=members, scores=scores, whole=_held_by(members, task.whole))


def _held_by(clients: Sequence[Graph], whole: Graph | None) -> Graph | None:
    """The subgraph of the nodes that belong to the given clients.

    The result is None if a client has no node ids.
    """
    ids = [own.node_id for own in clients if own.node_id is not None]
    if whole is None or len(ids) < len(clients):
        return None
    nodes = torch.arange(whole.num_nodes, device=whole.device)
    own = nodes if whole.node_id is None else whole.node_id
    return whole.subgraph(nodes[torch.isin(own, torch.cat(ids))])

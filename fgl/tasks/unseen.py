"""Unseen clients: they never train, and are scored with models that the others are sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..federation import Evaluate, Message, Method, Params, State, means, scored, together
from ..graph import Graph
from .scores import node_scores
from .task import Task


def with_unseen(task: Task, count: int) -> Task:
    """The task whose last clients never train; ``unseen_accuracy`` is what they would have.

    Such a client comes when training is over, has kept nothing, and is sent what some other client
    is sent. Its score is the mean over whose message that is; for a method with one model for all
    there is no difference. The metric is the mean over unseen clients on their own test nodes, and
    left out where nobody is sent a model (training alone).

    Args:
        task: that classifies nodes.
        count: how many clients are unseen.

    Returns:
        The task itself where `count` is 0.

    Raises:
        ValueError: if no client is left to train.

    Example:
        >>> task = fgl.tasks.Nodes(clients=4, hidden=8).load(seed=0)
        >>> task = with_unseen(task, 1)
        >>> result = fgl.run(task.fedavg, task, num_rounds=1)
        >>> len(task.clients), "unseen_accuracy" in result.history[0].metrics
        (3, True)

    Source: the setting of clients that join later, as in FedEgo, https://arxiv.org/abs/2208.13685
    """
    if not count:
        return task
    if not 0 < count < len(task.clients):
        raise ValueError(
            f"Expected unseen to leave a client of {len(task.clients)}, but got {count}"
        )
    seen, unseen = list(task.clients[:-count]), list(task.clients[-count:])

    def scores(method: Method, clients: Sequence[Graph]) -> Evaluate:
        score = node_scores(method.model)

        def newcomers(
            outbox: Mapping[int, Message], states: Mapping[int, State]
        ) -> dict[str, float]:
            pairs: dict[tuple[int, int], tuple[Params, Graph]] = {}
            for number, graph in enumerate(unseen):
                for client, message in outbox.items():
                    if "model" in message:
                        pairs[number, client] = method.deploy(message, {}, graph), graph
            found = scored(method.model, score, pairs)
            each: list[dict[str, float]] = []
            for number in range(len(unseen)):
                own = [v for (n, _), v in found.items() if n == number and "test_accuracy" in v]
                if own:
                    each.append({"unseen_accuracy": means(own)["test_accuracy"]})
            return means(each) if each else {}

        return together(task.scores(method, clients), newcomers)

    return replace(task, clients=seen, scores=scores)

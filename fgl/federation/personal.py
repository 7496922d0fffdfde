"""Clients with models of their own: where they start, who averages them, how they are scored."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from .. import aggregate as server
from ..graph import Graph
from ..losses import soft_cross_entropy
from ..metrics import accuracy
from .evaluate import Evaluate, in_mode
from .message import Inbox, Message, Params
from .method import State
from .trees import one_hot

Personal = Callable[[Params, Message, Graph], Params]


def own_model(model: nn.Module, state: State) -> Params:
    """A client's own model: what it keeps in its state, or an initial one drawn anew.

    Args:
        model: the architecture; its modules have `reset_parameters`, or it has that itself.
        state: the client's.

    Returns:
        The parameters under ``state["model"]``; without them those of ``reset_parameters``, drawn
        from torch's global generator.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> first = own_model(model, {})
        >>> first["weight"].equal(model.weight), own_model(model, {"model": first}) == first
        (False, True)
    """
    if "model" in state:
        kept: Any = state["model"]
        return dict(kept)
    fresh = copy.deepcopy(model)
    whole = hasattr(fresh, "reset_parameters")
    for module in [fresh] if whole else fresh.modules():
        reset: Any = getattr(module, "reset_parameters", None)
        if reset is not None:
            reset()
    return {name: value.detach() for name, value in fresh.state_dict().items()}


def ring_average(inbox: Inbox) -> dict[int, Message]:
    """D-FedGNN without a server: the mean of one's own model and those of two neighbours.

    ``theta_i <- (theta_{i-1} + theta_i + theta_{i+1}) / 3``, clients being a ring; a client that is
    absent counts for nobody, and gets nothing.

    Args:
        inbox: messages with ``"model"``.

    Returns:
        ``{"model": mean, "num_clients": how many went into it}`` for every client of the inbox.

    Example:
        >>> inbox = Inbox({k: {"model": {"w": torch.tensor(3.0 * k)}} for k in range(4)}, 4)
        >>> [float(message["model"]["w"]) for message in ring_average(inbox).values()]
        [4.0, 3.0, 6.0, 5.0]

    Source: Pei et al. 2021, Decentralized Federated Graph Neural Networks
    """
    models, n = inbox.each("model"), inbox.num_clients
    position = {client: i for i, client in enumerate(inbox)}
    outbox: dict[int, Message] = {}
    for client in inbox:
        around = sorted({(client - 1) % n, client, (client + 1) % n})
        near = [position[other] for other in around if other in position]
        parts = {name: [each[i] for i in near] for name, each in models.items()}
        mean = server.mean(parts, torch.ones(len(near)))
        outbox[client] = {"model": mean, "num_clients": torch.tensor(len(near))}
    return outbox


def adapted(mu: Tensor, loss: Tensor, penalty: Tensor) -> Tensor:
    """FedProx's weight for the next round: the penalty shall be of about the loss's size.

    Ten times as much where ``loss > 5 mu penalty`` (while ``mu <= 1``), a tenth where
    ``loss < mu penalty / 2`` (while ``mu >= 1e-4``).

    Example:
        >>> adapted(torch.tensor(1.0), torch.tensor(0.1), torch.tensor(2.0))
        tensor(0.1000)

    Source: Zhang et al., FedEgo, https://arxiv.org/abs/2208.13685
    """
    if loss > 5 * mu * penalty and mu <= 1.5:  # a float32 after some steps is not quite 1
        return mu * 10
    return mu / 10 if loss < mu * penalty / 2 and mu >= 0.5e-4 else mu


def evaluate_personal(
    model: nn.Module, clients: Sequence[Graph], test: Graph, personal: Personal
) -> Evaluate:
    """Score each client's own model on its own test nodes and on a graph that nobody trained on.

    Micro-F1, which is accuracy where a node has one label.

    Args:
        model: the architecture, called as ``model(graph.x, graph.adj)``.
        clients: the clients' graphs, with labels and masks.
        test: the global test graph; all its nodes count.
        personal: ``(params, message, graph) -> params``: what a client makes of its own
            parameters and the message it is sent next, to be scored.

    Returns:
        ``(outbox, states) -> {"local_f1", "global_f1", "val_f1", "val_loss"}``, means over the
        ``scored_clients``, who took part and so have a model; ``local_f1/0``, ``global_f1/0``, ...

    Raises:
        ValueError: if a graph lacks labels, or a client a test or validation node, or the test
            graph has no node.

    Example:
        >>> test, clients = fgl.data.major_label_partition(fgl.data.load("synthetic"), 2)
        >>> model = fgl.nn.EgoSAGE(test.num_features, 8, test.num_classes)
        >>> scores = evaluate_personal(model, clients, test, lambda params, message, graph: params)
        >>> list(scores({0: {}}, {0: {"model": model.state_dict()}}))
        ['local_f1', 'global_f1', 'val_f1', 'val_loss', 'scored_clients', 'local_f1/0',
         'global_f1/0']
    """
    for client, graph in enumerate(clients):
        for name in ("y", "val_mask", "test_mask"):
            value = getattr(graph, name)
            if value is None or (name != "y" and not value.any()):
                raise ValueError(f"Expected client {client} to have {name}, but got none")
    if test.y is None or not test.num_nodes:
        raise ValueError("Expected the test graph to have nodes with labels, but got none")

    @torch.no_grad()
    def score(client: int, params: Params) -> dict[str, float]:
        graph: Any = clients[client]
        logits = functional_call(model, params, (graph.x, graph.adj))
        labels = one_hot(graph)
        return {
            "local_f1": accuracy(logits, graph.y, graph.test_mask),
            "global_f1": accuracy(
                functional_call(model, params, (test.x, test.adj)),
                test.y,  # type: ignore[arg-type]  # checked
            ),
            "val_f1": accuracy(logits, graph.y, graph.val_mask),
            "val_loss": float(soft_cross_entropy(logits, labels, graph.val_mask)),
        }

    def evaluate(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[str, float]:
        found = {}
        with in_mode(model, False):
            for client, graph in enumerate(clients):
                if "model" not in states.get(client, {}):
                    continue
                own: Any = states[client]["model"]
                found[client] = score(client, personal(dict(own), outbox[client], graph))
        if not found:
            return {}
        first = next(iter(found.values()))
        means = {name: sum(f[name] for f in found.values()) / len(found) for name in first}
        each = {
            f"{name}/{client}": f[name]
            for client, f in sorted(found.items())
            for name in ("local_f1", "global_f1")
        }
        return {**means, "scored_clients": float(len(found)), **each}

    return evaluate

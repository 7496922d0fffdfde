"""FedTAD: the server distils into the mean what clients know of each class, on made-up graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from ..checks import check_count, check_number, check_weight
from ..federation import (
    Inbox,
    Message,
    Method,
    Params,
    State,
    changed_messages,
    check_averages,
    check_model,
    check_model_alone,
    check_one_architecture,
    in_mode,
    layer,
    minimise,
    predict,
    trainable,
)
from ..graph import Graph
from ..graph.fields import learned
from ..kinds import typed
from ..nn import NodeGenerator
from ..properties import walk_returns
from ..sparse import sum_rows

Topology = Callable[[Graph], Tensor]


def walks(graph: Graph) -> Tensor:
    """Probability that a random walk is back after 1 to 5 steps, FedTAD's features of topology."""
    return walk_returns(graph.edge_index, graph.num_nodes, steps=5)


@layer
def fedtad(
    fedavg: Method,
    generator: NodeGenerator,
    *,
    topology: Topology = walks,
    num_nodes: int = 100,
    neighbours: int = 5,
    epochs: int = 5,
    generator_steps: int = 1,
    distil_steps: int = 5,
    generator_lr: float = 1e-3,
    distil_lr: float = 1e-3,
    distil_decay: float = 5e-4,
    fit: float = 1.0,
    diversity: float = 1.0,
) -> Method:
    """FedAvg whose mean model learns from each client, on generated graphs, its reliable classes.

    A client also sends its reliability for each class, see `class_reliability`; ``w_kc`` is
    its share in the sum over the participants. The server takes `epochs` turns. In each it draws
    noise z, and a graph is generated: `num_nodes` nodes, as many of each class, features ``x =
    G(z, c)``, each joined to its `neighbours` most similar ones, itself included (cosine). Adam
    takes `generator_steps` steps of G on ``fit L_CE - L_div + diversity L_dis``, then
    `distil_steps` of the mean model on ``L_div``:

    - ``L_CE = sum_k sum_c w_kc mean_{i of c} CE(f_k(x)_i, c)``, f_k being client k's model;
    - ``L_div = sum_k sum_c w_kc mean_{i of c} |f(x)_i - f_k(x)_i|``, the mean over the outputs too;
    - ``L_dis = sum_k exp(-mean_ij ||z_i - z_j||^2 / d_z  |x_i - x_j| / d_x)``.

    G and both Adams go on from round to round at the server. Everything else is FedAvg's. It is
    for nodes with class labels, one graph a client. (Section 4 of the paper.)

    The public code differs in three places, where it does not do what the paper says. It multiplies
    A and D^-1 entry by entry, so that its "walks" are ids of random nodes, which drown the
    features; here the topology is the paper's, how probably walks return, and `topology` takes
    another. Its GCN drops units in evaluation too; here only the mean model does, while it learns.
    A class that nobody has divides 0 by 0 there; here it has weight 0. Its clients are weighed by
    their nodes and keep their Adam, which the task decides here.

    Args:
        fedavg: what clients train; its server averages.
        generator: G, for this number of features and of classes.
        topology: ``graph -> [num_nodes, d]``, beside the features where nodes are compared.
        num_nodes: of a generated graph, at least the number of classes.
        neighbours: how many nodes each is joined to, at least 1; the first is itself.
        epochs: turns of generator and model in a round.
        generator_steps: of G in a turn.
        distil_steps: of the mean model in a turn.
        generator_lr: the rate of G's Adam.
        distil_lr: the rate of the mean model's Adam.
        distil_decay: weight decay of both.
        fit: weight of L_CE, lambda_1.
        diversity: weight of L_dis, lambda_2.

    Raises:
        ValueError: if a number is out of range, the server of `fedavg` does more than average, or a
            client's graph is a collection.

    Example:
        >>> generator = fgl.nn.NodeGenerator(4, 2)
        >>> fedtad(fgl.fedavg(fgl.nn.GCN(4, 8, 2)), generator, epochs=1)
        fedtad(fedavg(GCN(...)), NodeGenerator(...), epochs=1)

    Source: Zhu et al. 2024, https://arxiv.org/abs/2404.14061; https://github.com/zyl24/FedTAD
    """
    check_count(num_nodes=num_nodes, neighbours=neighbours)
    for name, value in (
        ("epochs", epochs),
        ("generator_steps", generator_steps),
        ("distil_steps", distil_steps),
    ):
        check_number(name, value, at_least=0, integer=True)
    check_weight(generator_lr=generator_lr, distil_lr=distil_lr, distil_decay=distil_decay)
    check_weight(fit=fit, diversity=diversity)
    check_number("num_nodes", num_nodes, at_least=max(generator.num_classes, neighbours))
    check_averages(fedavg, "fedtad")
    check_model_alone(fedavg, "fedtad")
    check_one_architecture(fedavg, "fedtad")
    model, classes = fedavg.model, generator.num_classes
    first = {name: value.detach().clone() for name, value in generator.state_dict().items()}
    adam = partial(torch.optim.Adam, weight_decay=distil_decay)

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new_state = fedavg.send(params, context, state, graph)
        reliability = state.get("reliability")
        if reliability is None:
            reliability = class_reliability(graph, classes, topology=topology)
        return {**message, "reliability": reliability}, {**new_state, "reliability": reliability}

    def accept(message: Message, client: int, state: State) -> None:
        fedavg.accept(message, client, state)
        reliable = message.get("reliability")
        if reliable is None or tuple(reliable.shape) != (classes,):
            got = None if reliable is None else list(reliable.shape)
            raise ValueError(f"Expected reliability to have shape [{classes}], but got {got}")
        if reliable.abs().max() > fedavg.max_examples:  # a node's is at most 1
            raise ValueError(
                f"Expected reliability to be at most {fedavg.max_examples:g}, but got "
                f"{float(reliable.abs().max()):g}"
            )

    def aggregate(inbox: Inbox, state: State) -> tuple[Mapping[int, Message], State]:
        outbox, new = fedavg.aggregate(inbox, state)
        if not outbox:
            return outbox, state
        models = (message["model"].items() for message in inbox.values())
        teachers: list[Any] = [{n: t.contiguous() for n, t in model} for model in models]
        mean: Any = next(iter(outbox.values()))["model"]
        check_model(mean, fedavg.initial())
        with torch.enable_grad():
            learnt, more = distil(mean, teachers, inbox.stack("reliability"), state)
        messages = changed_messages(outbox, lambda message: {**message, "model": learnt})
        return messages, {**new, "model": learnt, **more}

    def distil(mean: Params, teachers: list[Params], reliable: Any, state: State) -> Any:
        labels = torch.arange(num_nodes, device=reliable.device)
        labels = (labels // (num_nodes // classes)).clamp(max=classes - 1)
        weight = shares(reliable)[:, labels] / labels.bincount()[labels]
        here = (reliable != 0).any(1).sum()  # a client that knows nothing is no teacher

        def drawn_graph(net: Params, z: Tensor) -> Graph:
            return joined(functional_call(generator, net, (z, labels)), neighbours)

        def generates(net: Params, params: Params, z: Tensor) -> Tensor:
            graph = drawn_graph(net, z)
            student = predict(model, params, graph)
            taught = torch.stack([predict(model, teacher, graph) for teacher in teachers])
            wrong = torch.nn.functional.cross_entropy(
                taught.flatten(0, 1), labels.repeat(len(teachers)), reduction="none"
            )
            apart = distance(student, taught.detach(), weight)
            same: Tensor = here * alike(z, graph.x)  # type: ignore[arg-type]
            named: Tensor = (weight.flatten() * wrong).sum()
            return fit * named - apart + diversity * same

        def learns(params: Params, graph: Graph, taught: Tensor) -> Tensor:
            return distance(predict(model, params, graph), taught, weight)

        def turn(net: Params, params: Params, adams: list[Any]) -> tuple[Params, Params, list[Any]]:
            z = noise(num_nodes, generator.noise, reliable)
            with in_mode(model, False):
                batches: Iterator[Any] = iter([(params, z)] * generator_steps)
                how: Any = {"optimizer": partial(adam, lr=generator_lr), "state": adams[0]}
                net, _, first_adam = minimise(generates, net, batches, **how)
                with torch.no_grad():
                    graph = drawn_graph(net, z)
                    taught = torch.stack([predict(model, each, graph) for each in teachers])
            with in_mode(model, True):
                how = {"optimizer": partial(adam, lr=distil_lr), "state": adams[1]}
                how["names"] = trainable(fedavg)
                params, _, second_adam = minimise(
                    learns, params, [(graph, taught)] * distil_steps, **how
                )
            return net, params, [first_adam, second_adam]

        net: Any = state.get("generator", first)
        adams: list[Any] = [state.get("generator_adam"), state.get("adam")]
        for _ in range(epochs):
            net, mean, adams = turn(net, mean, adams)
        more = {"generator": net, "generator_adam": adams[0], "adam": adams[1]}
        return mean, {name: value for name, value in more.items() if value}

    return replace(fedavg, send=send, accept=accept, aggregate=aggregate)


@typed
def node_generator(like: Graph, *, seed: int = 0, **sizes: Any) -> NodeGenerator:
    """FedTAD's generator for a client's graph: its features and classes.

    Args:
        like: with class labels; dtype and device are its features'.
        seed: decides the first parameters.
        sizes: of a `fgl.nn.NodeGenerator`.

    Example:
        >>> graph = fgl.Graph(torch.ones(3, 4), torch.zeros(2, 0).long(), y=torch.tensor([0, 1, 1]))
        >>> node_generator(graph, widths=(8,)).head
        Linear(in_features=8, out_features=4, bias=True)
    """
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        generator = NodeGenerator(like.num_features, graph_classes(like), **sizes)
    return generator.to(like.device, like.x.dtype)


def graph_classes(graph: Graph) -> int:
    """Number of a graph's classes; raises if its labels are not classes."""
    if graph.num_classes is None:
        raise ValueError("Expected fedtad's clients to have class labels, but got none")
    return graph.num_classes


def class_reliability(graph: Graph, num_classes: int, *, topology: Topology = walks) -> Tensor:
    """Reliability of a client for each class: how its training nodes resemble their neighbours.

    ``r_c = sum_{i of c} (1 + sum_{j in N(i)} cos(h_i, h_j)) / (1 + |N(i)|)`` over the training
    nodes, ``h = [x || topology]``.

    Args:
        graph: with class labels.
        num_classes: number of classes.
        topology: ``graph -> [num_nodes, d]``.

    Returns:
        float ``[num_classes]``, in the dtype of the features.

    Raises:
        ValueError: if the graph is a collection, or its labels are no classes.

    Example:
        >>> edges = torch.tensor([[0, 1], [1, 0]])
        >>> graph = fgl.Graph(torch.ones(3, 2), edges, y=torch.tensor([0, 1, 1]))
        >>> class_reliability(graph, 3)
        tensor([1., 2., 0.])

    Source: Zhu et al. 2024, https://arxiv.org/abs/2404.14061
    """
    graph_classes(graph)
    if graph.batch is not None:
        raise ValueError("Expected fedtad's clients to hold one graph each, but got a collection")
    x: Any = graph.x
    x = x if isinstance(x, Tensor) else x.to_dense()
    h = torch.cat([x, topology(graph).to(x)], 1)
    source, target = graph.edge_index
    cos = torch.cosine_similarity(h[source], h[target])
    resemblance = 1 + sum_rows(cos, source, graph.num_nodes)
    number = 1 + sum_rows(torch.ones_like(cos), source, graph.num_nodes)
    each = torch.where(graph.training_mask, resemblance / number, 0)
    return sum_rows(each, graph.labels, num_classes)


def shares(reliable: Tensor) -> Tensor:
    """Each client's share of a class, float ``[K, C]``; 0 if no client knows the class."""
    total = reliable.sum(0)
    return torch.where(total == 0, 0, reliable / torch.where(total == 0, 1, total))


def joined(x: Tensor, neighbours: int) -> Graph:
    """The graph that joins each node to the nodes most similar to it (cosine)."""
    unit = torch.nn.functional.normalize(x.detach(), dim=1)
    nearest = (unit @ unit.t()).topk(neighbours, dim=1).indices
    edges = torch.zeros(len(x), len(x), dtype=torch.bool, device=x.device).scatter(1, nearest, True)
    edges = (edges | edges.t()).fill_diagonal_(False)  # a network adds its own loops
    graph: Graph = learned(Graph(x.detach(), edges.nonzero().t()), x=x)
    return graph


def distance(student: Tensor, taught: Tensor, weight: Tensor) -> Tensor:
    """``sum_k sum_i w_ki mean_d |f(x)_id - f_k(x)_id|``."""
    return (weight * (student - taught).abs().mean(-1)).sum()


def alike(z: Tensor, x: Tensor) -> Tensor:
    """Agreement of distances in x and z: ``exp(-mean_ij ||z_i - z_j||^2 / d_z |x_i - x_j| / d_x)``.

    Example:
        >>> alike(torch.tensor([[0.0], [1.0]]), torch.tensor([[3.0], [3.0]]))
        tensor(1.)
    """
    far = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist").square() / z.shape[1]
    differs = torch.cdist(x, x, p=1.0) / x.shape[1]
    return torch.exp(-(far * differs).mean())


def noise(rows: int, width: int, like: Tensor) -> Tensor:
    """Draw the noise of a turn."""
    return torch.randn(rows, width, dtype=like.dtype, device=like.device)

"""FedTAD: the server trains the mean model on generated graphs to agree with clients' models."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from .. import federation as fed
from ..checks import Count, Natural, Weight, check_number, reject_if
from ..federation import Inbox, Message, Method, Outbox, Params, State
from ..graph import Graph
from ..graph.fields import learned
from ..nn.node_generator import NodeGenerator
from ..properties.encodings import walk_returns
from ..seeds import drawing_from
from ..sparse import sum_rows
from .inputs import check_entry, check_one_graph

Topology = Callable[[Graph], Tensor]


def walks(graph: Graph) -> Tensor:
    """FedTAD's topology features: probabilities that a random walk returns after 1 to 5 steps."""
    return walk_returns(graph.edge_index, graph.num_nodes, steps=5)


@fed.layer(checks=[fed.check_averages, fed.check_model_alone, fed.check_one_architecture])
def fedtad(
    fedavg: Method,
    generator: NodeGenerator,
    *,
    topology: Topology = walks,
    num_nodes: Count = 100,
    neighbours: Count = 5,
    epochs: Natural = 5,
    generator_steps: Natural = 1,
    distil_steps: Natural = 5,
    generator_lr: Weight = 1e-3,
    distil_lr: Weight = 1e-3,
    distil_decay: Weight = 5e-4,
    fit: Weight = 1.0,
    diversity: Weight = 1.0,
) -> Method:
    """Run FedAvg, and train the mean model to imitate clients' models on generated graphs (FedTAD).

    A client also sends its reliability for each class (see `class_reliability`). ``w_kc`` is client
    k's reliability for class c, divided by the sum of all participants' reliabilities for class c.
    The server trains for `epochs` epochs per round. In each epoch, the server samples noise z and
    generates a graph of `num_nodes` nodes. The nodes are divided evenly among the classes, and the
    last class also gets the remaining nodes. Nodes of class c have the features ``x = G(z, c)``,
    where G is the generator. Each node is connected to `neighbours` nodes: those whose features
    have the largest cosine with the node's features. The node itself is one of these nodes. Then G
    takes `generator_steps` Adam steps on ``lambda_1 L_CE - L_div + lambda_2 L_dis``, where lambda_1
    and lambda_2 are the arguments `fit` and `diversity`. After that, the mean model takes
    `distil_steps` Adam steps on ``L_div``. The terms are:

    - ``L_CE = sum_k sum_c w_kc mean_{i of c} CE(f_k(x)_i, c)``, where f_k is the model of client k;
    - ``L_div = sum_k sum_c w_kc mean_{i of c} |f(x)_i - f_k(x)_i|``, where f is the mean model, and
      the mean is over nodes and outputs;
    - ``L_dis = sum_k exp(-mean_ij (||z_i - z_j||^2 / d_z) (|x_i - x_j| / d_x))``.

    The server keeps G and both Adam states from round to round. In all other respects, this method
    is FedAvg. The method requires nodes with class labels, and one graph per client (Section 4 of
    the paper).

    In three places, the public code differs from this method and from the paper. To compute walks
    on the graph, the public code multiplies A and D^-1 entry by entry, instead of as matrices. As a
    result, the "walks" are ids of random nodes, and large ids dominate the topology features. Here
    the topology features are the return probabilities of the paper. Another function can be passed
    as `topology`. The public code's GCN also applies dropout during evaluation. Here dropout is
    applied only in the mean model, and only in training. If no client has a class c, all
    reliabilities for c are 0, and the public code divides 0 by 0. Here ``w_kc`` is 0 for such a
    class. In the public code, a client's weight is its number of nodes, and clients keep their Adam
    state. Here the task determines the weights and whether the state is kept.

    Args:
        fedavg: FedAvg built for a task; the server must send the mean of the models.
        generator: G, with the same numbers of features and classes as the clients' graphs.
        topology: a function ``graph -> [num_nodes, d]``. The results are appended to the nodes'
            features: ``h = [features || topology]``. Two nodes are compared by the cosine of their
            rows of h.
        num_nodes: nodes of a generated graph, at least the number of classes.
        neighbours: number of nodes to which each node is connected. The node itself is counted, so
            the number is at least 1.
        epochs: number of epochs of the server per round. In each epoch, the server trains G, and
            then the mean model.
        generator_steps: number of Adam steps of G in each epoch.
        distil_steps: number of Adam steps of the mean model in each epoch.
        generator_lr: learning rate of G's Adam.
        distil_lr: learning rate of the mean model's Adam.
        distil_decay: weight decay of both Adam optimisers.
        fit: weight of L_CE, lambda_1.
        diversity: weight of L_dis, lambda_2.

    Raises:
        ValueError: if a number is out of range, if the server of `fedavg` does not send the mean of
            the models, if clients train tensors outside the model, or if a client's graph is a
            collection.

    Example:
        >>> generator = fgl.nn.node_generator.NodeGenerator(4, 2)
        >>> fedtad(fgl.fedavg(fgl.nn.GCN(4, 8, 2)), generator, epochs=1)
        fedtad(fedavg(GCN(...), ...), NodeGenerator(...), epochs=1, ...)

    Source: Zhu et al. 2024, https://arxiv.org/abs/2404.14061; https://github.com/zyl24/FedTAD
    """
    check_number("num_nodes", num_nodes, at_least=max(generator.num_classes, neighbours))
    model, classes = fedavg.model, generator.num_classes
    first = fed.combine(lambda value: value.detach().clone(), generator.state_dict())
    adam = partial(torch.optim.Adam, weight_decay=distil_decay)

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new_state = fedavg.send(params, context, state, graph)
        sent = fed.pick(state, ["reliability"])
        sent = sent or {"reliability": class_reliability(graph, classes, topology=topology)}
        return {**message, **sent}, {**new_state, **sent}

    def accept(message: Message, client: int, state: State) -> None:
        fedavg.accept(message, client, state)
        reliable = check_entry(message, "reliability", [classes])
        want = f"reliability to be at most {fedavg.rules.max_examples:g}"
        got = f"{float(reliable.abs().max()):g}"
        reject_if(reliable.abs().max() > fedavg.rules.max_examples, want, got)

    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        outbox, new = fedavg.aggregate(inbox, state)
        if not outbox:
            return outbox, state
        models = (message["model"].items() for message in inbox.values())
        teachers: list[Any] = [{n: t.contiguous() for n, t in model} for model in models]
        mean: Any = next(iter(outbox.values()))["model"]
        fed.check_model(mean, fedavg.initial())
        lesson = prepared(teachers, inbox.stack("reliability"))
        with torch.enable_grad():
            learnt, more = distil(mean, lesson, state)
        messages = fed.changed_messages(outbox, lambda message: {**message, "model": learnt})
        return messages, {**new, "model": learnt, **more}

    def prepared(teachers: list[Any], reliable: Tensor) -> Lesson:
        """Losses of one round, for generated graphs with equally many nodes of each class.

        The last class also gets the remaining nodes.
        """
        labels = torch.arange(num_nodes, device=reliable.device)
        labels = (labels // (num_nodes // classes)).clamp(max=classes - 1)
        weight = shares(reliable)[:, labels] / labels.bincount()[labels]
        present = (reliable != 0).any(1).sum()
        return Lesson(model, generator, teachers, labels, weight, present, neighbours)

    def distil(mean: Params, lesson: Lesson, state: State) -> tuple[Params, State]:
        net: Any = state.get("generator", first)
        adams: list[Any] = [state.get("generator_adam"), state.get("adam")]
        for _ in range(epochs):
            net, mean, adams = turn(lesson, net, mean, adams)
        new = {"generator": net, "generator_adam": adams[0], "adam": adams[1]}
        return mean, {name: value for name, value in new.items() if value}

    def turn(lesson: Lesson, net: Params, mean: Params, adams: list[Any]) -> Any:
        """Train the generator and the mean model for one epoch; also return their Adam moments."""
        z = noise(num_nodes, generator.noise, lesson.weight)
        with fed.in_mode(model, False):
            loss = partial(lesson.of_generator, fit=fit, diversity=diversity)
            steps: Any = iter([(mean, z)] * generator_steps)
            rule: Any = partial(adam, lr=generator_lr)
            net, _, first_adam = fed.minimise(loss, net, steps, optimizer=rule, state=adams[0])
            with torch.no_grad():
                graph = lesson.graph(net, z)
                taught = lesson.taught(graph)
        with fed.in_mode(model, True):
            how: Any = {"optimizer": partial(adam, lr=distil_lr), "state": adams[1]}
            steps = [(graph, taught)] * distil_steps
            mean, _, second_adam = fed.minimise(
                lesson.of_student, mean, steps, names=fed.trainable(fedavg), **how
            )
        return net, mean, [first_adam, second_adam]

    return replace(fedavg, send=send, accept=accept, aggregate=aggregate)


@dataclass(frozen=True)
class Lesson:
    """The server's losses in one round, on graphs that the generator creates from given labels.

    Args:
        model: the architecture of the mean model and of the teachers.
        generator: G.
        teachers: the clients' models.
        labels: labels of a generated graph's nodes, int64 ``[n]``.
        weight: float ``[K, n]``. Entry (k, i) is ``w_kc``, divided by the number of nodes of class
            c, where c is the class of node i.
        present: number of teachers with a nonzero reliability.
        neighbours: number of nodes to which each node is connected.
    """

    model: nn.Module
    generator: NodeGenerator
    teachers: list[Params]
    labels: Tensor
    weight: Tensor
    present: Tensor
    neighbours: int

    def graph(self, net: Params, z: Tensor) -> Graph:
        """The graph that the generator G creates from noise."""
        return joined(functional_call(self.generator, net, (z, self.labels)), self.neighbours)

    def taught(self, graph: Graph) -> Tensor:
        """The outputs of the teachers, which are the clients' models: ``[K, n, C]``."""
        return torch.stack([fed.predict(self.model, each, graph) for each in self.teachers])

    def of_generator(
        self, net: Params, params: Params, z: Tensor, *, fit: float, diversity: float
    ) -> Tensor:
        """The generator's loss ``lambda_1 L_CE - L_div + lambda_2 L_dis`` (see `fedtad`)."""
        graph = self.graph(net, z)
        student, taught = fed.predict(self.model, params, graph), self.taught(graph)
        wrong = torch.nn.functional.cross_entropy(
            taught.flatten(0, 1), self.labels.repeat(len(self.teachers)), reduction="none"
        )
        apart = distance(student, taught.detach(), self.weight)
        same: Tensor = self.present * alike(z, graph.x)  # type: ignore[arg-type]
        named: Tensor = (self.weight.flatten() * wrong).sum()
        return fit * named - apart + diversity * same

    def of_student(self, params: Params, graph: Graph, taught: Tensor) -> Tensor:
        """The student's loss: ``L_div``."""
        return distance(fed.predict(self.model, params, graph), taught, self.weight)


def node_generator(like: Graph, *, seed: int = 0, **sizes: Any) -> NodeGenerator:
    """FedTAD's generator, for graphs with the features and classes of a client's graph.

    Args:
        like: a graph with class labels. The generator gets the dtype and the device of the features
            of this graph.
        seed: seed of the initial parameters.
        sizes: sizes of a `fgl.nn.node_generator.NodeGenerator`.

    Example:
        >>> graph = fgl.Graph(torch.ones(3, 4), torch.zeros(2, 0).long(), y=torch.tensor([0, 1, 1]))
        >>> node_generator(graph, widths=(8,)).head
        Linear(in_features=8, out_features=4, bias=True)
    """
    with drawing_from(seed):
        generator = NodeGenerator(like.num_features, graph_classes(like), **sizes)
    return generator.to(like.device, like.x.dtype)


def graph_classes(graph: Graph) -> int:
    """Number of classes of a graph.

    Raise an error if the labels are not classes.
    """
    reject_if(graph.num_classes is None, "fedtad's clients to have class labels", "none")
    return int(graph.num_classes or 0)


def class_reliability(graph: Graph, num_classes: int, *, topology: Topology = walks) -> Tensor:
    """A client's reliability for each class: high if nodes are similar to their neighbours.

    ``r_c = sum_{i of c} (1 + sum_{j in N(i)} cos(h_i, h_j)) / (1 + |N(i)|)`` over the training
    nodes, with ``h = [x || topology]``.

    Args:
        graph: a graph with class labels.
        num_classes: number of classes.
        topology: ``graph -> [num_nodes, d]``.

    Returns:
        float ``[num_classes]``, in the dtype of the features.

    Raises:
        ValueError: if the graph is a collection, or if the labels are not classes.

    Example:
        >>> edges = torch.tensor([[0, 1], [1, 0]])
        >>> graph = fgl.Graph(torch.ones(3, 2), edges, y=torch.tensor([0, 1, 1]))
        >>> class_reliability(graph, 3)
        tensor([1., 2., 0.])

    Source: Zhu et al. 2024, https://arxiv.org/abs/2404.14061
    """
    graph_classes(graph)
    check_one_graph(graph, "fedtad")
    x = graph.x.to_dense()
    h = torch.cat([x, topology(graph).to(x)], 1)
    source, target = graph.edge_index
    cos = torch.cosine_similarity(h[source], h[target])
    resemblance = 1 + sum_rows(cos, source, graph.num_nodes)
    number = 1 + sum_rows(torch.ones_like(cos), source, graph.num_nodes)
    each = torch.where(graph.training_mask, resemblance / number, 0)
    return sum_rows(each, graph.labels, num_classes)


def shares(reliable: Tensor) -> Tensor:
    """Divide the clients' reliabilities for each class by their sum over clients; float ``[K, C]``.

    If the sum is 0, the result is 0.
    """
    total = reliable.sum(0)
    return torch.where(total == 0, 0, reliable / torch.where(total == 0, 1, total))


def joined(x: Tensor, neighbours: int) -> Graph:
    """A graph with edges from each node to the nodes with the largest cosine similarity."""
    unit = torch.nn.functional.normalize(x.detach(), dim=1)
    nearest = (unit @ unit.t()).topk(neighbours, dim=1).indices
    edges = torch.zeros(len(x), len(x), dtype=torch.bool, device=x.device).scatter(1, nearest, True)
    edges = (edges | edges.t()).fill_diagonal_(False)  # a network adds its own loops
    return learned(Graph(x.detach(), edges.nonzero().t()), x=x)


def distance(student: Tensor, taught: Tensor, weight: Tensor) -> Tensor:
    """Distance between outputs: ``sum_k sum_i w_ki mean_d |f(x)_id - f_k(x)_id|``."""
    return (weight * (student - taught).abs().mean(-1)).sum()


def alike(z: Tensor, x: Tensor) -> Tensor:
    """Loss that is small if different noise z gives different features x.

    ``exp(-mean_ij (||z_i - z_j||^2 / d_z) (|x_i - x_j| / d_x))``, with widths d_z and d_x.

    Example:
        >>> alike(torch.tensor([[0.0], [1.0]]), torch.tensor([[3.0], [3.0]]))
        tensor(1.)
    """
    far = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist").square() / z.shape[1]
    differs = torch.cdist(x, x, p=1.0) / x.shape[1]
    return torch.exp(-(far * differs).mean())


def noise(rows: int, width: int, like: Tensor) -> Tensor:
    """Draw one epoch's noise."""
    return torch.randn(rows, width, dtype=like.dtype, device=like.device)

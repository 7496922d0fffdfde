"""FedSage+: train neighbour generators, add neighbours to clients' graphs, and run FedAvg."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import smooth_l1_loss

from .. import federation as fed
from .. import losses
from ..checks import Count, Natural, Share, Weight, check_number
from ..data.hidden_nodes import HiddenNodes, hide_nodes
from ..federation import Message, Method, Params, Ragged, Result, State, Training, fedavg
from ..graph import Graph
from ..losses.weighted_mean import weighted_mean
from ..methods.fedsage_plus import fedsage_plus, random_neighbours
from ..methods.local import local
from ..nn import NeighbourGenerator
from ..seeds import drawing_from
from ..warn import warn
from .scores import evaluate_own, validation
from .task import Task, bounded


def generator_task(
    clients: Sequence[Graph],
    model: NeighbourGenerator,
    train: Training,
    *,
    share: Share = 0.5,
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0),
    seed: int = 0,
) -> Task:
    """Learn to generate nodes' missing neighbours; hidden nodes serve as truth (FedSage+).

    The loss over the training nodes is ``L = a * L_d + b * L_f + c' * L_c`` (Eqs. 5 to 7). The
    smooth L1 loss ``L_d`` compares predicted and true numbers of missing neighbours. ``L_f`` is the
    mean squared distance from each generated neighbour to the nearest hidden neighbour. The
    cross-entropy ``L_c`` compares predicted and true labels. Labels are predicted on the graph with
    the generated neighbours. A fraction of every client's validation nodes is hidden: these nodes
    are removed from the graphs of the task's clients.

    Args:
        clients: graphs with labels, a training mask and a validation mask.
        model: the generator.
        train: local training; each step samples new noise and dropout.
        share: fraction of a client's validation nodes to hide.
        weights: the weights a, b and c' of the three terms.
        seed: seed that determines the hidden nodes.

    Returns:
        A task without validation. The task's score is ``count_error``: the absolute difference
        between predicted and true counts, averaged over all nodes.

    Raises:
        ValueError: if `share` is out of range, if a weight is negative, or if a client lacks a
            mask.

    Example:
        >>> graph = fgl.data.csbm(num_nodes=60, num_features=20, words_per_set=9)
        >>> whole = fgl.data.splits.split(graph, "random")
        >>> model = fgl.nn.NeighbourGenerator(20, 8, 7, latent=3, widths=(5, 6))
        >>> task = generator_task([whole], model, fgl.Training())
        >>> whole.num_nodes - task.clients[0].num_nodes
        6

    Source: Zhang et al. 2021, https://arxiv.org/abs/2106.13430
    """
    for name, each in zip("abc", weights, strict=True):
        check_number(f"weight {name}", each, at_least=0)
    width = model.num_neighbours
    hidden = [
        _hide(own, share, width, fed.fold_in(seed, k, "hide")) for k, own in enumerate(clients)
    ]
    of = {each.graph.x: each for each in hidden}  # `earlier` changes only masks

    def batches(graph: Graph, context: Any) -> Any:
        own = of.get(graph.x)
        if own is None:
            raise ValueError("Expected graph to be a client of this task, but got another")
        targets = {"missing": Ragged(own.missing), "hidden": Ragged(own.features)}
        for _ in range(fed.num_steps(train)):
            drawn = {k: Ragged(v) for k, v in sorted(model.draw(graph.num_nodes).items())}
            yield graph, {**targets, **drawn, **context}

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        return generator_loss(model, params, graph, context, weights=weights)

    method = fedavg(model, loss=loss, train=replace(train, num_steps=None, batches=batches))

    @torch.no_grad()
    def score(params: Params, graph: Graph) -> dict[str, Any]:
        with fed.in_mode(model, False):
            count, _, _ = functional_call(model, params, (graph.x, graph.adj))
        return {"count_error": (count - of[graph.x].missing).abs().mean()}

    clients = [each.graph for each in hidden]
    scores = partial(evaluate_own, score, lower={"count_error"})
    return Task(clients, bounded(method, clients), scores, "", validation(score, ""))


def generator_loss(
    model: NeighbourGenerator,
    params: Params,
    graph: Graph,
    context: Any,
    *,
    weights: tuple[float, float, float],
) -> Tensor:
    """The loss of FedSage+'s generator at one client (see `generator_task`)."""
    drawn = {name: context[name].values for name in ("noise", "keep")}
    count, features, logits = functional_call(model, params, (graph.x, graph.adj), drawn)
    missing, mask = context["missing"].values, graph.train_mask
    apart = smooth_l1_loss(count, missing.to(count.dtype), reduction="none")
    hidden = context["hidden"].values
    a, b, c = weights
    return (
        a * weighted_mean(apart, mask)
        + b * losses.nearest_features(features, model.number(count), hidden, missing, mask=mask)
        + c * losses.cross_entropy(logits, graph.labels, mask)
    )


def _hide(graph: Graph, share: float, width: int, seed: int) -> HiddenNodes:
    """Hide a fraction of the validation nodes of a graph."""
    if graph.val_mask is None or graph.train_mask is None or graph.y is None:
        raise ValueError("Expected each client to have y, train_mask and val_mask, but got none")
    _ = graph.labels  # raises if labels are numbers
    nodes = graph.val_mask.nonzero().squeeze(1)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(nodes.numel(), generator=generator).to(nodes.device)
    return hide_nodes(graph, nodes[order[: int(share * nodes.numel())]], width=width)


@torch.no_grad()
def mend(
    model: NeighbourGenerator,
    params: Params,
    graph: Graph,
    *,
    part: Graph | None = None,
    seed: int = 0,
) -> Graph:
    """Add generated neighbours to a graph; every new neighbour gets an edge to its node.

    Dropout is turned off in this function; the public code never turns dropout off.

    Args:
        model: the architecture.
        params: the trained generator.
        graph: a client's graph.
        part: the subgraph that the generator reads; the nodes of this subgraph get neighbours. The
            subgraph has a `node_id`. Default: the whole graph.
        seed: seed of the noise.

    Returns:
        The graph with new nodes, which follow the old nodes. New nodes are in no mask, and features
        are dense.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0, 1], [1, 0]]))
        >>> model = fgl.nn.NeighbourGenerator(2, 8, 2, latent=3, widths=(5, 6))
        >>> params = {k: torch.zeros_like(v) for k, v in model.state_dict().items()}
        >>> params["count.bias"] += 2
        >>> mend(model, params, graph).num_nodes
        6
    """
    part = graph if part is None else part
    with drawing_from(seed), fed.in_mode(model, False):
        noise = model.draw(part.num_nodes)["noise"]
        count, features, _ = functional_call(model, params, (part.x, part.adj), {"noise": noise})
    missing = model.there(count)
    node = missing.nonzero()[:, 0]
    if part is not graph:
        node = _places(part, graph)[node]
    new = graph.num_nodes + torch.arange(node.numel(), device=graph.device)
    edges = torch.cat([torch.stack([new, node]), torch.stack([node, new])], 1)
    return graph.append(features[missing], edges)


def _places(part: Graph, whole: Graph) -> Tensor:
    """For each node of `part`, the index of the node in `whole` that has the same `node_id`."""
    if part.node_id is None:
        raise ValueError("Expected part to have node_id, but got none")
    if whole.node_id is None:
        return part.node_id
    order = whole.node_id.argsort()
    return order[torch.searchsorted(whole.node_id[order], part.node_id)]


def mended(
    task: Task,
    seed: int = 0,
    *,
    gen_epochs: Natural = 20,
    gen_local_epochs: Natural = 20,
    gen_hide: Share = 0.5,
    gen_lr: Weight = 1e-3,
    gen_weight_decay: Weight = 1e-4,
    gen_hidden: Count = 32,
    gen_latent: Count = 128,
    gen_wide: Count = 2048,
    gen_rounded: bool = False,
) -> Task:
    """Return the task after generators have added missing neighbours to its graphs (FedSage+).

    Every client first trains a generator without other clients. Then the client trains this
    generator further, with a new optimiser and with gradients from the other clients
    (`fgl.methods.fedsage_plus`). The generator reads the client's graph without the hidden nodes.
    The generated neighbours are added to the client's complete graph, which has the hidden nodes.
    New nodes do not affect a client's weight, the divergence term of a loss, or the number of local
    steps. If no client gets a new node, a warning is given, and the task is unchanged.

    The default values come from the public code (src/utils/config.py). The clients' weights differ
    from the weights in the public code; `fedsage` describes the difference (see also
    `fgl.nn.NeighbourGenerator`). Dropout is off while a graph is mended. The public code does not
    call `eval()`. The clients' generators all start from one set of initial tensors. In the public
    code, the clients' generators have different initial tensors.

    Args:
        task: a task of nodes; every client has a training mask and a validation mask.
        seed: seed for the choice of hidden nodes and for the generators.
        gen_epochs: number of epochs in which the generators train with other clients' gradients;
            each epoch takes three rounds.
        gen_local_epochs: number of epochs in which each client first trains its generator without
            other clients.
        gen_hide: fraction of a client's validation nodes to hide for the training of the generator.
        gen_lr: the learning rate of the generators' Adam.
        gen_weight_decay: the weight decay of the generators' Adam.
        gen_hidden: width of the first layer in a generator's encoder and in a generator's
            classifier.
        gen_latent: width of a generator's embeddings.
        gen_wide: width of a generator's last hidden layer, which precedes the layer that outputs
            features.
        gen_rounded: whether counts are rounded to the nearest integer; if False, counts are rounded
            down.

    Raises:
        ValueError: if a number is out of range, or if a client lacks labels or a mask.

    Example:
        >>> task = fgl.tasks.Nodes(clients=3, hidden=8, model="sage").load(seed=0)
        >>> small = {"gen_hidden": 4, "gen_latent": 4, "gen_wide": 4, "gen_rounded": True}
        >>> made = mended(task, gen_epochs=1, gen_local_epochs=1, **small)
        >>> [own.num_train for own in made.clients] == [own.num_train for own in task.clients]
        True

    Source: Zhang et al. 2021, https://arxiv.org/abs/2106.13430; zkhku/fedsage
    """
    model = _generator(task, gen_hidden, gen_latent, gen_wide, seed, gen_rounded)
    adam = partial(torch.optim.Adam, lr=gen_lr, weight_decay=gen_weight_decay)
    train = Training(adam, num_steps=1, keep_optimizer=True)
    generators = generator_task(task.clients, model, train, share=gen_hide, seed=seed)
    method, graphs = generators.fedavg, generators.clients
    whole = dict(zip(graphs, task.clients, strict=True))  # graphs are compared by identity

    def neighbours(graph: Graph, count: int, width: int) -> tuple[Tensor, Tensor]:
        return random_neighbours(whole.get(graph, graph), count, width)

    alone = fed.run(local(method), graphs, num_rounds=gen_local_epochs, seed=seed)
    relayed = fedsage_plus(method, neighbours=neighbours)
    how: Any = {"num_rounds": gen_epochs * relayed.rules.exchange, "seed": fed.fold_in(seed)}
    both = fed.run(relayed, graphs, start=_without_optimizers(alone), **how)
    clients = []
    for client, (part, own) in enumerate(whole.items()):
        params = relayed.deploy(both.outbox[client], both.client_states.get(client, {}), own)
        clients.append(mend(model, params, own, part=part, seed=fed.fold_in(seed, client, "mend")))
    new = sum(own.num_nodes for own in clients) - sum(own.num_nodes for own in task.clients)
    if not new:
        warn(
            "Expected generators to generate a neighbour, but got none: every client's graph "
            "stays as it is"
        )
    counted = _counting(task.fedavg, dict(zip(clients, task.clients, strict=True)))
    sent = task.bytes_before + _sent(alone, both)
    return replace(task, clients=clients, fedavg=counted, bytes_before=sent, new_nodes=new)


def _without_optimizers(result: Result) -> Result:
    """Reset the optimisers of all clients in the result of a run."""
    states = result.client_states.items()
    return replace(result, client_states={k: fed.drop(own, ["optimizer"]) for k, own in states})


def _counting(fedavg: Method, own: Mapping[Graph, Graph]) -> Method:
    """The method for mended graphs; only the clients' `own` nodes count as examples.

    A message depends only on a client's own graph. In local steps, the mask ``"own_nodes"`` in the
    context is False for new nodes.
    """
    draw = fedavg.train.batches

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        return fedavg.send(params, context, state, own.get(graph, graph))

    def batches(graph: Graph, context: Any) -> Iterable[tuple[Graph, Any]]:
        mask = graph.node_mask
        mask[own.get(graph, graph).num_nodes :] = False
        return draw(graph, {**context, "own_nodes": Ragged(mask)}) if draw else []

    @fed.layer
    def counting_own_nodes(fedavg: Method) -> Method:
        train = replace(fedavg.train, batches=batches) if draw else fedavg.train
        return replace(fedavg, send=send, train=train)

    return counting_own_nodes(fedavg)


def _generator(
    task: Task, hidden: int, latent: int, wide: int, seed: int, rounded: bool
) -> NeighbourGenerator:
    """The initial generator, which is equal at all clients."""
    own = task.clients[0]
    _ = own.labels  # raises if labels are numbers
    sizes: Any = own.num_features, hidden, own.num_classes
    with drawing_from(seed):
        model = NeighbourGenerator(*sizes, latent=latent, widths=(256, wide), rounded=rounded)
    return model.to(own.device, own.x.dtype)


def _sent(*results: Result) -> int:
    return sum(record.bytes_up + record.bytes_down for r in results for record in r.history)

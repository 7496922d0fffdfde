"""Nodes of clients that are parts of a large graph; models train on sampled neighbourhoods."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import nn

from .. import data
from .. import federation as fed
from ..blocks import logits_in_blocks
from ..checks import Count, Natural, Share, check_fanouts
from ..federation import Evaluate, Method, OptimizerFactory, Steps, Training
from ..graph import Graph
from ..sampler import NeighbourSampler
from ..targets import CLASSES, Target
from ..transfer import to_device
from .apart import warn_of_trained
from .networks import MODELS
from .scores import node_scores, validation
from .settings import Cut, setting
from .task import Local, Once, Task, bounded
from .unseen import with_unseen


def sampled_node_task(
    whole: Graph,
    clients: Sequence[Graph],
    model: nn.Module,
    optimizer: OptimizerFactory,
    *,
    fanouts: Sequence[int] = (10, 10),
    epochs: Natural = 1,
    batch_size: Count = 1024,
    block_size: Count = 65536,
    target: Target = CLASSES,
) -> Task:
    """Classify the clients' nodes.

    Each local step uses a minibatch with sampled neighbours.

    The loss is FedAvg's loss: the target's loss on the training nodes of a batch. Neighbours of the
    training nodes in a batch are sampled (`NeighbourSampler`). If a method adds a term to the loss,
    the term is computed on the batch of the step. Scores are computed with all neighbours in the
    whole graph.

    Args:
        whole: the graph with all edges, labels, a validation mask and a test mask.
        clients: graphs with labels; without a training mask, all nodes of a graph are training
            nodes.
        model: a model that returns a row of logits for each node. With k fan-outs, the model may
            have at most k + 1 hops. The function checks this limit only for graphs with more than
            `block_size` nodes; smaller graphs are scored as a whole.
        optimizer: function that returns a `torch.optim` optimiser for a list of tensors.
        fanouts: numbers of sampled neighbours per node, one number for each hop; -1 means all
            neighbours.
        epochs: number of passes over a client's training nodes in a round.
        batch_size: number of training nodes per step; the last batch of a pass can be smaller.
        block_size: number of nodes per block of inference, see `logits_in_blocks`.
        target: meaning of the values of ``graph.y``; by default class labels.

    Raises:
        ValueError: if a number is out of range.

    Example:
        >>> whole = fgl.data.splits.split(fgl.data.load("synthetic"), "random")
        >>> parts = fgl.data.partitions.random_partition(whole, 4)
        >>> clients = fgl.data.partitions.partition_graph(whole, parts)
        >>> model = fgl.nn.SAGE(whole.num_features, 8, whole.num_classes)
        >>> task = sampled_node_task(whole, clients, model, torch.optim.Adam, batch_size=128)
        >>> len(task.fedavg.train.batches(clients[0], {}))
        4
    """
    fanouts = check_fanouts(fanouts, unlimited=True)
    sampler = Once(partial(NeighbourSampler, fanouts=fanouts), len(clients))
    warn_of_trained(clients, whole)

    def batches(graph: Graph, context: Any) -> Steps:
        return sampled_steps(sampler(graph), context, epochs=epochs, batch_size=batch_size)

    logits_of = partial(logits_in_blocks, block_size=block_size, hops=len(fanouts) + 1)

    def scores(method: Method, trained: Sequence[Graph], *, each: bool = False) -> Evaluate:
        how: dict[str, Any] = {"logits_of": logits_of, "target": target, "each": each}
        return fed.evaluate_on(method, whole, trained, **how)

    own_scores = node_scores(model, test=False, logits_of=logits_of, target=target)
    validate = validation(own_scores, target.select)
    method = fed.fedavg(
        model, train=Training(optimizer, batches=batches, epochs=epochs), target=target
    )
    return Task(clients, bounded(method, clients), scores, target.select, validate, whole)


def sampled_steps(
    sampler: NeighbourSampler, context: Any, *, epochs: int = 1, batch_size: int = 1024
) -> Steps:
    """Shuffled minibatches of training nodes; every minibatch has newly sampled neighbours.

    torch's global generator draws the order of the nodes and one seed. A generator with this seed
    samples a batch just before the step that uses the batch, so only one batch is in memory.

    Args:
        sampler: the sampler of the client's graph.
        context: the context, which is passed to all steps without changes.
        epochs: number of passes over the training nodes.
        batch_size: number of training nodes per step.

    Example:
        >>> graph = fgl.Graph(torch.ones(5, 1), torch.tensor([[0, 1], [1, 2]]))
        >>> steps = sampled_steps(NeighbourSampler(graph, (2,)), {}, batch_size=2)
        >>> [int(batch.train_mask.sum()) for batch, _ in steps]
        [2, 2, 1]
    """
    graph = sampler.graph
    pool = fed.training_examples(graph)
    drawn = (torch.randperm(len(pool)) for _ in range(epochs))
    orders = [pool[to_device(order, pool.device)] for order in drawn]
    seeds = [chosen for order in orders if len(order) for chosen in order.split(batch_size)]
    start = int(torch.randint(2**62, ()))

    def make(number: int) -> tuple[Graph, Any]:
        generator = torch.Generator(graph.device).manual_seed(fed.fold_in(start, number))
        return sampler.unchecked(seeds[number], generator=generator), context

    return Steps(len(seeds), make)


@setting
class SampledNodes(Cut):
    """Classify the nodes of a graph that is divided among clients; minibatches sample neighbours.

    The partition, the split and the scores are the same as in `Nodes`.

    Example:
        >>> task = SampledNodes(clients=3, hidden=8, batch_size=64).load(seed=0)
        >>> batch, _ = task.fedavg.train.batches(task.clients[0], {})[0]
        >>> int(batch.train_mask.sum())
        64
    """

    split: Literal["random", "class_capped", "public"] = "random"
    """The split into training, validation and test nodes: 60, 20, 20 % at random."""
    model: Literal["gcn", "gat", "sage"] = "sage"
    """The network of the clients, with one layer per fan-out."""
    fanouts: tuple[int, ...] = (10, 10)
    """Number of sampled neighbours per node, for each hop; -1 means all."""
    batch_size: Count = 1024
    """Training nodes per step."""
    block_size: Count = 65536
    """Number of nodes that are scored at a time."""
    hidden: Count = 128
    dropout: Share = 0.5
    local: Local = Local("adam", lr=0.005, steps=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fanouts(self.fanouts, unlimited=True)

    def load(self, seed: int = 0) -> Task:
        """Load the task.

        `seed` determines the split, the partition and the initial model.
        """
        whole = self.split_nodes(self.split, seed)
        clients = [whole]
        if self.clients > 1:
            parts = self.cut(whole, seed)
            clients = data.partitions.partition_graph(whole, parts)
        clients = self.damaged(clients, seed)
        widths = whole.num_features, self.hidden, whole.num_classes
        how = {"num_layers": len(self.fanouts), "dropout": self.dropout}
        model = self.seeded(seed, MODELS[self.model], *widths, **how)
        sizes = {"batch_size": self.batch_size, "block_size": self.block_size}
        steps: Any = {"fanouts": self.fanouts, "epochs": self.local.steps, **sizes}
        optimizer = self.local.optimizer_factory()
        task = sampled_node_task(whole, clients, model, optimizer, **steps)
        return with_unseen(task, self.skew.unseen)

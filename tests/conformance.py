"""The conformance table: every method and every composition, one line each, with its tasks.

A new method gets every promise of `test_conformance.py` for one line in `ROWS`.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from federations import CLASSES, FEATURES, graph, ruled, script
from torch import nn
from torch_geometric import nn as pyg

import fgl
from fgl import Method, Training, client_network, methods, tasks
from fgl.aggregate.robust import geometric_median, krum, median, multi_krum, norm_bound
from fgl.data.traffic import traffic
from fgl.methods import (
    ditto,
    fedamp,
    feddc,
    feddyn,
    fedgta,
    fedopt,
    fedper,
    fedproto,
    fedprox,
    fedpub,
    fedsage_plus,
    fedselect,
    fedssp,
    fedstar,
    fedtgp,
    fggp,
    gcfl,
    gcfl_plus,
    graphfl,
    heurfedamp,
    local,
    mix_updates,
    moon,
    own_models,
    pfedgraph,
    proxy_graph,
    retrained,
    ring,
    scaffold,
    uniform,
    unlearned,
)
from fgl.tasks import Task
from fgl.tasks.forecast import Forecaster
from fgl.tasks.mended import mend
from fgl.transforms import (
    attacked,
    central_gaussian,
    clipped,
    local_gaussian,
    per_example_gaussian,
    quantised,
    robust,
    rounded_downloads,
    scaled_updates,
    secure_sum,
    sparsified,
    summed_gaussian,
)

K = 4  # clients
SGD = Training(partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-3), num_steps=2)
ADAM = Training(partial(torch.optim.Adam, lr=0.01), num_steps=2)


def first(make: Callable[[], nn.Module], dtype: torch.dtype) -> Any:
    """A model whose initial parameters are always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().to(dtype)


def cast(data: fgl.Graph, dtype: torch.dtype) -> fgl.Graph:
    if isinstance(data.x, fgl.SparseMatrix):
        return data.replace(x=data.x.astype(dtype))
    return data.replace(x=data.x.to(dtype))


def parts_of_nodes() -> Sequence[torch.Tensor]:
    order = torch.randperm(72, generator=torch.Generator().manual_seed(3))
    return order.split([12, 18, 25, 17])


def nodes(dropout: float, dtype: torch.dtype, kind: Any = fgl.nn.GCN) -> Task:
    whole, parts = cast(graph(72), dtype), parts_of_nodes()
    model = first(partial(kind, FEATURES, 8, CLASSES, dropout=dropout), dtype)
    return tasks.node_task(whole, fgl.data.partitions.partition_graph(whole, parts), model, SGD)


def sampled(dropout: float, dtype: torch.dtype, kind: Any = fgl.nn.SAGE) -> Task:
    """The clients of `nodes`, in minibatches with sampled neighbours, scored in blocks."""
    task, how = nodes(dropout, dtype, kind), {"fanouts": (3, 2), "batch_size": 5, "block_size": 30}
    model: Any = task.fedavg.model
    return tasks.sampled_node_task(task.whole, task.clients, model, SGD.optimizer, **how)


def adaptive_nodes(dropout: float, dtype: torch.dtype) -> Task:
    """The clients of `nodes`, who adapt to their graphs."""
    task = nodes(dropout, dtype)
    made = tasks.adapted(
        task, first_rounds=2, threshold=0.4, own_hidden=4, own_hops=2, own_dropout=dropout
    )
    return replace(made, bytes_before=0)


def summed(dropout: float, dtype: torch.dtype) -> Task:
    """FedGCN's clients, who know their neighbours' sums."""
    known = fgl.data.neighbour_sums(cast(graph(72), dtype), parts_of_nodes(), hops=2)
    kind = partial(fgl.nn.GCN, normalize=False, summed=True)
    model = first(partial(kind, FEATURES, 8, CLASSES, dropout=dropout), dtype)
    return tasks.node_task(known.whole, known.clients, model, SGD)


def generator(dropout: float, dtype: torch.dtype) -> Any:
    sizes = {"latent": 4, "widths": (5, 6), "dropout": dropout}
    make: Any = partial(fgl.nn.NeighbourGenerator, FEATURES, 8, CLASSES, **sizes)
    return first(make, dtype)


def generators(dropout: float, dtype: torch.dtype) -> Task:
    """FedSage+'s generators of neighbours."""
    clients, model = nodes(dropout, dtype).clients, generator(dropout, dtype)
    return tasks.generator_task(clients, model, replace(SGD, keep_optimizer=True))


def mended(dropout: float, dtype: torch.dtype) -> Task:
    """FedSage+'s clients, whose graphs have generated nodes."""
    made, model = nodes(dropout, dtype, fgl.nn.SAGE), generator(dropout, dtype)
    params = dict(model.state_dict())
    return replace(made, clients=[mend(model, params, own) for own in made.clients])


def overlapping(dropout: float, dtype: torch.dtype) -> Task:
    whole = cast(graph(40), dtype)
    parts = fgl.data.partitions.overlapping_partition(whole, [0.4, 0.5, 0.7, 0.3], seed=2)
    make = partial(fgl.nn.GCN, FEATURES, 8, CLASSES, dropout=dropout, drop_input=True)
    clients, union = (
        fgl.data.partitions.partition_graph(whole, parts),
        fgl.data.partitions.union_graph(whole, parts),
    )
    return tasks.overlapping_node_task(union, clients, first(make, dtype), ADAM, l2=5e-4)


@cache
def majors() -> tuple[fgl.Graph, list[fgl.Graph]]:
    small = fgl.data.csbm(num_nodes=200, num_features=12, words_per_set=3, seed=1)
    return fgl.data.partitions.major_label_partition(small, K, share=0.3, num_test=10)


def egos(dropout: float, dtype: torch.dtype) -> Task:
    test, clients = majors()
    sizes = test.num_features, 8, test.num_classes
    model = first(partial(fgl.nn.EgoSAGE, *sizes, fanouts=(2, 2), dropout=dropout), dtype)
    clients, test = [cast(own, dtype) for own in clients], cast(test, dtype)
    return tasks.ego_node_task(clients, test, model, ADAM.optimizer, epochs=1, batch_size=8)


def own_nodes(dropout: float, dtype: torch.dtype) -> Task:
    clients = [cast(graph(size, seed=k), dtype) for k, size in enumerate((30, 22, 26, 18))]
    make = partial(fgl.nn.VGAE, FEATURES, 8, 4, num_classes=CLASSES, dropout=dropout)
    return tasks.own_node_task(clients, first(make, dtype), ADAM)


def subgraphs(dropout: float, dtype: torch.dtype) -> Task:
    """Two communities of two clients that overlap; each keeps its model and its optimizer."""
    whole, (one, two, *rest) = cast(graph(72), dtype), parts_of_nodes()
    parts = fgl.data.partitions.community_clients([torch.cat([one, *rest]), two], 2, seed=1)
    clients = fgl.data.partitions.partition_graph(whole, parts)
    make = partial(fgl.nn.GCN, FEATURES, 8, CLASSES, head=True, dropout=dropout)
    train = replace(ADAM, keep_optimizer=True)
    return tasks.subgraph_node_task(clients, first(make, dtype), train)


def links(dropout: float, dtype: torch.dtype) -> Task:
    clients = [cast(graph(size, seed=k), dtype) for k, size in enumerate((30, 22, 26, 18))]
    splits = [fgl.data.splits.edge_split(own, seed=1) for own in clients]
    return tasks.link_task(splits, first(partial(fgl.nn.VGAE, FEATURES, 8, 4), dtype), ADAM)


FOUR = partial(fgl.federation.graph_minibatches, batch_size=4, num_epochs=1)
TWENTY = partial(fgl.federation.window_minibatches, batch_size=20)
COLLECTION = Training(ADAM.optimizer, batches=FOUR, keep_optimizer=True)


def folds(dtype: torch.dtype) -> tuple[list[fgl.Graph], list[fgl.Graph]]:
    whole = cast(fgl.Graph.join(*fgl.data.small_graphs(43)), dtype)
    parts = fgl.data.partitions.dirichlet_partition(whole.y, K, alpha=1.0)
    return fgl.data.splits.fold_clients(whole, parts, fold=0, num_folds=5)


def collections(dropout: float, dtype: torch.dtype) -> Task:
    model = first(partial(fgl.nn.GIN, 5, 8, 2, num_layers=2, dropout=dropout), dtype)
    return tasks.graph_task(*folds(dtype), model, COLLECTION)


class OwnEnds(nn.Module):
    """A layer of the client's width, one that all share, a head of the client's classes."""

    def __init__(self, features: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.enter, self.head = nn.Linear(features, 8), nn.Linear(8, classes)
        self.body = fgl.nn.GCN(8, 8, 8, dropout=dropout)

    def forward(self, x: Any, adj: Any) -> Any:
        return self.head(self.body(self.enter(x).relu(), adj))


def differing(dropout: float, dtype: torch.dtype) -> Task:
    """Clients of other widths and classes, of whom two are alike."""
    clients = []
    for k, (size, width) in enumerate(((30, 0), (22, 3), (26, 0), (18, 5))):
        own = cast(graph(size, seed=k), dtype)
        x = torch.cat([own.x, own.x[:, :width].flip(1)], 1)  # type: ignore[index, list-item]
        clients.append(own.replace(x=x, num_classes=CLASSES + width))

    def models(own: fgl.Graph) -> nn.Module:
        sizes = own.num_features, int(own.num_classes or 0)
        return OwnEnds(*sizes, dropout).to(own.x.dtype)

    fedavg = fgl.fedavg(first(partial(OwnEnds, 1, 1, dropout), dtype), train=SGD)
    method = fedper(fedavg, shared=["body"], models=models)
    method = ruled(method, max_examples=max(own.num_nodes for own in clients))
    score = tasks.node_scores(method.model)
    validate = tasks.scores.validation(score, "val_accuracy")
    return Task(clients, method, partial(tasks.evaluate_own, score), "val_accuracy", validate)


def star_nodes(dropout: float, dtype: torch.dtype) -> Task:
    """The clients of `nodes`, who read structure as well."""
    task = nodes(dropout, dtype)
    make = partial(fgl.nn.Star, FEATURES, 8, CLASSES, num_layers=2, dropout=dropout, pooling="none")
    whole, *clients = map(tasks.with_structure, (cast(graph(72), dtype), *task.clients))
    return tasks.node_task(whole, clients, first(make, dtype), SGD)


def star_graphs(dropout: float, dtype: torch.dtype) -> Task:
    """The clients of `collections`, who read structure as well."""
    clients, tests = folds(dtype)
    clients, tests = (list(map(tasks.with_structure, each)) for each in (clients, tests))
    model = first(partial(fgl.nn.Star, 5, 8, 2, num_layers=2, dropout=dropout), dtype)
    return tasks.graph_task(clients, tests, model, COLLECTION)


def spectral_graphs(dropout: float, dtype: torch.dtype) -> Task:
    """The clients of `collections`, who read spectra as well."""
    clients, tests = folds(dtype)
    read = partial(tasks.with_spectrum, width=32)
    clients, tests = (list(map(read, each)) for each in (clients, tests))
    model = first(partial(fgl.nn.SSP, 5, 8, 2, num_layers=1, dropout=dropout), dtype)
    return tasks.graph_task(clients, tests, model, COLLECTION)


def float_targets(dropout: float, dtype: torch.dtype) -> Task:
    """The clients of `nodes`, whose answers are numbers."""
    whole: Any = cast(graph(72), dtype)
    y = (whole.x @ torch.linspace(-1, 1, FEATURES, dtype=dtype).to(whole.device)).tanh()
    whole, parts = whole.replace(y=y), parts_of_nodes()
    clients = fgl.data.partitions.partition_graph(whole, parts)
    model = first(partial(fgl.nn.GCN, FEATURES, 8, 1, dropout=dropout), dtype)
    return tasks.node_task(whole, clients, model, SGD, target=fgl.targets.REGRESSION)


def half_known_answers(dropout: float, dtype: torch.dtype) -> Task:
    """Clients that hold graphs, with three questions each, of which some are not answered."""
    whole = cast(fgl.Graph.join(*fgl.data.small_graphs(60)), dtype)
    generator = torch.Generator().manual_seed(5)
    y = (torch.rand(60, 3, generator=generator) < 0.5).to(dtype)
    y[torch.rand(60, 3, generator=generator) < 0.3] = torch.nan
    whole = whole.replace(y=y.to(whole.device))
    parts = fgl.data.partitions.random_partition(whole, K)
    clients = [
        fgl.data.splits.random_split(whole.select(part), train=0.5, val=0.25) for part in parts
    ]
    model = first(partial(fgl.nn.GIN, 5, 8, 3, num_layers=2, dropout=dropout), dtype)
    return tasks.graph_task(clients, clients, model, COLLECTION, target=fgl.targets.ANSWERS)


def pairs(dropout: float, dtype: torch.dtype, negatives: bool = False) -> Task:
    """Clients whose examples are pairs: signs of later ratings, or where the next ones will be."""
    whole: Any = cast(fgl.data.ratings(72, 3000), dtype)
    whole = whole.replace(edge_attr=whole.edge_attr.to(dtype) / 10)
    y = None if negatives else (whole.edge_attr[:, 0] > 0).to(dtype)
    whole = fgl.data.splits.split_by_time(whole, y)
    clients = fgl.data.partitions.partition_graph(whole, parts_of_nodes())
    model = first(partial(fgl.nn.PairNet, 1, 8, 1, edge_dim=1), dtype)
    return tasks.pair_task(clients, model, SGD, negatives=negatives)


class DistMult(nn.Module):
    """Vectors of entities, which are the numbers in x, and of relations."""

    def __init__(self, entities: int, relations: int, width: int) -> None:
        super().__init__()
        self.ent, self.rel = nn.Embedding(entities, width), nn.Embedding(relations, width)

    def forward(self, x: Any, adj: Any, *, edge_label_index: Any, edge_label_type: Any) -> Any:
        head, tail = self.ent(x[:, 0].long())[edge_label_index]
        return (head * self.rel(edge_label_type) * tail).sum(1)


def knowledge(seed: int = 0, num: int = 240) -> fgl.Graph:
    """Random triples of 30 entities and 8 relations; half train, a quarter validates."""
    generator = torch.Generator().manual_seed(seed)
    key = torch.randperm(8 * 30 * 30, generator=generator)[:num]
    pairs, kind, part = torch.stack([key // 30 % 30, key % 30]), key // 900, torch.arange(num) % 4
    train = part < 2
    return fgl.Graph(
        torch.arange(30.0)[:, None], pairs[:, train], edge_type=kind[train],
        edge_label_index=pairs, edge_label_type=kind, y=torch.ones(num),
        train_mask=train, val_mask=part == 2, test_mask=part == 3,
    )  # fmt: skip


def triples(dropout: float, dtype: torch.dtype) -> Task:
    """Clients that know some relations of a knowledge graph each."""
    whole = cast(knowledge(), dtype)
    clients = fgl.data.partitions.relation_partition(whole.replace(y=whole.y.to(dtype)), K)  # type: ignore[union-attr]
    model = first(partial(DistMult, 30, 8, 6), dtype)
    return tasks.pair_task(clients, model, SGD, negatives=2, ranking=tasks.ranking(ks=(1, 3)))


def types(dropout: float, dtype: torch.dtype) -> Task:
    """Clients of a typed graph, who share conferences."""
    whole = cast(fgl.data.bibliography(80), dtype)
    whole = fgl.data.splits.random_split(whole, among=whole.train_mask)
    parts = fgl.data.with_shared(whole, fgl.data.partitions.random_partition(whole, K), types=[2])
    clients = fgl.data.partitions.partition_graph(whole, parts)
    how = {"num_relations": 4, "num_bases": 2, "dropout": dropout}
    model = first(partial(fgl.nn.RGCN, whole.num_features, 8, 4, **how), dtype)
    return tasks.node_task(whole, clients, model, SGD)


class Bonds(nn.Module):
    """PyG's layers, as a user writes them."""

    def __init__(self, features: int, out: int, pool: Any = None) -> None:
        super().__init__()
        self.one = pyg.GATv2Conv(features, 8, edge_dim=3)
        self.two = pyg.TransformerConv(8, 8, edge_dim=3)
        self.head, self.pool = nn.Linear(8, out), pool

    def forward(self, x: Any, edge_index: Any, edge_attr: Any, batch: Any = None) -> Any:
        x = self.one(x, edge_index, edge_attr).relu()
        x = self.two(x, edge_index, edge_attr).relu()
        return self.head(x if self.pool is None else self.pool(x, batch))


def with_bonds(whole: fgl.Graph, dtype: torch.dtype) -> fgl.Graph:
    """The same graph, whose edges have features."""
    numbers = torch.arange(3.0 * whole.num_edges, dtype=dtype).sin().view(-1, 3)
    numbers = numbers.to(whole.device)
    x = whole.x.to_dense() if isinstance(whole.x, fgl.SparseMatrix) else whole.x
    return whole.replace(x=x, edge_attr=numbers)


def model_of_pyg(dropout: float, dtype: torch.dtype) -> Task:
    """The clients of `nodes`, whose edges have features, and PyG's layers."""
    whole, parts = with_bonds(cast(graph(72), dtype), dtype), parts_of_nodes()
    clients = fgl.data.partitions.partition_graph(whole, parts)
    inner = first(partial(Bonds, FEATURES, CLASSES), dtype)
    return tasks.node_task(whole, clients, fgl.nn.Embedded(inner, before="head"), SGD)


def molecules(dropout: float, dtype: torch.dtype) -> Task:
    """Companies whose molecules have features of bonds, and numbers for answers."""
    graphs, y, scaffolds = fgl.data.small_molecules(48)
    whole = fgl.Graph.join(graphs, y)
    attr: Any = whole.edge_attr
    whole = cast(whole, dtype)
    whole = whole.replace(edge_attr=attr.to(whole.device, dtype), y=y.to(whole.device, dtype))
    parts = fgl.data.partitions.scaffold_partition(scaffolds, K)
    whole = tasks.molecules.split_each(whole, parts)
    make = partial(fgl.nn.GINE, 9, 8, 1, edge_dim=3, num_layers=2, dropout=dropout)
    clients = [whole.select(part) for part in parts]
    target = fgl.targets.REGRESSION
    return tasks.graph_task(clients, clients, first(make, dtype), COLLECTION, target=target)


def windows(dropout: float, dtype: torch.dtype) -> Task:
    """Districts of unequal size, some of whose values are unknown, that forecast their series."""
    whole = traffic(30, 80)
    y: Any = whole.y
    whole = whole.replace(x=whole.x.to(dtype), y=y.to(dtype), edge_weight=None)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(3))
    clients = fgl.data.partitions.partition_graph(whole, order.split([12, 5, 9, 4]))
    how: Any = {"horizons": (1, 3), "scaled": True}
    clients = [cast(fgl.data.splits.windows(own, 6, **how), dtype) for own in clients]
    model = first(partial(Forecaster, 2, 8, steps=6, num_horizons=2), dtype)
    train = Training(ADAM.optimizer, batches=TWENTY, keep_optimizer=True)
    return tasks.node_task(None, clients, model, train, target=fgl.targets.FORECAST)


class Atoms(nn.Module):
    """Sums over the atoms of a molecule, by their kinds and places; no features and no edges."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.inner, self.out = nn.Embedding(9, 4), nn.Linear(7, 8), nn.Linear(9, 1)

    def forward(self, z: Any, pos: Any, batch: Any, u: Any) -> Any:
        h = self.inner(torch.cat([self.embed(z), pos], 1)).tanh()
        own = batch == torch.arange(len(u), device=h.device)[:, None]
        pooled = own.to(h.dtype) @ h
        return self.out(torch.cat([pooled, u], 1))


def positions(dropout: float, dtype: torch.dtype) -> Task:
    """Clients whose molecules are kinds and places of atoms."""
    whole = fgl.Graph.join(*fgl.data.small_graphs(60))
    generator, n = torch.Generator().manual_seed(5), whole.num_nodes
    pos, u = (torch.randn(*shape, generator=generator) for shape in ((n, 3), (60, 1)))
    z = torch.randint(9, (n,), generator=generator)
    y, none = pos.new_zeros(60).index_add(0, whole.batch, pos[:, 0]), whole.edge_index[:, :0]
    fields: Any = {"pos": pos.to(dtype), "u": u.to(dtype), "y": y.to(dtype), "batch": whole.batch}
    graph = fgl.Graph(pos[:, :0].to(dtype), none, z=z, **fields)
    parts = fgl.data.partitions.random_partition(graph, K)
    split = fgl.data.splits.random_split
    clients = [cast(split(graph.select(part)), dtype) for part in parts]
    target = fgl.targets.REGRESSION
    return tasks.graph_task(clients, clients, first(Atoms, dtype), COLLECTION, target=target)


TASKS: dict[str, Callable[[float, torch.dtype], Task]] = {
    "nodes": nodes,
    "gat": partial(nodes, kind=fgl.nn.GAT),
    "sage": partial(nodes, kind=fgl.nn.SAGE),
    "adaptive": adaptive_nodes,
    "aux": partial(nodes, kind=fgl.nn.AuxSAGE),
    "spa": partial(nodes, kind=fgl.nn.SPA),
    "deep": partial(nodes, kind=partial(fgl.nn.DeepNeighbours, latent=4, widths=(5, 6))),
    "sampled": sampled,
    "sampled gcn": partial(sampled, kind=fgl.nn.GCN),
    "sampled gat": partial(sampled, kind=fgl.nn.GAT),
    "summed": summed,
    "generators": generators,
    "mended": mended,
    "overlapping": overlapping,
    "ego": egos,
    "own": own_nodes,
    "subgraphs": subgraphs,
    "links": links,
    "graphs": collections,
    "clients that differ": differing,
    "star nodes": star_nodes,
    "star graphs": star_graphs,
    "spectral graphs": spectral_graphs,
    "a PyG model": model_of_pyg,
    "float targets": float_targets,
    "half-known answers": half_known_answers,
    "signs of pairs": pairs,
    "next edges": partial(pairs, negatives=True),
    "triples": triples,
    "types": types,
    "molecules": molecules,
    "windows": windows,
    "positions": positions,
    "rows": lambda dropout, dtype: without_edges(nodes(dropout, dtype)),
}
SHARED = {  # what FedPer lets travel
    "nodes": ["convs.0"],
    "gat": ["convs.0"],
    "sampled": ["convs.0"],
    "overlapping": ["convs.0"],
    "ego": ["reduction", "convs.0"],
    "own": ["conv1", "conv_mu"],
    "links": ["conv1"],
    "triples": ["ent"],
    "graphs": ["convs"],
    "a PyG model": ["model.one"],
}


@dataclass(frozen=True)
class Row:
    """A method and the tasks that it claims.

    Args:
        build: the method for a task.
        tasks: names in `TASKS`.
        draws: whether its loss draws, so that a batch draws otherwise than the loop.
        by_place: whether it matters who is client 0, as on a ring.
        by_examples: whether a client without a training example counts for nothing.
        sends: whether clients send what they trained, be it finite or not; one that does not cannot
            be refused for it.
        first: the tasks of every run of the tests; the others are run by ``make nightly``.
            Default all.
        near: how far the outboxes of a batch and of the loop may be from each other, in double.
        exchange: rounds of a run that are one round of the table.
        alone: tasks whose clients do not train as a batch.
        absent: who is absent in each of the table's rounds: one for good, others for a round. Of a
            sum one alone, so that enough are left.
    """

    build: Callable[[Task], Method]
    tasks: tuple[str, ...]
    draws: bool = False
    by_place: bool = False
    by_examples: bool = True
    sends: bool = True
    first: tuple[str, ...] = ()
    near: float = 1e-6
    exchange: int = 1
    alone: tuple[str, ...] = ()
    absent: tuple[tuple[int, ...], ...] = ((1, 3), (0, 1), (1, 2))

    def gone(self, index: int, client: int) -> bool:
        """Whether a client is absent in a round of the run."""
        return client in self.absent[index // self.exchange]


def recipe(name: str) -> Any:
    """A builder of `examples`."""
    return getattr(script(f"examples/{name}.py"), name)


def adaptive(task: Task) -> Method:
    """FedProx as FedEgo's tables have it, its weight following the loss on the training nodes."""
    fit = fgl.federation.supervised(task.fedavg.model)
    return methods.adaptive_fedprox(task.fedavg, fit=lambda p, own: fit(p, own, {}))


SAYS = ("node_id", "embeddings", "predictions", "num_examples")  # FedGL, besides the model
VGAE = ("conv1", "conv_mu", "conv_logstd", "head")  # all of it


def part_of(task: Task) -> list[str]:
    names = list(task.fedavg.initial())
    return next(s for s in SHARED.values() if all(any(n.startswith(p) for n in names) for p in s))


def fedper_(task: Task) -> Method:
    return fedper(task.fedavg, shared=part_of(task))


def fgssl(task: Task, **options: Any) -> Method:
    return recipe("fgssl")(task.fedavg, **options)


def as_it_is(x: Any, adj: Any) -> Any:
    return x, adj


STILL = {"local_view": as_it_is, "global_view": as_it_is}


def fedgl(task: Task, **options: Any) -> Method:
    how = {"threshold": 0.35, "neighbours": 5, **options}
    return recipe("fedgl")(task.fedavg, 40, **how)


def fedego(task: Task, **options: Any) -> Method:
    return recipe("fedego")(task.fedavg, epochs=1, batch_size=8, **options)


def fedvgae(task: Task, **options: Any) -> Method:
    how = {"delta": 0.0, "shared": part_of(task), **options}
    return recipe("fedvgae")(task.fedavg, task.validate, **how)


def gpfl(task: Task, **options: Any) -> Method:
    generator = torch.Generator().manual_seed(0)
    first = task.clients[0]
    how = {"num_features": first.num_features, "generator": generator}
    x, edges, batch = client_network.probe_graphs(**how)
    probes = fgl.Graph(x, edges, batch=None if first.batch is None else batch)
    probes = cast(probes, first.x.dtype)
    return recipe("gpfl")(task.fedavg, probes, **options)


def fedpub_(task: Task, **options: Any) -> Method:
    how = {"blocks": 2, "num_nodes": 20, "generator": torch.Generator().manual_seed(0)}
    return fedpub(task.fedavg, proxy_graph(task.clients[0], **how), **options)


def fedtad(task: Task, **options: Any) -> Method:
    net = methods.node_generator(task.clients[0], noise=4, widths=(8, 8))
    return methods.fedtad(task.fedavg, net, num_nodes=12, neighbours=3, epochs=2, **options)


def rehearsed(noise: Any, task: Task) -> Method:
    """A transform whose noise is drawn from the run's seed, which it warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made: Method = noise(task.fedavg, length=0.5, noise_multiplier=0.05, unprotected=True)
    return made


def quiet(build: Callable[..., Method], task: Task, **how: Any) -> Method:
    """A transform that draws from the run's seed, which it warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return build(task.fedavg, **how, unprotected=True)


# Clusters split in the first rounds, in two, whatever the updates are.
SPLIT = {"eps1": 1e6, "eps2": 0.0, "first_round": 0}

ANY = ("nodes", "overlapping", "ego", "own", "links", "graphs", "sampled")
FIRST = ANY[:-1]  # for most methods: FedAvg, FedProx and SCAFFOLD are run on "sampled" every time
WHOLE = ("nodes", "gat", "overlapping", "own", "links")  # the loss sees all nodes at once
NODES = ("nodes",)
DIFFER = ("clients that differ",)  # who have FedPer for FedAvg
# What users bring: of methods that need neither classes nor probe graphs.
BROUGHT = ("float targets", "half-known answers", "a PyG model", "molecules")
OTHERS = ("signs of pairs", "next edges", "types", "triples", "windows", "positions")

prox = partial(fedprox, mu=0.5)

ROWS: dict[str, Row] = {
    # fgl.methods
    "fedavg": Row(
        lambda t: t.fedavg,
        (
            *(*ANY, "gat", "sage", "sampled gcn", "sampled gat", "summed", "generators", "mended"),
            *(*BROUGHT, *OTHERS),
        ),
        first=(
            *(*FIRST, "gat", "sage", "sampled", "sampled gcn", "summed", "generators", "mended"),
            *(*BROUGHT, *OTHERS),
        ),
    ),
    "local": Row(lambda t: local(t.fedavg), (*ANY, *BROUGHT), sends=False, first=FIRST),
    "fedprox": Row(lambda t: prox(t.fedavg), (*ANY, "summed", "mended", *BROUGHT, *OTHERS)),
    "fedhgn": Row(lambda t: methods.fedhgn(t.fedavg), ("types",)),
    "adaptive fedprox": Row(adaptive, ("nodes", "overlapping")),
    "fedopt sgd": Row(lambda t: fedopt(t.fedavg), NODES),
    "fedopt adam": Row(
        lambda t: fedopt(t.fedavg, rule="adam", server_lr=0.01), (*ANY, *BROUGHT, *OTHERS),
        first=FIRST
    ),
    "fedopt yogi": Row(lambda t: fedopt(t.fedavg, rule="yogi", server_lr=0.01), NODES),
    "fedopt adagrad": Row(lambda t: fedopt(t.fedavg, rule="adagrad", server_lr=0.01), NODES),
    "fedper": Row(fedper_, (*ANY, *BROUGHT, "triples"), first=(*FIRST, "triples")),
    "fede": Row(lambda t: script("examples/fede.py").fede(t.fedavg), ("triples",)),
    "fedper apart": Row(lambda t: t.fedavg, DIFFER),
    "fedprox of fedper apart": Row(lambda t: prox(t.fedavg), DIFFER),
    "scaffold of fedper apart": Row(lambda t: scaffold(t.fedavg), DIFFER, by_examples=False),
    "scaffold": Row(
        lambda t: scaffold(t.fedavg), (*ANY, *BROUGHT, *OTHERS), by_examples=False,
        first=("nodes", "ego", "graphs", "sampled")
    ),
    "fedselect": Row(
        lambda t: fedselect(t.fedavg, every=1), (*ANY, "gat", *BROUGHT), first=("nodes", "graphs")
    ),
    "graphfl": Row(
        lambda t: graphfl(t.fedavg, adapt_steps=2, query="all"), (*ANY, "gat", *BROUGHT),
        first=("nodes", "ego"),
    ),
    "graphfl drawn": Row(lambda t: graphfl(t.fedavg, adapt_steps=2), ANY, first=("nodes",)),
    "fedsage": Row(lambda t: t.fedavg, ("sage",)),
    "fedgcn": Row(lambda t: t.fedavg, ("summed",)),
    "fedsage plus": Row(
        lambda t: fedsage_plus(t.fedavg), ("generators",), by_examples=False, sends=False
    ),
    "moon": Row(lambda t: moon(t.fedavg), (*WHOLE, "summed", "mended", *BROUGHT[::2])),
    "ring": Row(
        lambda t: ring(t.fedavg), (*ANY, *BROUGHT), by_place=True, by_examples=False, first=FIRST
    ),
    "own models": Row(lambda t: own_models(t.fedavg), ("nodes", "graphs")),
    "fedavg alike": Row(lambda t: t.fedavg, ("subgraphs",), by_examples=False),
    "fedprox alike": Row(lambda t: prox(t.fedavg), ("subgraphs",), by_examples=False),
    "own models drawn": Row(lambda t: own_models(t.fedavg, draw=True), ("ego",)),
    "mix updates": Row(
        lambda t: mix_updates(t.fedavg, uniform, self_weight=0.3), ANY, by_examples=False,
        first=FIRST
    ),
    "fedamp": Row(
        lambda t: fedamp(t.fedavg, server_lr=0.5), (*ANY, "gat", *BROUGHT), by_examples=False,
        first=("nodes", "ego"),
    ),
    "heurfedamp": Row(  # two first steps of an Adam each round: each divides by gradients near 0
        lambda t: heurfedamp(t.fedavg), ANY, by_examples=False, first=("graphs",), near=1e-4
    ),
    "pfedgraph": Row(
        lambda t: pfedgraph(t.fedavg), (*ANY, "gat", *BROUGHT), by_examples=False,
        first=("nodes", "links"),
    ),
    "fedpub": Row(
        fedpub_, (*ANY, "gat", "subgraphs"), by_examples=False,
        first=("nodes", "graphs", "subgraphs"),
    ),
    "fedpub code": Row(partial(fedpub_, penalties=False), NODES, by_examples=False),
    "gcfl": Row(
        lambda t: gcfl(t.fedavg, **SPLIT), (*ANY, *BROUGHT), by_examples=False,
        first=("nodes", "overlapping"),
    ),
    "gcfl plus": Row(
        lambda t: gcfl_plus(t.fedavg, seq_length=2, **SPLIT), ("nodes", "graphs"), by_examples=False
    ),
    "gcfl plus gradients": Row(
        lambda t: gcfl_plus(t.fedavg, seq_length=2, sequence="gradients", **SPLIT),
        (*ANY, *BROUGHT), by_examples=False, first=("nodes", "own"),
    ),
    "fedstar": Row(lambda t: fedstar(t.fedavg), ("star nodes", "star graphs")),
    "fedstar alike": Row(lambda t: fedstar(t.fedavg, draw=False), ("star nodes",)),
    "fedssp": Row(lambda t: fedssp(t.fedavg), ("spectral graphs",), alone=("spectral graphs",)),
    "feddyn": Row(
        lambda t: feddyn(t.fedavg), (*ANY, "gat", *BROUGHT, *OTHERS), by_examples=False, first=NODES
    ),
    "feddc": Row(
        lambda t: feddc(t.fedavg), (*ANY, "gat", *BROUGHT, *OTHERS), by_examples=False, first=NODES
    ),
    "ditto": Row(
        lambda t: ditto(t.fedavg), (*(n for n in ANY if n != "graphs"), "gat"), by_examples=False,
        first=NODES,
    ),
    "fedgta": Row(
        lambda t: fedgta(t.fedavg), ("nodes", "gat", "overlapping", "own", "sampled", "types"),
        by_examples=False, first=NODES,
    ),
    "fedproto": Row(
        lambda t: fedproto(t.fedavg, draw=False),
        ("nodes", "gat", "overlapping", "own", "sampled", "types"), by_examples=False, first=NODES,
    ),
    "fedproto drawn": Row(
        lambda t: fedproto(t.fedavg), ("nodes", "gat", "own", "types"), by_examples=False,
        first=NODES,
    ),
    "fedtgp": Row(
        lambda t: fedtgp(t.fedavg, server_epochs=3, server_batch=64),
        ("nodes", "gat", "overlapping", "own", "sampled", "types"), by_examples=False, first=NODES,
    ),
    "fedgm drawn": Row(
        lambda t: methods.fedgm(
            t.fedavg, condense_steps=3, adjacency_steps=1, feature_steps=1, condense_width=4,
            fit_steps=4,
        ),
        ("nodes", "overlapping"), by_examples=False, sends=False, first=("nodes",),
    ),
    "opfgl drawn": Row(
        lambda t: methods.opfgl(
            t.fedavg, sure=0.6, min_degree=2, condense_steps=12, condense_width=4, fit_steps=4
        ),
        ("nodes", "overlapping", "gat", "sage"), by_examples=False, sends=False, first=("nodes",),
    ),
    "fedtad": Row(fedtad, ("nodes", "overlapping", "gat"), first=("nodes",)),
    "adafgl": Row(lambda t: t.fedavg, ("adaptive",), sends=False, by_examples=False),
    "fedaux": Row(lambda t: methods.fedaux(t.fedavg, scale=3.0), ("aux",), by_examples=False),
    "feddep": Row(
        lambda t: methods.feddep(t.fedavg, encoder_epochs=2, gen_epochs=2), ("deep",),
        by_examples=False,
    ),
    "s2fgl": Row(
        lambda t: methods.s2fgl(t.fedavg, frequencies=2, books=2),
        ("nodes", "gat", "overlapping"), by_place=True, by_examples=False, first=("nodes",),
    ),
    "fedspa": Row(lambda t: methods.fedspa(t.fedavg), ("spa",), by_examples=False),
    "fggp": Row(
        lambda t: fggp(t.fedavg, every=2), ("nodes", "overlapping"), draws=True, by_examples=False,
        first=NODES,
    ),
    "retrained": Row(
        lambda t: retrained(t.fedavg, client=1), (*ANY, "gat", *BROUGHT), by_place=True,
        by_examples=False,  # up to rounding: a sum of three and one of four (test_unlearning.py)
        first=NODES,
    ),
    "unlearned": Row(
        lambda t: unlearned(t.fedavg, client=2, at=1), (*ANY, "gat", *BROUGHT), by_place=True,
        by_examples=False, first=NODES,
    ),
    # examples/
    "fgssl": Row(fgssl, ("nodes", "gat", "overlapping"), draws=True),
    "fgssl still": Row(
        partial(fgssl, **STILL), ("nodes", "gat", "sampled", "overlapping"), first=("nodes", "gat")
    ),
    "fgssl contrast": Row(partial(fgssl, lambda_d=0.0), NODES, draws=True),
    "fgssl distillation": Row(
        partial(fgssl, lambda_c=0.0), ("nodes", "sampled", "sampled gat"), draws=True, first=NODES
    ),
    "fgssl distillation still": Row(
        partial(fgssl, lambda_c=0.0, **STILL), ("sampled gat", "sampled"), first=("sampled gat",)
    ),
    "fgssl code": Row(
        partial(fgssl, keys="local", denominator="all", direction="symmetric", **STILL), NODES
    ),
    "fedgl": Row(fedgl, ("overlapping",)),
    "fedgl labels": Row(partial(fedgl, neighbours=0), ("overlapping",)),
    "fedgl graph": Row(partial(fedgl, alpha=0.0), ("overlapping",)),
    "fedgl printed": Row(partial(fedgl, beta=1.0, symmetric=False), ("overlapping",)),
    "fedego": Row(fedego, ("ego",)),
    "fedego half": Row(partial(fedego, weight=lambda own, everybody: 0.5), ("ego",)),
    "fedvgae": Row(fedvgae, ("own", "links", "nodes", "overlapping")),
    "fedvgae contrast": Row(partial(fedvgae, max_adjust=0), ("own", "links")),
    "fedvgae all": Row(partial(fedvgae, shared=VGAE), ("own",)),
    "fedvgae adjusted": Row(partial(fedvgae, contrast=0.0), ("own", "links")),
    "gpfl": Row(gpfl, ANY, by_examples=False, first=("graphs",)),
    "gpfl first network": Row(partial(gpfl, learn=None), ("graphs",), by_examples=False),
    "your own": Row(
        lambda t: script("examples/your_own_method.py").near_the_server(t.fedavg, mu=0.5), NODES
    ),
    "server of one's own": Row(
        lambda t: script("examples/your_own_server.py").with_momentum(t.fedavg), NODES
    ),
    # compositions
    "fedprox of fgssl": Row(lambda t: prox(fgssl(t, **STILL)), NODES),
    "fedopt of fgssl": Row(lambda t: fedopt(fgssl(t, **STILL), rule="adam"), NODES),
    "moon of fedper": Row(lambda t: moon(fedper_(t)), ("nodes", "own")),
    "moon of fedprox": Row(lambda t: moon(prox(t.fedavg)), NODES),
    "fedprox of moon": Row(lambda t: prox(moon(t.fedavg)), NODES),
    "fedopt of fedprox": Row(
        lambda t: fedopt(prox(t.fedavg), rule="adam", server_lr=0.01),
        ("nodes", "ego", "links"),
    ),
    "fedopt of fedper": Row(lambda t: fedopt(fedper_(t), server_lr=0.5), ("nodes", "own")),
    "local of own models": Row(
        lambda t: local(own_models(t.fedavg)), ("nodes", "graphs"), sends=False
    ),
    "local of fedprox": Row(lambda t: local(prox(t.fedavg)), ("nodes", "links"), sends=False),
    "fedsage plus of fedprox": Row(
        lambda t: fedsage_plus(prox(t.fedavg)), ("generators",), by_examples=False,
        sends=False,
    ),
    "fedgl of fedopt": Row(
        lambda t: fedgl(replace(t, fedavg=fedopt(t.fedavg, rule="adam"))), ("overlapping",)
    ),
    "fedopt of fedgl": Row(lambda t: fedopt(fedgl(t), rule="adam"), ("overlapping",)),
    "fedgl of fedprox": Row(lambda t: fedgl(replace(t, fedavg=prox(t.fedavg))), ("overlapping",)),
    "scaffold of fedprox": Row(
        lambda t: scaffold(prox(t.fedavg)), ("nodes", "ego"), by_examples=False
    ),
    "fedprox of fedselect": Row(lambda t: prox(fedselect(t.fedavg, every=1)), ("nodes", "links")),
    "graphfl of fedprox": Row(
        lambda t: graphfl(prox(t.fedavg), adapt_steps=2, query="all"),
        ("nodes", "graphs"),
    ),
    "fedopt of graphfl": Row(
        lambda t: fedopt(
            graphfl(t.fedavg, adapt_steps=1, query="all"), rule="adam", bias_correction=True
        ),
        NODES,
    ),
    "ring of fedprox": Row(
        lambda t: ring(prox(t.fedavg)), ("nodes", "ego"), by_place=True,
        by_examples=False,
    ),
    "ring of fedper": Row(lambda t: ring(fedper_(t)), NODES, by_place=True, by_examples=False),
    "mix updates of fedprox": Row(
        lambda t: mix_updates(prox(t.fedavg), uniform), ("nodes", "graphs"),
        by_examples=False,
    ),
    "mix updates of fgssl": Row(
        lambda t: mix_updates(fgssl(t, **STILL), uniform), NODES, by_examples=False
    ),
    "fedprox of fedamp": Row(lambda t: prox(fedamp(t.fedavg)), ("nodes", "own"), by_examples=False),
    "fedprox of pfedgraph": Row(
        lambda t: prox(pfedgraph(t.fedavg)), ("nodes", "graphs"), by_examples=False
    ),
    "fedprox of fedpub": Row(lambda t: prox(fedpub_(t)), ("nodes", "graphs"), by_examples=False),
    "fedpub of fedper": Row(
        lambda t: fedpub_(replace(t, fedavg=fedper_(t))), ("nodes", "own"), by_examples=False
    ),
    "gcfl of fedprox": Row(
        lambda t: gcfl(prox(t.fedavg), **SPLIT), ("nodes", "graphs"), by_examples=False
    ),
    "gcfl of fedper": Row(
        lambda t: gcfl(fedper_(t), **SPLIT), ("nodes", "graphs"), by_examples=False
    ),
    "gcfl of fedopt": Row(
        lambda t: gcfl(fedopt(t.fedavg, rule="adam"), **SPLIT), NODES, by_examples=False
    ),
    "fedprox of fedstar": Row(lambda t: prox(fedstar(t.fedavg)), ("star graphs",)),
    "fedprox of fedgl": Row(lambda t: prox(fedgl(t)), ("overlapping",)),
    "moon of fedgl": Row(lambda t: moon(fedgl(t)), ("overlapping",)),
    "fedprox of fedego": Row(lambda t: prox(fedego(t)), ("ego",)),
    "fedprox of fedvgae": Row(lambda t: prox(fedvgae(t)), ("own", "links")),
    "fedprox of gpfl": Row(lambda t: prox(gpfl(t)), ("graphs",), by_examples=False),
    # transforms
    "robust median of fedavg": Row(
        lambda t: robust(t.fedavg, median), (*ANY, "gat", *BROUGHT, *OTHERS)
    ),
    "robust krum of fedprox": Row(lambda t: robust(prox(t.fedavg), partial(krum, bad=0)), NODES),
    "robust multi-krum of fedgl": Row(
        lambda t: robust(fedgl(t), partial(multi_krum, bad=0), untouched=SAYS), ("overlapping",)
    ),
    "fedopt of robust": Row(
        lambda t: fedopt(robust(t.fedavg, norm_bound), rule="adam", server_lr=0.01), NODES
    ),
    "robust geometric median of moon": Row(
        lambda t: robust(moon(t.fedavg), geometric_median), NODES
    ),
    "robust buckets of fedper": Row(
        lambda t: robust(fedper_(t), median, bucket=2), ("nodes", "own"), by_place=True
    ),
    "attacked robust median of fedavg": Row(
        lambda t: attacked(robust(t.fedavg, median), [2], scaled_updates()), ("nodes", "graphs"),
        by_place=True,
    ),
    "clipped": Row(
        lambda t: clipped(t.fedavg, length=0.1), (*ANY, *BROUGHT, *OTHERS, *DIFFER),
        by_examples=False, sends=False,
        first=("nodes",),
    ),
    "local gaussian drawn": Row(
        partial(rehearsed, local_gaussian), ("nodes", "graphs", *BROUGHT, *OTHERS, *DIFFER),
        by_examples=False, sends=False, first=("nodes",),
    ),
    "central gaussian drawn": Row(
        partial(rehearsed, central_gaussian), ("nodes", "graphs", *BROUGHT, *OTHERS, *DIFFER),
        by_examples=False, sends=False, first=("nodes",),
    ),
    "central gaussian drawn of fedopt": Row(
        lambda t: rehearsed(central_gaussian, replace(t, fedavg=fedopt(t.fedavg, rule="adam"))),
        ("nodes", "links"), by_examples=False, sends=False,
    ),
    "local gaussian drawn of fedamp": Row(
        lambda t: rehearsed(local_gaussian, replace(t, fedavg=fedamp(t.fedavg))), NODES,
        by_examples=False, sends=False,
    ),
    "quantised drawn": Row(  # a level is drawn for each entry, client by client
        lambda t: quantised(t.fedavg), (*ANY, *BROUGHT, *OTHERS, *DIFFER), first=("nodes", "own")
    ),
    "quantised drawn of scaffold": Row(
        lambda t: quantised(scaffold(t.fedavg), bits=4, bucket=32, parts=("model", "shift")),
        ("nodes", "graphs"), by_examples=False, first=("nodes",),
    ),
    "quantised drawn of local gaussian": Row(
        lambda t: quantised(rehearsed(local_gaussian, t)), NODES, by_examples=False, sends=False
    ),
    "sparsified": Row(
        lambda t: sparsified(t.fedavg, share=0.3), (*ANY, *BROUGHT, *OTHERS, *DIFFER),
        first=("nodes", "graphs"),
    ),
    "sparsified of fedper": Row(lambda t: sparsified(fedper_(t), share=0.3), ("nodes", "own")),
    "sparsified of robust median": Row(
        lambda t: sparsified(robust(t.fedavg, median), share=0.3), NODES
    ),
    "rounded downloads": Row(
        lambda t: rounded_downloads(t.fedavg), (*ANY, *BROUGHT, *OTHERS, *DIFFER),
        first=("nodes", "graphs"), near=1e-2,  # two numbers near a middle are rounded apart
    ),
    "rounded downloads of sparsified fedamp": Row(
        lambda t: rounded_downloads(sparsified(fedamp(t.fedavg), share=0.3), dtype="float16"),
        ("nodes", "graphs"), by_examples=False, near=1e-2, first=("nodes",),
    ),
}  # fmt: skip

# Sums that no server sees the parts of, and noise: of four clients three must stay in a sum.
SUMMED: dict[str, Any] = {
    "by_examples": False, "sends": False, "exchange": 4, "absent": ((1,), (0,), (2,)),
}  # fmt: skip
NOISE: dict[str, Any] = {"length": 0.5, "noise_multiplier": 0.05}
STEPS: dict[str, Any] = {"sample_rate": 0.5, "expected_batch_size": 5, "num_steps": 2}
PRIVATE: dict[str, Row] = {
    "secure sum": Row(
        partial(quiet, secure_sum, threshold=3), (*WHOLE, "graphs", *BROUGHT, *OTHERS),
        first=("nodes",), **SUMMED,
    ),
    "secure sum of fedprox": Row(
        lambda t: quiet(secure_sum, replace(t, fedavg=fedprox(t.fedavg, mu=0.5)), threshold=3),
        NODES, **SUMMED,
    ),
    "summed gaussian drawn": Row(
        partial(quiet, summed_gaussian, threshold=3, **NOISE), ("nodes", "graphs", *BROUGHT),
        first=("nodes",), **SUMMED,
    ),
    "DP-SGD drawn": Row(
        partial(quiet, per_example_gaussian, **NOISE, **STEPS), ("rows", "graphs"), draws=True,
        by_examples=False, sends=False, first=("rows",), alone=("graphs",),
    ),
}  # fmt: skip

CASES = [(name, task) for name, row in ROWS.items() for task in row.tasks]
WITH_PRIVATE = [(name, task) for name, row in PRIVATE.items() for task in row.tasks]


def later(name: str, task: str) -> bool:
    """Whether a cell is left out of a short list: of compositions all but the first task."""
    row = ROWS[name]
    first = row.first or (row.tasks[:1] if " of " in name else row.tasks)
    return task not in first


@cache
def known(task: str, dropout: float, dtype: torch.dtype) -> Task:
    return TASKS[task](dropout, dtype)


def case(
    name: str, task: str, *, dropout: float = 0.5, dtype: torch.dtype = torch.float32
) -> tuple[Method, Task]:
    """A method of the table on one of its tasks; the task's data are made once."""
    made = known(task, dropout, dtype)
    return row(name).build(made), made


def row(name: str) -> Row:
    """A row of the table, or one of what stands between a client and its server."""
    return PRIVATE[name] if name in PRIVATE else ROWS[name]


def without_edges(task: Task) -> Task:
    """The task with clients whose examples are independent: collections stay as they are."""
    none = torch.zeros(0, dtype=torch.int64)
    bare = [own if own.batch is not None else own.with_edges(none) for own in task.clients]
    return replace(task, clients=bare)

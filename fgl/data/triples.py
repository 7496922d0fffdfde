"""Knowledge graphs: triples of head, relation and tail, and partitions by relation."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..checks import Count, reject_if
from ..graph import MASKS, Graph
from ..graph.fields import EXAMPLE_FIELDS, taken
from ..warn import warn

FILES = ("train.txt", "valid.txt", "test.txt")
Names = Sequence[str]


def load_triples(folder: str | os.PathLike[str]) -> tuple[Graph, Names, Names]:
    """Load a knowledge graph from ``train.txt``, ``valid.txt`` and ``test.txt`` in a folder.

    Each line is a triple: the names of head, relation and tail, separated by tabs. The names of the
    entities in all three files are sorted, and an entity's number is the position of its name.
    Relations are numbered in the same way.

    Args:
        folder: folder with the three files, in UTF-8.

    Returns:
        The graph, the names of its nodes, and the names of its relations. Each triple of the three
        files becomes a pair of nodes. The relation is the pair's `edge_label_type`, and the pair's
        label `y` is 1. The masks show from which file each pair comes. Training triples are also
        edges with `edge_type`. A node's only feature is the node's index, which an ``Embedding``
        can read.

    Raises:
        ValueError: if a line does not have three names, or if a file has no triples.
        OSError: if a file cannot be read.

    Warns:
        UserWarning: if a triple is in two files, since a training triple could then reveal the
            label of a validation or test triple. A second warning is given if a triple occurs twice
            in one file. Only one copy of the triple is then read.

    Example:
        >>> folder = getfixture("tmp_path")
        >>> for name in ("train", "valid", "test"):
        ...     _ = (folder / f"{name}.txt").write_text(f"Ann\\tknows\\t{name}")
        >>> graph, entities, relations = load_triples(folder)
        >>> graph.edge_label_index.tolist(), graph.edge_label_type.tolist()
        ([[0, 0, 0], [2, 3, 1]], [0, 0, 0])
        >>> entities, relations
        (['Ann', 'test', 'train', 'valid'], ['knows'])
    """
    lines = [_read(Path(folder) / name) for name in FILES]
    every = [triple for each in lines for triple in each]
    counts = torch.tensor([len(each) for each in lines])
    if twice := len(every) - len(set(every)):
        warn(
            f"Expected triples to be in one file each, but {twice} are in two, where training may "
            "tell the answer"
        )
    heads, kinds, tails = ({*column} for column in zip(*every, strict=True))
    if kinds & heads and not tails & (heads | kinds):
        warn(
            "Expected each line to hold head, relation and tail, but the second names are heads "
            "too, and the third are not: are these files' triples head, tail and relation?",
        )
    entities = sorted({name for head, _, tail in every for name in (head, tail)})
    relations = sorted({relation for _, relation, _ in every})
    node, kind = ({n: i for i, n in enumerate(names)} for names in (entities, relations))
    pairs = torch.tensor([[node[head], node[tail]] for head, _, tail in every]).T
    types = torch.tensor([kind[relation] for _, relation, _ in every])
    part = torch.arange(3).repeat_interleave(counts)
    masks: dict[str, Any] = {name: part == number for number, name in enumerate(MASKS)}
    graph = Graph(
        torch.arange(len(entities)).float()[:, None],
        pairs[:, part == 0],
        edge_type=types[part == 0],
        edge_label_index=pairs,
        edge_label_type=types,
        y=torch.ones(len(every)),
        **masks,
    )
    return graph, entities, relations


HEADERS = [  # in any order
    *({"head", "relation", "tail"}, {"subject", "predicate", "object"}, {"h", "r", "t"}),
    *({"source", "relation", "target"}, {"head", "rel", "tail"}, {"s", "p", "o"}),
]


def _read(path: Path) -> list[tuple[str, ...]]:
    """The distinct triples of a file."""
    rows: list[tuple[str, ...]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1):
        row = tuple(name.strip() for name in line.split("\t"))
        if row == ("",):
            continue
        expected = f"line {number} of {path} to have a head, a relation and a tail between tabs"
        reject_if(len(row) != 3 or not all(row), expected, repr(line))
        rows.append(row)
    reject_if(not rows, f"{path} to have triples", "none")
    header = {name.lower().removesuffix("_id") for name in rows[0]} in HEADERS
    reject_if(header, f"{path} to have triples alone", f"the header {rows[0]}")
    distinct = list(dict.fromkeys(rows))
    if len(distinct) < len(rows):
        warn(f"{path} has {len(rows) - len(distinct)} triples twice; each is read once")
    return distinct


def relation_partition(graph: Graph, num_clients: Count, *, seed: int = 0) -> list[Graph]:
    """Partition a knowledge graph by relation: all triples of a relation go to one client.

    Relations are assigned at random. The clients' numbers of relations differ by at most one. A
    client's nodes are all entities that occur in the client's triples.

    Args:
        graph: a graph with `edge_type`. If the graph has pairs, `edge_label_type` is required too.
        num_clients: number of clients.
        seed: random seed.

    Returns:
        One graph per client. Relations keep the numbers of the given graph, and `node_id` holds the
        nodes' ids in the given graph.

    Raises:
        ValueError: if edges or pairs have no relations, or if there are fewer relations than
            clients.

    Example:
        >>> edges, kinds = torch.tensor([[0, 1, 0], [1, 2, 2]]), torch.tensor([0, 1, 1])
        >>> one, two = relation_partition(fgl.Graph(torch.eye(3), edges, edge_type=kinds), 2)
        >>> one.node_id.tolist(), two.node_id.tolist()
        ([0, 1], [0, 1, 2])

    Source: the clients of Chen et al. 2021, FedE, https://arxiv.org/abs/2010.12882
    """
    pairs = graph.edge_label_index
    lacks = graph.edge_type is None or (pairs is not None and graph.edge_label_type is None)
    expected = "a graph whose edges have edge_type, and its pairs edge_label_type"
    reject_if(lacks or graph.batch is not None, expected, graph)
    types = [t for t in (graph.edge_type, graph.edge_label_type) if t is not None]
    relations = torch.cat(types).unique()
    expected = f"num_clients to be at most {len(relations)}, the number of relations"
    reject_if(num_clients > len(relations), expected, num_clients)
    order = torch.randperm(len(relations), generator=torch.Generator().manual_seed(seed))
    return [_of_relations(graph, own) for own in relations[order].tensor_split(num_clients)]


def _of_relations(graph: Graph, relations: torch.Tensor) -> Graph:
    """The subgraph of some relations: their edges, their pairs, and the nodes at the ends."""
    own = graph.with_edges(torch.isin(graph.edge_type, relations))  # type: ignore[arg-type]
    ends = [own.edge_index]
    if own.edge_label_index is not None:
        which = torch.isin(own.edge_label_type, relations).nonzero().squeeze(1)  # type: ignore[arg-type]
        ends.append(own.edge_label_index[:, which])
        own = own.replace(edge_label_index=ends[1], **taken(own, EXAMPLE_FIELDS, which))
    return own.subgraph(torch.cat(ends, 1).unique())

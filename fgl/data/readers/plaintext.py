"""Readers of plain-text datasets: ACM, Wiki, Bitcoin OTC, and DBLP's four areas."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...checks import reject_if
from ...graph import Graph
from ...sparse import SparseMatrix
from ..typed import typed_graph
from ..undirected import undirected
from .matrices import check_size, sparse_features
from .parsing import bad_row, check_range, contiguous, floats, integers, need


def read_acm(folder: Path, name: str) -> Graph:
    """Read a graph from ``NAME.{feature,label}`` and ``NAME_PAP.edge``; edges join papers.

    An edge joins two papers that have a common author. Each line of ``NAME.feature`` holds the
    features of one paper, and each line of ``NAME.label`` holds the label of one paper. Each line
    of ``NAME_PAP.edge`` holds the two papers of one edge. The graph is undirected, without
    self-loops and repeats. Features are returned as stored.

    Raises:
        ValueError: if a file is missing or malformed.

    Source: https://github.com/zhumeiqiBUPT/AM-GCN
    """
    from scipy.sparse import csr_matrix

    parts = ("feature", "label")
    features, labels, pairs = need(folder, [*(f"{name}.{p}" for p in parts), f"{name}_PAP.edge"])
    x, y = floats(features, None), integers(labels, 1)[:, 0]
    check_size(labels, len(y), len(x), f"lines, one per line of {features.name}")
    edges = integers(pairs, 2)
    check_range(pairs, edges, 0, len(y))
    label, num_classes = contiguous(labels, y)
    return Graph(
        sparse_features(features, csr_matrix(x)),
        undirected(torch.from_numpy(edges.T), len(y)),
        y=label,
        num_classes=num_classes,
    )


def read_wiki(folder: Path, name: str) -> Graph:
    """Read linked pages with TF-IDF features: ``graph.txt``, ``group.txt`` and ``tfidf.txt``.

    A line of ``graph.txt`` holds a pair of nodes. A line of ``group.txt`` holds a node and the
    node's label. A line of ``tfidf.txt`` holds a node, a word and the word's weight. Files may be
    compressed (``.txt.xz``). The graph is undirected, without self-loops and repeats. Labels are
    renumbered from 0 in ascending order. Two of the labels 1 to 19 do not occur, so there are 17
    classes.

    Raises:
        ValueError: if a file is missing or malformed.

    Source: https://github.com/thunlp/TADW
    """
    from scipy.sparse import coo_matrix

    pairs, groups, words = need(folder, ["graph.txt", "group.txt", "tfidf.txt"])
    node, y = integers(groups, 2).T
    n = len(node)
    check_range(groups, node, 0, n)
    order = node.argsort(kind="stable")
    again = np.flatnonzero(np.diff(node[order]) == 0)
    if again.size:
        row = int(order[again + 1].min())
        raise bad_row(groups, row, "a node that has no label yet", node[row])
    label, num_classes = contiguous(groups, y[order])
    edges = integers(pairs, 2)
    check_range(pairs, edges, 0, n)
    entries = floats(words, 3)
    row, col, weight = entries.T
    check_range(words, row, 0, n)
    check_range(words, col, 0, 2**31)
    part = (entries[:, :2] % 1).any(1)
    if part.any():
        i = int(part.argmax())
        raise bad_row(words, i, "two integers and a number", entries[i].tolist())
    ids = entries[:, :2].T.astype(np.int64)
    shape = (n, int(ids[1].max()) + 1 if len(entries) else 0)
    return Graph(
        sparse_features(words, coo_matrix((weight, ids), shape=shape)),
        undirected(torch.from_numpy(edges.T), n),
        y=label,
        num_classes=num_classes,
    )


HEADER = "source,target,weight,time"


def read_bitcoin(folder: Path, name: str) -> Graph:
    """Read ``soc-sign-bitcoinotc.csv``, in which users rate other users; each rating has a time.

    The graph is directed. Nodes are renumbered from 0 in the order of their ids, and all features
    are 1. `edge_attr` holds the ratings, which are nonzero numbers from -10 to 10. `edge_time`
    holds float64 times, in seconds since 1970. Edges are sorted by time.

    Raises:
        ValueError: if a file is missing or malformed.

    Source: Kumar et al., Edge Weight Prediction in Weighted Signed Networks, ICDM 2016;
    https://snap.stanford.edu/data/soc-sign-bitcoin-otc.html
    """
    (path,) = need(folder, ["soc-sign-bitcoinotc.csv"])
    table = floats(path, 4, ",", header=HEADER)
    part = table[:, :2][table[:, :2] % 1 != 0]
    reject_if(part.size, f"{path} to have whole ids of nodes", f"{part[:1].sum():g}")
    table = table[table[:, 3].argsort(kind="stable")]
    ids, edges = np.unique(table[:, :2].T.astype(np.int64), return_inverse=True)
    return Graph(
        torch.ones(len(ids), 1),
        torch.from_numpy(edges.reshape(2, -1).astype(np.int64)),
        edge_attr=torch.from_numpy(table[:, 2:3].astype(np.float32)),
        edge_time=torch.from_numpy(table[:, 3].copy()),
    )


PARTS = ("author_label", "paper_author", "paper_conf", "paper_term")


def read_dblp_four_area(folder: Path, name: str) -> Graph:
    """Read a typed graph: papers have type 0, authors have type 1, and conferences have type 2.

    ``author_label.txt``, ``paper_author.txt``, ``paper_conf.txt`` and ``paper_term.txt`` are tables
    with two ids in each line. Nodes of a type are numbered in the order of their ids. A paper has
    one feature per word: 1 if the word is in the paper's title, otherwise 0. An author has a single
    feature, which is always 1. The features of conferences are one-hot, with one column per
    conference. Relation 0 leads from a paper to its authors, and relation 1 leads from a paper to
    its conference. Relation 2 is the reverse of relation 0, and relation 3 is the reverse of
    relation 1. The training mask contains only the authors whose area is known.

    For `fgl.nn.Hetero`, use ``columns={"paper": 8920, "author": 1, "conf":
    20}`` and the relations ``("paper", "by", "author"), ("paper", "at", "conf"), ("author",
    "rev_by", "paper"), ("conf", "rev_at", "paper")``. The features are sparse. PyG's models would
    need a dense matrix of features, which would take 1 GB.

    Raises:
        ValueError: if a file is missing or malformed.

    Source: Ji et al., Graph Regularized Transductive Classification, ECML PKDD 2010;
    https://github.com/Jhy1993/HAN
    """
    paths = need(folder, [f"{part}.txt" for part in PARTS])
    label, author, conf, term = (integers(path, 2, "\t") for path in paths)
    papers = np.unique(np.concatenate([author[:, 0], conf[:, 0], term[:, 0]]))
    authors = np.unique(author[:, 1])
    terms, words = np.unique(term[:, 1], return_inverse=True)
    confs, venues = np.unique(conf[:, 1], return_inverse=True)
    unknown = label[~np.isin(label[:, 0], authors), 0]
    reject_if(unknown.size, f"authors in {paths[0]} to have papers", f"none of {unknown[:3]}")
    areas, num_classes = contiguous(paths[0], label[:, 1])
    labelled = torch.from_numpy(np.searchsorted(authors, label[:, 0]))
    y = torch.zeros(len(authors), dtype=torch.int64).index_put((labelled,), areas)
    has_label = torch.zeros(len(authors), dtype=torch.bool).index_fill(0, labelled, True)
    where = _pairs(papers, term[:, 0], words)
    x = SparseMatrix.from_entries(where[0], where[1], (len(papers), len(terms)))
    return typed_graph(
        {"paper": x, "author": len(authors), "conf": torch.eye(len(confs))},
        {
            ("paper", "by", "author"): _pairs(
                papers, author[:, 0], np.searchsorted(authors, author[:, 1])
            ),
            ("paper", "at", "conf"): _pairs(papers, conf[:, 0], venues),
        },
        both=True,
        y={"author": y},
        num_classes=num_classes,
        train_mask={"author": has_label},
    )


def _pairs(ids: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64]) -> Tensor:
    """Pairs of indices ``[2, *]``.

    Row 0 contains the position of each id of `first` in the sorted array `ids`. Row 1 contains the
    indices of `second`, unchanged.
    """
    return torch.from_numpy(np.stack([np.searchsorted(ids, first), second.reshape(-1)]))

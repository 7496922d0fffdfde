"""Reader of DBLP's four areas (Ji et al. 2010): papers, authors, conferences and words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...graph import Graph
from ...sparse import SparseMatrix
from ..typed import typed_graph
from .parsing import contiguous, integers
from .paths import need

PARTS = ("author_label", "paper_author", "paper_conf", "paper_term")


def read_dblp_four_area(folder: Path, name: str) -> Graph:
    """Papers (type 0), authors (1) and conferences (2), as a typed graph.

    Tables of two ids a line: ``author_label.txt``, ``paper_author.txt``, ``paper_conf.txt``,
    ``paper_term.txt``. Nodes of a type are numbered in the order of their ids. A paper's features
    are the words of its title, 0 or 1; authors have a column of ones, conferences a column each.
    Relations 0 and 1 lead from a paper to its authors and to its conference, 2 and 3 back. The
    authors with an area, and they alone, are in the training mask.

    For `fgl.nn.Hetero`: ``columns={"paper": 8920, "author": 1, "conf": 20}``, and relations
    ``("paper", "by", "author"), ("paper", "at", "conf"), ("author", "rev_by", "paper"),
    ("conf", "rev_at", "paper")``. Features are sparse; dense, for models of PyG, they take 1 GB.

    Raises:
        ValueError: for a missing or malformed file.

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
    if unknown.size:
        raise ValueError(
            f"Expected authors in {paths[0]} to have papers, but {unknown[0]} has none"
        )
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
    """Pairs ``[2, *]``: the place of each first id among `ids`, and the second id unchanged."""
    return torch.from_numpy(np.stack([np.searchsorted(ids, first), second.reshape(-1)]))

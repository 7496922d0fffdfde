"""Reader of OGB's raw folders, such as ogbn-arxiv, ogbg-molhiv and ogbl-collab."""

import pickle
import warnings
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...checks import check_index, check_length, reject_if
from ...graph import Graph
from ...graph.fields import masks_of
from ...progress import shown
from ..features import one_hot_degree
from ..splits.reverses import all_reversed
from ..undirected import undirected
from .matrices import check_size, checked_ids, checked_labels, dense_features
from .parsing import need, readable, warn_unread
from .pickles import read_pickle

FILES = ("num-node-list", "num-edge-list", "edge")
EDGE_FILES = {"edge-feat": "edge_attr", "edge_weight": "edge_weight", "edge_year": "edge_time"}
KNOWN = (*FILES, "node-feat")
ROLES = ("train", "valid", "test")
PAIRS = {"edge": 2, "edge_neg": 2, "source_node": 1, "target_node": 1, "target_node_neg": None}


def read_ogb(folder: Path, _: str = "", *, ignore: Collection[str] = ()) -> Graph:
    """Read OGB's gzipped text files from the folder ``raw`` and the folder ``split`` next to it.

    ``num-node-list.csv.gz`` and ``num-edge-list.csv.gz`` hold the numbers of nodes and of edges of
    each graph. Each line of ``edge.csv.gz`` holds a source and a target, and each line of
    ``node-feat.csv.gz`` holds the features of a node. Rows are read one after the other, so reading
    needs little more memory than the graph itself. A warning names the tables in the folder that
    are not read, except ``node_year``, the table from which OGB's authors derived the split of
    ogbn-arxiv.

    If ``node-label.csv.gz`` exists (ogbn), the folder holds one graph, and each line of
    ``node-label.csv.gz`` is the class of one node. The files
    ``split/NAME/{train,valid,test}.csv.gz`` hold the ids of the nodes in each mask. NAME is
    ``time`` for ogbn-arxiv and ``sales_ranking`` for ogbn-products. The graph is undirected,
    without self-loops and repeats.

    If ``graph-label.csv.gz`` exists (ogbg), the graphs become one collection with a `batch`. In
    that case the split consists of ids of graphs. Labels are classes if they form a single column
    of non-negative integers. All other labels are float targets. An empty field becomes NaN. If
    ``split/NAME/{train,valid,test}.pt`` exist (ogbl), the examples are pairs. These files, and
    OGB's ``split_dict.pt``, hold tensors or NumPy's arrays; no pickle is run. The pairs of
    ``edge_neg`` and ``target_node_neg`` have label 0, and all other pairs have label 1. Repeated
    edges are kept. Edges get fields from ``edge-feat``, ``edge_weight`` and ``edge_year``. If the
    files of pairs have no ``source_node``, the graph gets both directions of each edge.

    Args:
        folder: the folder ``raw``.
        ignore: names of tables that the warning should not mention, such as ``"node_year"``. If
            `ignore` contains a table of negative pairs, such as ``"edge_neg"``, the pairs of this
            table are left out. If `ignore` contains ``"split_dict.pt"``, the split in this file is
            not read.

    Raises:
        ValueError: if a file is missing or malformed, if there are several graphs and nodes have
            labels, if there are several splits, or if the pickle of a split has objects that are
            neither tensors nor arrays of numbers.

    Source: https://ogb.stanford.edu/docs/nodeprop/ and https://github.com/snap-stanford/ogb
    """
    split = (folder.parent if folder.name == "raw" else folder) / "split"
    of_pairs = _only(split, "train.pt")
    if (folder / "graph-label.csv.gz").is_file():
        return _collection(folder, split, ignore)
    if of_pairs is not None:
        return _of_pairs(folder, of_pairs, ignore)
    labels = need(folder, [f"{name}.csv.gz" for name in (*KNOWN, "node-label")])[-1]
    fields, (n,) = _fields(folder, ("node-label", "node_year"), ignore, {}, one=True)
    y = _table(labels, np.int64, 1)[:, 0]
    check_size(labels, len(y), n, "labels")
    fields |= {"edge_index": undirected(fields["edge_index"], n), **_masks(split, n, ignore)}
    return Graph(**fields, y=checked_labels(str(labels), y, n))


def _collection(folder: Path, split: Path, ignore: Collection[str]) -> Graph:
    """The graphs of a folder as one collection; each graph has one label or several labels."""
    fields, num_nodes = _fields(folder, ("graph-label",), ignore, EDGE_FILES)
    labels = folder / "graph-label.csv.gz"
    try:
        y = _table(labels, np.int64, None)
    except ValueError:  # floats, or unknown values
        y = _table(labels, np.float32, None, gaps=True)
    check_size(labels, len(y), len(num_nodes), "labels")
    y = y[:, 0] if y.shape[1] == 1 else y
    classes = y.ndim == 1 and y.dtype == np.int64 and bool((y >= 0).all())
    fields["y"] = torch.from_numpy(y if classes else y.astype(np.float32))
    fields["batch"] = torch.arange(len(num_nodes)).repeat_interleave(torch.from_numpy(num_nodes))
    return Graph(**fields, **_masks(split, len(num_nodes), ignore))


def _of_pairs(folder: Path, split: Path, ignore: Collection[str]) -> Graph:
    """Read an ogbl folder: the graph, and the training, validation and test pairs."""
    paths = need(split, [f"{role}.pt" for role in ROLES])
    contents = [_tensors(path, ignore) for path in paths]
    directed = "source_node" in contents[0]
    fields, (n,) = _fields(folder, (), ignore, EDGE_FILES, directed=directed, one=True)
    parts = [_pairs_in(*each, n) for each in zip(paths, contents, strict=True)]
    warn_unread(split, (name for each in contents for name in each if name not in PAIRS), ())
    fields["edge_label_index"] = torch.cat([pairs for pairs, _ in parts], 1)
    fields["y"] = torch.cat([y for _, y in parts])
    own = torch.arange(len(fields["y"])).split([len(y) for _, y in parts])
    fields |= masks_of(own, len(fields["y"]))
    return Graph(**fields)


def _tensors(path: Path, ignore: Collection[str]) -> dict[str, Tensor]:
    """Read tensors or arrays from a file of `torch.save`; raise an error for anything else."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Detected pickle protocol")  # read below
            content = torch.load(path, "cpu", weights_only=True)
    except pickle.UnpicklingError:
        content = _arrays(path)
    except (RuntimeError, EOFError) as error:
        raise ValueError(f"Expected {path} to be a file of torch.save, but got {error}") from error
    tensors = isinstance(content, dict) and all(isinstance(v, Tensor) for v in content.values())
    reject_if(not tensors, f"{path} to hold only tensors by name", type(content).__name__)
    return {name: value for name, value in content.items() if name not in ignore}


def _arrays(path: Path) -> dict[str, Tensor]:
    """Read the NumPy arrays in a file that `torch.save` wrote; the file's pickle is not run."""
    way = "torch.save(content, file) by its own pickle_protocol writes these"
    expected = f"{path} to hold only tensors, or only NumPy's arrays of numbers ({way})"
    with readable(expected), path.open("rb") as file:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
                content = read_pickle(archive.read(names[0]))
        else:  # before torch 1.6: a number, a version and the system's sizes come first
            file.seek(0)
            content = [read_pickle(file) for _ in range(4)][-1]
        return {
            name: torch.from_numpy(array.astype(np.int64 if array.dtype.kind in "iu" else float))
            for name, array in content.items()
        }


def _pairs_in(path: Path, content: dict[str, Tensor], num_nodes: int) -> tuple[Tensor, Tensor]:
    """The pairs in a file, ``[2, n]``, and their labels; pairs with label 1 come first."""
    for name in PAIRS.keys() & content.keys():
        shape = (None,) if PAIRS[name] == 1 else (None, PAIRS[name])
        check_index(f"{name} in {path}", content[name], shape, num_nodes)
    if "edge" in content:
        true = content["edge"]
        false = content.get("edge_neg", true[:0])
    elif {"source_node", "target_node"} <= content.keys():
        source, target = content["source_node"], content["target_node"]
        others = content.get("target_node_neg", target.new_empty(len(target), 0))
        check_length(len(source), target_node=target)
        check_size(path, len(others), len(source), "rows of target_node_neg")
        true = torch.stack([source, target], 1)
        false = torch.stack([source[:, None].expand_as(others), others], 2).flatten(0, 1)
    else:
        raise ValueError(
            f"Expected {path} to hold edge, or source_node and target_node, but got {[*content]}: "
            "fgl.data.load_triples reads a knowledge graph from text"
        )
    return torch.cat([true, false]).T, torch.arange(len(true) + len(false)).lt(len(true)).float()


def _fields(
    folder: Path,
    others: Collection[str],
    ignore: Collection[str],
    edge_files: dict[str, str],
    *,
    directed: bool = False,
    one: bool = False,
) -> tuple[dict[str, Any], NDArray[np.int64]]:
    """Join the fields of a folder's graphs into one graph; also return each graph's node count.

    If `edge_files` is empty, the edges are exactly the edges in ``edge.csv.gz``. Otherwise edges
    get the fields that `edge_files` names, and the reverse of each edge is added. Reverses are not
    added if `directed` is True, or if every edge in the files has its reverse.
    """
    tables = [file.name.removesuffix(".csv.gz") for file in sorted(folder.glob("*.csv.gz"))]
    read = {*KNOWN, *others, *edge_files}
    warn_unread(folder, (name for name in tables if name not in read), ignore)
    sizes, counts, ends = need(folder, [f"{name}.csv.gz" for name in FILES])
    num_nodes, num_edges = (_counts(path, one) for path in (sizes, counts))
    check_size(counts, len(num_edges), len(num_nodes), "rows")
    edge_index = _edges(ends, num_nodes, num_edges)
    total, copies = int(num_nodes.sum()), 1
    source, target = edge_index
    if edge_files and not directed:
        copies = 1 if all_reversed((source * total + target).unique(), total) else 2
    if copies == 2:
        edge_index = torch.stack([edge_index, edge_index.flip(0)], 2).flatten(1)
    fields: dict[str, Any] = {"edge_index": edge_index}
    for name, field in {"node-feat": "x", **edge_files}.items():
        path = folder / f"{name}.csv.gz"
        if path.is_file():
            size, times = (total, 1) if field == "x" else (len(source), copies)
            values = _values(path, size, of_times=field == "edge_time")
            values = values.repeat_interleave(times, 0) if times > 1 else values
            fields[field] = values if "feat" in name else values[:, 0]
    fields.setdefault("x", one_hot_degree(edge_index, total))
    return fields, num_nodes


def _values(path: Path, size: int, *, of_times: bool) -> Tensor:
    """The numbers of a file; times are integers, since float32 rounds large integers."""
    if of_times:
        values = torch.from_numpy(_table(path, np.int64, 1))
    else:
        values = dense_features(path, _table(path, np.float32, None))
    check_size(path, len(values), size, "rows")
    return values


def _edges(path: Path, num_nodes: NDArray[np.int64], num_edges: NDArray[np.int64]) -> Tensor:
    """All graphs' edges, ``[2, num_edges]``; in the file, each graph's first node has id 0."""
    pairs = _table(path, np.int64, 2)
    check_size(path, len(pairs), int(num_edges.sum()), "edges")
    sizes, first = num_nodes[:, None], (num_nodes.cumsum() - num_nodes)[:, None]
    if len(num_nodes) > 1:
        sizes, first = sizes.repeat(num_edges, 0), first.repeat(num_edges, 0)
    outside = (pairs < 0) | (pairs >= sizes)
    if outside.any():
        between = f"[0, {np.broadcast_to(sizes, pairs.shape)[outside][0]})"
        raise ValueError(f"Expected {path} to be in {between}, but got {pairs[outside][0]}")
    pairs += first
    return torch.from_numpy(np.ascontiguousarray(pairs.T))


def _masks(folder: Path, num_examples: int, ignore: Collection[str]) -> dict[str, Any]:
    """The masks of the only split in a folder; an empty dict if the folder has no split."""
    where = _only(folder, "train.csv.gz")
    saved = _only(folder, "split_dict.pt")
    if where is not None:
        paths = need(where, [f"{role}.csv.gz" for role in ROLES])
        ids = {path: torch.from_numpy(_table(path, np.int64, 1)[:, 0]) for path in paths}
    elif saved is not None and "split_dict.pt" not in ignore:
        where, path = saved, saved / "split_dict.pt"
        split = _tensors(path, ())
        reject_if({*split} != {*ROLES}, f"{path} to hold {ROLES}", [*split])
        ids = {path / role: split[role] for role in ROLES}
    else:
        return {}
    parts = [checked_ids(str(path), own, (None,), num_examples) for path, own in ids.items()]
    return masks_of(parts, num_examples)


def _only(folder: Path, file: str) -> Path | None:
    """The split that has this file, or None; an error if several splits have the file."""
    splits = sorted(path.parent for path in folder.glob(f"*/{file}"))
    expected = f"{folder} to hold one split"
    reject_if(len(splits) > 1, expected, ", ".join(path.name for path in splits))
    return splits[0] if splits else None


def _counts(path: Path, one: bool) -> NDArray[np.int64]:
    """For each graph, the number of nodes or the number of edges, as the file states it."""
    table = _table(path, np.int64, 1)[:, 0]
    wrong = (one and len(table) != 1) or table.min() < 0
    what = "the size of one graph" if one else "sizes of graphs"
    reject_if(wrong, f"{path} to hold {what}", table[:3].tolist())
    return table


def _number(text: str) -> float:
    """A number, or NaN for an empty field.

    If a line consists of one empty field, pandas writes the field with quotes.
    """
    return float(text.strip('"') or "nan")


def _table(
    path: Path, dtype: type[Any], columns: int | None, *, gaps: bool = False
) -> NDArray[Any]:
    """Read a table of numbers with NumPy, which can decompress it; `gaps` allows empty fields."""
    long = path.stat().st_size > 50_000_000
    parse: dict[str, Any] = {"converters": _number, "encoding": "utf-8"} if gaps else {}
    rows = readable(f"{path} to be rows of {np.dtype(dtype).name}")
    with warnings.catch_warnings(), shown(f"reading {path.name}", long=long), rows:
        warnings.simplefilter("error")  # for an empty file, or a float among integers
        table = np.loadtxt(path, dtype, None, ",", ndmin=2, **parse)
    width = table.shape[1]
    reject_if(columns not in (None, width), f"{path} to have {columns} columns", width)
    return table

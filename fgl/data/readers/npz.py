"""Readers of NumPy archives: gnn-benchmark, the heterophilous graphs, and GraphSAINT."""

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...checks import reject_if
from ...graph import MASKS, Graph
from ...graph.fields import masks_of
from ...sparse import SparseMatrix
from ..features import one_hot_degree
from ..undirected import directed, undirected
from . import matrices
from .parsing import need, read_json, readable, warn_unread

Arrays = dict[str, NDArray[Any]]
CSR = ("data", "indices", "indptr", "shape")
NAMES = re.compile(r".*(_names|_to_.*)|metadata.*|type|name")  # of gnn-benchmark, and of GraphData
ROLES = ("train_masks", "val_masks", "test_masks")
HETEROPHILOUS = ("node_features", "node_labels", "edges", *ROLES)


def read_npz(
    folder: Path, name: str, *, split: int | None = None, ignore: Collection[str] = ()
) -> Graph:
    """Read ``NAME.npz`` of gnn-benchmark: CSR matrices ``adj_*`` and ``attr_*``, and ``labels``.

    An archive with ``node_features`` has the layout of the heterophilous graphs: ``node_features``
    are dense, and the archive also has ``node_labels``, ``edges [m, 2]``, ``train_masks``,
    ``val_masks`` and ``test_masks``. In each array of masks, row i is the mask of split i. `split`
    selects the split. The default is the first split. The graph is directed if `name` ends with
    ``_directed``.

    In the layout of gnn-benchmark, features may be sparse (``attr_*``), dense (``attr_matrix``) or
    missing. Missing features are replaced by one-hot degrees with 64 columns. The last of these
    columns means a degree of 63 or more. The graph is undirected, without self-loops and repeats.
    Edge weights, other arrays, and arrays that need pickle are not read. A warning names the unread
    arrays. The warning leaves out arrays that contain names of nodes, features or classes, and the
    arrays in `ignore`. In `ignore`, ``"adj_data"`` means the edge weights.

    Raises:
        ValueError: if the file is missing or malformed, or if the file does not have the requested
            split.

    Source: https://github.com/shchur/gnn-benchmark;
    https://github.com/yandex-research/heterophilous-graphs
    """
    (path,) = need(folder, [f"{name}.npz"])
    keys = [f"{prefix}_{part}" for prefix in ("adj", "attr") for part in CSR]
    names = [*keys, "attr_matrix", "labels", *HETEROPHILOUS]
    arrays, others = _load(path, names)
    layouts = f"{path} to hold adj_data, attr_data and labels, or node_features and edges"
    reject_if(not arrays, layouts, others or "nothing")
    unread = [*(key for key in others if not NAMES.fullmatch(key)), *_weights(arrays, "adj_data")]
    if "node_features" in arrays:
        graph = _heterophilous(path, arrays, name.endswith("_directed"), split or 0)
        warn_unread(path, unread, ignore)
        return graph
    reject_if(split is not None, f"split to be left out for {path}, which holds none", split)
    edges, n = _edges(path, arrays, "adj_")
    x = _features(path, arrays, edges, n)
    labels = matrices.checked_labels(f"labels in {path}", _one(path, arrays, "labels"), n)
    warn_unread(path, unread, ignore)
    return Graph(x, edges, y=labels)


def _features(path: Path, arrays: Arrays, edges: Tensor, n: int) -> Tensor | SparseMatrix:
    """The sparse or dense features in an archive of gnn-benchmark, or one-hot degrees."""
    if any(f"attr_{part}" in arrays for part in CSR):
        matrix = _csr(path, arrays, "attr_")
        matrices.check_size(path, matrix.shape[0], n, "rows of features")
        return matrices.sparse_features(path, matrix)
    if "attr_matrix" not in arrays:
        return one_hot_degree(edges, n)
    what, matrix = f"attr_matrix in {path}", arrays["attr_matrix"]
    return matrices.dense_features(path, matrices.checked_array(what, matrix, "biuf", (n, None)))


def _heterophilous(path: Path, arrays: Arrays, is_directed: bool, split: int) -> Graph:
    """Build one of the heterophilous graphs from its archive, with one of the archive's splits."""
    features, labels, edges, *roles = (_one(path, arrays, key) for key in HETEROPHILOUS)
    x = matrices.checked_array(f"node_features in {path}", features, "biuf", (None, None))
    n, splits = len(x), roles[0].shape[:1]
    ends = matrices.checked_ids(f"edges in {path}", edges, (None, 2), n)
    masks = [
        matrices.checked_masks(f"{key} in {path}", role, (*splits, n))
        for key, role in zip(ROLES, roles, strict=True)
    ]
    count = len(masks[0])
    reject_if(not 0 <= split < count, f"split to be in [0, {count}) for {path}", split)
    return Graph(
        matrices.dense_features(path, x),
        directed(ends, n) if is_directed else undirected(ends, n),
        y=matrices.checked_labels(f"node_labels in {path}", labels, n),
        **{name: mask[split] for name, mask in zip(MASKS, masks, strict=True)},  # type: ignore[arg-type]
    )


def read_saint(folder: Path, name: str, *, ignore: Collection[str] = ()) -> Graph:
    """Read GraphSAINT's ``adj_full.npz``, ``feats.npy``, ``class_map.json`` and ``role.json``.

    The files contain, in this order, a SciPy CSR matrix, dense features, one class per node, and
    the ids of training (``tr``), validation (``va``) and test nodes (``te``). The masks mark the
    nodes with these ids. The graph is undirected, without self-loops and repeats. Edge weights are
    not read. A warning is given, unless `ignore` contains ``"data"``. Pickle is not used.

    Raises:
        ValueError: if a file is missing or malformed, or if a node has more than one class.

    Source: https://github.com/GraphSAINT/GraphSAINT
    """
    files = ["adj_full.npz", "feats.npy", "class_map.json", "role.json"]
    adj, feats, class_map, role = need(folder, files)
    arrays = _load(adj, CSR)[0]
    edges, n = _edges(adj, arrays, "")
    with readable(f"{feats} to hold arrays that need no pickle"):
        matrix = np.load(feats, allow_pickle=False)
    matrix = matrices.checked_array(str(feats), matrix, "biuf", (n, None))
    classes = read_json(class_map)
    wrong = not isinstance(classes, dict) or {*classes} != {str(node) for node in range(n)}
    reject_if(wrong, f"{class_map} to map the nodes 0 to {n - 1}", "other keys")
    labels = matrices.checked_labels(str(class_map), [classes[str(node)] for node in range(n)], n)
    roles = read_json(role)
    parts = []
    for key in ("tr", "va", "te"):
        if not isinstance(roles, dict) or key not in roles:
            raise ValueError(f"Expected {role} to have 'tr', 'va' and 'te', but got no {key!r}")
        parts.append(matrices.checked_ids(f"{key!r} in {role}", roles[key], (None,), n))
    masks: dict[str, Any] = masks_of(parts, n)
    warn_unread(adj, _weights(arrays, "data"), ignore)
    return Graph(matrices.dense_features(feats, matrix), edges, y=labels, **masks)


def _load(path: Path, keys: Sequence[str]) -> tuple[Arrays, list[str]]:
    """The requested arrays of an archive, and the names of all arrays that are not requested."""
    whole = readable(f"{path} to hold arrays that need no pickle")
    with whole, path.open("rb") as content, np.load(content, allow_pickle=False) as file:
        others = [key for key in file.files if key not in keys]
        return {key: file[key] for key in keys if key in file}, others


def _weights(arrays: Arrays, name: str) -> list[str]:
    """Return ``[name]`` if the array's nonzero weights differ, and otherwise an empty list."""
    data = arrays.get(name)
    if data is None or data.dtype.kind not in "iuf":
        return []
    weights = data[data != 0]
    return [name] if weights.size and bool((weights != weights[0]).any()) else []


def _one(path: Path, arrays: Arrays, key: str) -> NDArray[Any]:
    reject_if(key not in arrays, f"{path} to hold {key}", ", ".join(arrays) or "nothing")
    return arrays[key]


def _csr(path: Path, arrays: Arrays, prefix: str) -> Any:
    parts = [_one(path, arrays, f"{prefix}{part}") for part in CSR]
    kinds = ("biuf", "iu", "iu", "iu")
    data, indices, indptr, shape = (
        matrices.checked_array(f"{prefix}{part} in {path}", array, kind, (None,))
        for part, kind, array in zip(CSR, kinds, parts, strict=True)
    )
    return matrices.checked_csr(path, data, indices, indptr, tuple(shape.tolist()))


def _edges(path: Path, arrays: Arrays, prefix: str) -> tuple[Tensor, int]:
    """Undirected edges of an adjacency matrix, and the number of nodes."""
    matrix = _csr(path, arrays, prefix)
    reject_if(matrix.shape[0] != matrix.shape[1], f"{path} to hold a square matrix", matrix.shape)
    matrix.eliminate_zeros()  # an explicit zero is an absent edge
    pairs = matrix.tocoo()
    edges = np.stack([pairs.row, pairs.col]).astype(np.int64)
    return undirected(torch.from_numpy(edges), matrix.shape[0]), matrix.shape[0]

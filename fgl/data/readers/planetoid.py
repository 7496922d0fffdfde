"""Reader of the Planetoid format (Yang et al. 2016): eight files ``ind.NAME.*``."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...checks import reject_if
from ...graph import Graph
from ...graph.fields import masks_of
from ...sparse import SparseMatrix
from ..undirected import undirected
from .matrices import check_inside, checked_csr
from .parsing import need, readable
from .pickles import read_pickle

PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
NUM_VAL = 500


def read_planetoid(folder: Path, name: str) -> Graph:
    """Read the graph in ``folder/ind.NAME.*``; the result equals the result of PyG's reader.

    The graph is undirected, without self-loops and repeated edges. If an id is missing from
    ``test.index`` (15 ids in CiteSeer), its node has only zeros as features, has class 0, and is in
    no mask.

    Raises:
        ValueError: if a file is missing or malformed.

    Source: https://github.com/kimiyoung/planetoid
    """
    paths = dict(zip(PARTS, need(folder, [f"ind.{name}.{part}" for part in PARTS]), strict=True))
    x, tx, allx = (_features(paths[part]) for part in ("x", "tx", "allx"))
    y, ty, ally = (_array(paths[part], _unpickle(paths[part]), 2) for part in ("y", "ty", "ally"))
    for features, labels, part in ((x, y, "y"), (tx, ty, "ty"), (allx, ally, "ally")):
        same = (features.shape[0], allx.shape[1], ally.shape[1])
        sizes = (labels.shape[0], features.shape[1], labels.shape[1])
        expected = f"{paths[part]} and its features to have (rows, features, classes) {same}"
        reject_if(sizes != same, expected, sizes)
    num_known = allx.shape[0]
    expected = f"{paths['y']} to have at most {num_known} rows, as ally"
    reject_if(len(y) > num_known, expected, len(y))
    edges, num_listed = _edges(paths["graph"])
    n = max(num_known + tx.shape[0], num_listed)
    check_inside(paths["graph"], edges, 0, n)
    test = _test_index(paths["test.index"], tx.shape[0], num_known, n)

    node = np.concatenate([np.arange(num_known), test])  # node of each row of allx, then of tx
    onehot = np.zeros((n, ally.shape[1]), np.float32)
    onehot[node] = np.concatenate([ally, ty])
    train, others = torch.arange(len(y)), torch.arange(len(y), num_known)
    parts = train, others[:NUM_VAL], torch.from_numpy(test)
    masks: dict[str, Any] = masks_of(parts, n)
    return Graph(
        _stack(allx, tx, node, n),
        undirected(torch.from_numpy(edges), n),
        torch.from_numpy(onehot.argmax(1)),
        ally.shape[1],
        **masks,
    )


def _unpickle(path: Path) -> Any:
    with readable(f"{path} to be a pickle of arrays, csr_matrix or lists"):
        return read_pickle(path.read_bytes())


def _array(path: Path, value: object, dim: int) -> NDArray[Any]:
    if not isinstance(value, np.ndarray) or value.ndim != dim or value.dtype.kind not in "biuf":
        got = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value)
        raise ValueError(f"Expected {path} to hold arrays of {dim} dimensions, but got {got}")
    return value


def _features(path: Path) -> Any:
    """Read features as a SciPy csr_matrix."""
    from scipy.sparse import csr_matrix

    value = _unpickle(path)
    if not isinstance(value, SimpleNamespace):
        return csr_matrix(_array(path, value, 2))
    fields = vars(value)
    data, indices, indptr = (
        _array(path, fields.get(name), 1) for name in ("data", "indices", "indptr")
    )
    shape = fields.get("_shape")
    wrong = not isinstance(shape, tuple) or [type(size) for size in shape] != [int, int]
    reject_if(wrong, f"{path} to hold a csr_matrix", "one without a shape")
    return checked_csr(path, data, indices, indptr, shape)


def _stack(allx: Any, tx: Any, node: NDArray[np.int64], num_nodes: int) -> SparseMatrix:
    """Sort the rows of `allx` and `tx` by node id; the result has one row of features per node."""
    from scipy.sparse import coo_matrix, vstack

    rows = vstack([allx, tx]).tocoo()
    shape = (num_nodes, allx.shape[1])
    matrix = coo_matrix((rows.data, (node[rows.row], rows.col)), shape=shape).tocsr()
    matrix.eliminate_zeros()
    return SparseMatrix.from_scipy(matrix)


def _edges(path: Path) -> tuple[NDArray[np.int64], int]:
    """Pairs of a node and a listed neighbour, int64 ``[2, *]``, and the number of listed nodes."""
    graph = _unpickle(path)
    wrong = not isinstance(graph, dict) or not all(isinstance(v, list) for v in graph.values())
    reject_if(wrong, f"{path} to map nodes to lists", "something else")
    if sum(map(len, graph.values())) > path.stat().st_size:  # one list is stored for many keys
        raise ValueError(f"Expected {path} to list each edge once, but got more than its bytes")
    ids = [*graph, *(target for targets in graph.values() for target in targets)]
    if not all(type(node) is int and abs(node) < 2**31 for node in ids):
        raise ValueError(f"Expected {path} to name nodes by integers, but got something else")
    nodes = np.array(ids, np.int64)
    counts = [len(targets) for targets in graph.values()]
    return np.stack([np.repeat(nodes[: len(graph)], counts), nodes[len(graph) :]]), len(graph)


def _test_index(path: Path, size: int, low: int, high: int) -> NDArray[np.int64]:
    """Node id of each row of tx: `size` distinct ids, at least `low` and below `high`."""
    words = path.read_bytes().split()
    wrong = not all(word.isdigit() and len(word) < 19 for word in words)
    reject_if(wrong, f"{path} to hold one node id a line", "something else")
    index = np.array([int(word) for word in words], np.int64)
    distinct, lines = len(np.unique(index)), len(index)
    got = f"{distinct} in {lines} lines"
    reject_if({distinct, lines} != {size}, f"{path} to hold {size} different ids", got)
    check_inside(path, index, low, high)
    return index

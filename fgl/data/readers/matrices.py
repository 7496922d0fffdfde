"""Checks of arrays, sparse matrices and masks that were read from files."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...checks import has_shape, reject_if
from ...sparse import SparseMatrix
from .parsing import readable

COLUMNS = 2**31  # a file with more columns is malformed, and no model could read them


def check_columns(name: str, columns: int) -> None:
    """Raise a ValueError if there are more than `COLUMNS` columns of features."""
    reject_if(columns > COLUMNS, f"{name} to have at most {COLUMNS} columns", columns)


def checked_csr(path: Path, data: Any, indices: Any, indptr: Any, shape: Any) -> Any:
    """Build a SciPy csr_matrix from a file's arrays; raise an error if an index is invalid."""
    from scipy.sparse import csr_matrix

    check_columns(str(path), max(shape, default=0))
    with readable(f"{path} to hold a csr_matrix"):
        matrix = csr_matrix((data, indices, indptr), shape=shape)
        matrix.check_format(full_check=True)
    return matrix


def checked_array(name: str, value: Any, kinds: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
    """Convert a value to an array that must have the shape `shape` and a dtype kind in `kinds`."""
    with readable(f"{name} to be an array"):  # rows of different lengths are none
        array = np.asarray(value)
    # An empty list has no dtype, so NumPy makes it float.
    fits = has_shape(array, shape) and (array.dtype.kind in kinds or not array.size)
    want = ["*" if size is None else size for size in shape]
    what = {"biu": "bool or 0/1", "iu": "integers", "biuf": "numbers"}[kinds]
    reject_if(not fits, f"{name} to be {what} {want}", f"{array.dtype} {list(array.shape)}")
    return array


def checked_labels(name: str, value: Any, num_nodes: int) -> Tensor:
    """Labels of nodes, int64 ``[num_nodes]``; `Graph` refuses labels below 0."""
    return torch.from_numpy(checked_array(name, value, "iu", (num_nodes,)).astype(np.int64))


def check_size(path: Path, size: int, expected: int, what: str) -> None:
    """Raise a ValueError unless a file has the expected number of items."""
    reject_if(size != expected, f"{path} to have {expected} {what}", size)


def check_inside(name: object, numbers: NDArray[Any], low: int, high: int) -> None:
    """Raise a ValueError unless all numbers are at least `low` and below `high`."""
    out = (numbers < low) | (numbers >= high)
    if out.any():
        raise ValueError(f"Expected {name} to be in [{low}, {high}), but got {numbers[out][0]}")


def checked_ids(name: str, value: Any, shape: tuple[int | None, ...], bound: int) -> Tensor:
    """Convert ids to int64 and transpose pairs ``[*, 2]``; ids must be in ``[0, bound)``."""
    ids = checked_array(name, value, "iu", shape).astype(np.int64)
    check_inside(name, ids, 0, bound)
    return torch.from_numpy(np.ascontiguousarray(ids.T))


def checked_masks(name: str, value: Any, shape: tuple[int | None, ...]) -> Tensor:
    """Masks that are stored as booleans, or as 0 and 1."""
    array = checked_array(name, value, "biu", shape)
    other = array[array.astype(bool) != array]
    reject_if(other.size, f"{name} to be 0 or 1", other[:1])
    return torch.from_numpy(array.astype(bool))


def sparse_features(path: Path, matrix: Any) -> SparseMatrix:
    """Convert a SciPy matrix to float32 without explicit zeros."""
    csr = matrix.tocsr()
    csr.data = _finite(path, csr.data)
    csr.eliminate_zeros()
    return SparseMatrix.from_scipy(csr)


def dense_features(path: Path, array: NDArray[Any]) -> Tensor:
    """Convert a dense matrix to float32."""
    return torch.from_numpy(np.ascontiguousarray(_finite(path, array)))


def _finite(path: Path, values: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        values = values.astype(np.float32)
    bad = values.size - np.isfinite(values).sum()
    reject_if(bad, f"the features in {path} to be finite as float32", f"{bad} that are not")
    return values

"""A client's folder: the arrays of the client's graph, and a list of their shapes and checksums."""

import hashlib
import json
import math
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import check_number, reject_if
from ..graph import Graph
from ..graph.fields import FIELDS as TABLE
from ..graph.fields import present
from ..sparse import SparseMatrix
from ..sparse.pattern import Pattern
from .download import replacing
from .readers.matrices import check_columns
from .readers.parsing import read_json, readable

LIST = "client.json"
VERSION = 1
SPARSE = ("x_indptr", "x_indices", "x_values")
FIELDS = (*TABLE, "y", "batch", "edge_label_index")
KNOWN = ("x", *SPARSE, "edge_index", *FIELDS)


def save_client(graph: Graph, folder: str | os.PathLike[str]) -> Path:
    """Write a client's graph to a folder.

    `numpy.save` writes each tensor to a file ``NAME.npy``, without pickle. ``client.json`` is
    written last; it lists the dtype, shape and SHA-256 of each file. Sparse features are stored as
    three arrays, ``x_indptr``, ``x_indices`` and ``x_values``, in SciPy's CSR layout.

    Args:
        graph: the client's graph, on the CPU or a GPU.
        folder: the folder. A missing folder is created. Existing files are replaced if they have
            the names of the new files.

    Returns:
        The folder.

    Raises:
        OSError: if a file cannot be written.
        ValueError: if a tensor has a dtype that NumPy lacks (bfloat16). In that case no file is
            written.

    Example:
        >>> import tempfile
        >>> graph = fgl.Graph(torch.eye(3), torch.tensor([[0], [1]]), y=torch.tensor([0, 1, 1]))
        >>> with tempfile.TemporaryDirectory() as place:
        ...     sorted(path.name for path in save_client(graph, place).iterdir())
        ['client.json', 'edge_index.npy', 'x.npy', 'y.npy']
    """
    folder, tensors, arrays = Path(folder), _tensors(graph), {}
    for name, tensor in tensors.items():
        expected = f"{name} to be of a dtype that NumPy has, such as float16 or float32"
        reject_if(tensor.dtype == torch.bfloat16, expected, tensor.dtype)
    for name, tensor in tensors.items():
        path, array = folder / f"{name}.npy", tensor.detach().cpu().numpy()
        with replacing(path) as file:
            np.save(file, array, allow_pickle=False)
        arrays[name] = {
            "file": path.name,
            "dtype": array.dtype.name,
            "shape": list(array.shape),
            "sha256": _sha256(path),
        }
    about: dict[str, Any] = {"format": "fgl client", "version": VERSION}
    about["num_classes"] = graph.num_classes
    if isinstance(graph.x, SparseMatrix):
        about["num_features"] = graph.num_features
    with replacing(folder / LIST) as file:
        file.write(json.dumps({**about, "arrays": arrays}, indent=1).encode() + b"\n")
    return folder


def open_client(
    folder: str | os.PathLike[str], *, mapped: bool = False, check: bool = True
) -> Graph:
    """Read a client's graph from the client's folder.

    Args:
        folder: a folder that `save_client` wrote, or a folder with the layout that `save_client`
            uses.
        mapped: whether dense features are mapped to memory, as by `map_features`. If True, the
            features stay on disk, and the operating system loads only the parts that are used.
            Changes to `x` are not written to the file.
        check: whether to verify the SHA-256 of the files, which requires reading every file once.

    Raises:
        FileNotFoundError: if ``client.json`` is missing, or if a file listed in it is missing.
        ValueError: if ``client.json`` cannot be read or has a newer version, if a file is not a
            regular file, or if the arrays do not form a valid `Graph`. A ValueError is also raised
            if a file's checksum, size, dtype or shape differs from the value in ``client.json`` or
            in the file's header. The error then names the array.

    Example:
        >>> import tempfile
        >>> graph = fgl.Graph(torch.eye(3), torch.tensor([[0], [1]]), y=torch.tensor([0, 1, 1]))
        >>> with tempfile.TemporaryDirectory() as place:
        ...     open_client(save_client(graph, place))
        Graph(x=[3, 3], edge_index=[2, 1], y=[3], num_classes=2)
    """
    folder = Path(folder)
    if not (folder / LIST).exists():
        raise FileNotFoundError(
            f"Expected folder to be one that fgl.data.save_client wrote, with {LIST}, but got "
            f"{folder}, which {'has no such file' if folder.is_dir() else 'is no folder'}"
        )
    about = _list(folder)
    arrays = {
        name: _array(folder, name, entry, mapped and name == "x", check)
        for name, entry in about["arrays"].items()
    }
    parts = [name for name in ("x", *SPARSE) if name in arrays]
    wrong = "edge_index" not in arrays or (parts != ["x"] and parts[:1] != ["x_indptr"])
    expected = f"{folder / LIST} to list edge_index, and x or {', '.join(SPARSE)}"
    reject_if(wrong, expected, sorted(arrays))
    fields: dict[str, Any] = {name: arrays[name] for name in FIELDS if name in arrays}
    features = arrays["x"] if "x" in arrays else _sparse(arrays, about)
    classes = about.get("num_classes")
    return Graph(features, arrays["edge_index"], num_classes=classes, **fields)


def _tensors(graph: Graph) -> dict[str, Tensor]:
    fields = {"edge_index": graph.edge_index, **present(graph, FIELDS)}
    if isinstance(graph.x, Tensor):
        return {"x": graph.x, **fields}
    parts = (graph.x.pattern.crow, graph.x.pattern.col, graph.x.values)
    return {**dict(zip(SPARSE, parts, strict=True)), **fields}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _list(folder: Path) -> dict[str, Any]:
    path = folder / LIST
    _check_file(path)
    about: Any = read_json(path)
    kind = about.get("format") if isinstance(about, dict) else about
    wrong = kind != "fgl client" or not isinstance(about.get("arrays"), dict)
    reject_if(wrong, f"{path} to list the arrays of an fgl client", repr(kind))
    version = about.get("version")
    reject_if(version != VERSION, f"{path} to have version {VERSION}", repr(version))
    unknown = [name for name in about["arrays"] if name not in KNOWN]
    reject_if(unknown, f"the arrays of {path} to be of {KNOWN}", unknown)
    listing: dict[str, Any] = about
    return listing


def _array(folder: Path, name: str, entry: Any, mapped: bool, check: bool) -> Tensor:
    """Read an array listed in ``client.json``, as a tensor."""
    path = _path(folder, name, entry)
    wrong = check and _sha256(path) != entry["sha256"]
    expected = f"{path} to have the SHA-256 of {folder / LIST}"
    reject_if(wrong, expected, "another: it was changed, or not written to its end")
    array = _loaded(path, mapped)
    shape = list(array.shape)
    if (array.dtype.name, shape) != (entry["dtype"], entry["shape"]) or not array.dtype.isnative:
        want = f"{entry['dtype']} {entry['shape']}"
        raise ValueError(f"Expected {path} to hold {want}, but got {array.dtype} {shape}")
    reject_if(array.dtype.kind not in "bifuc", f"{path} to hold numbers", array.dtype)
    return torch.from_numpy(array)


def _path(folder: Path, name: str, entry: Any) -> Path:
    """Path of a listed file; raise an error if the path is outside the folder."""
    keys = ("file", "dtype", "shape", "sha256")
    wrong = not isinstance(entry, dict) or any(key not in entry for key in keys)
    reject_if(wrong, f"{name} of {folder / LIST} to have {keys}", repr(entry))
    path = folder / str(entry["file"])
    outside = path.resolve().parent != folder.resolve()
    reject_if(outside, f"the file of {name} to lie in {folder}", repr(str(entry["file"])))
    _check_file(path)
    return path


def _loaded(path: Path, mapped: bool) -> np.ndarray[Any, Any]:
    with readable(f"{path} to be an array of numpy"):
        _check_size(path)
        array: Any = np.load(path, mmap_mode="c" if mapped else None, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise ValueError(f"Expected {path} to be an array of numpy, but got an archive of arrays")
    return array


def _check_file(path: Path) -> None:
    """Raise an error unless a path is a regular file, since reading a named pipe could block."""
    reject_if(not stat.S_ISREG(path.stat().st_mode), f"{path} to be a regular file", "another kind")


def _check_size(path: Path) -> None:
    """Raise an error unless a NumPy file is as large as its header states.

    This check is made before memory is allocated for the array.
    """
    with path.open("rb") as file:
        major, _ = np.lib.format.read_magic(file)
        headers = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
        shape, _, dtype = headers[major](file)
        size = file.tell() + dtype.itemsize * math.prod(shape)
    if not dtype.hasobject and path.stat().st_size != size:
        raise ValueError(f"{path.stat().st_size} bytes for {dtype} {list(shape)}")


def _sparse(arrays: dict[str, Tensor], about: dict[str, Any]) -> SparseMatrix:
    from scipy.sparse import csr_array  # slow to import

    missing = [name for name in (*SPARSE, "num_features") if name not in {*arrays, *about}]
    reject_if(missing, f"sparse features to have {SPARSE}", f"no {missing}")
    starts, columns, values = (arrays[name] for name in SPARSE)
    check_number("num_features", about["num_features"], at_least=0, integer=True)
    check_columns("x", about["num_features"])
    for name in SPARSE[:2]:
        if arrays[name].dtype != torch.int64:
            raise ValueError(f"Expected {name} to be int64, but got {arrays[name].dtype}")
    shape = (len(starts) - 1, about["num_features"])
    matrix = csr_array((values.numpy(), columns.numpy(), starts.numpy()), shape=shape)
    matrix.check_format(full_check=True)
    reject_if(not matrix.has_canonical_format, "x_indices to rise in each row", "others")
    return SparseMatrix(Pattern(starts, columns, shape), values)

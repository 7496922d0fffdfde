"""Datasets by name: the files are downloaded once, checked by SHA-256, and read."""

import glob
import inspect
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ..checks import about, did_you_mean, reject_if
from ..graph import Graph
from . import catalogue
from .catalogue import Content, Entry, Reader
from .download import download, download_members, verify
from .large import LIKE, large_graph
from .readers.molecules import Molecules
from .readers.parsing import there
from .synthetic import csbm, small_graphs
from .traffic import TRAFFIC, traffic

OGB = ("ogbn-", "ogbg-", "ogbl-")
GENERATED: dict[str, tuple[Reader[Graph], dict[str, Any]]] = {
    **{"synthetic": (csbm, {}), TRAFFIC: (traffic, {})},
    **{name: (large_graph, sizes) for name, sizes in LIKE.items()},
}


def load(
    name: str,
    root: str | os.PathLike[str] | None = None,
    *,
    split: int | None = None,
    targets: str | None = None,
    ignore: Collection[str] = (),
) -> Graph:
    """Load a dataset by name.

    ``"synthetic"`` is the result of `csbm` with default arguments. ``"arxiv-like"`` and
    ``"products-like"`` are `large_graph` with the sizes of ogbn-arxiv and ogbn-products.
    ``"cora"``, ``"citeseer"``, ``"pubmed"``, ``"acm"``, ``"wiki"``, ``"cora_full"``, ``"wiki_cs"``,
    ``"polblogs"``, ``"minesweeper"``, ``"tolokers"`` and ``"squirrel_filtered"`` are read from
    `root`, or downloaded to it. ``"dblp"`` is read from `root` but never downloaded, since the
    published file has a format that cannot be read. Any name not listed here is the name of a
    folder in `root`. The files must be in this folder or in its subfolder ``raw``, in one of these
    layouts:

    - Planetoid: ``ind.NAME.*``.
    - gnn-benchmark and the heterophilous graphs: ``NAME.npz``. Examples are roman_empire,
      amazon_ratings and questions.
    - GraphSAINT: ``adj_full.npz`` and three more files. An example is flickr.
    - Wiki-CS: ``data.json``.
    - GML: ``NAME.gml``.
    - OGB: ``edge.csv.gz`` and other files in ``raw``, and the folder ``split`` next to ``raw``.
      Examples are ogbn-arxiv, ogbg-molhiv (a collection with masks) and ogbl-collab (pairs with
      masks).

    Edges are undirected, without self-loops and repeats. A heterophilous graph whose name ends with
    ``_directed`` has directed edges. Features are returned as stored, without row normalisation.
    Only cora_full is different: its nonzero features become 1, as in PyG. If the files have no
    features (polblogs), one-hot degrees with 64 columns are used. The last of these columns means a
    degree of 63 or more. If the files have no public split, the graph's masks are None. Planetoid's
    split has 20 training nodes per class, 500 validation nodes and 1000 test nodes. Wiki-CS has
    twenty splits, and each heterophilous graph has ten official splits. The argument `split`
    selects one of them. In CiteSeer, 15 node ids have no row of features. As in PyG, these 15 nodes
    have only zeros as features, have class 0, and are in no mask. ``"dblp_four_area"`` is a typed
    graph. The node types are, in this order: papers (8920 feature columns), authors (1 column) and
    conferences (20 columns). The relations are ``(paper, by, author)``, ``(paper, at, conf)`` and
    their reverses. ``"chickenpox"`` and ``"england_covid"`` are time series with
    ``x [num_nodes, num_times, 1]`` and ``y [num_nodes, num_times]``. Both time series keep all
    edges of their files, including self-loops, and no reverse is added. In ``"england_covid"``,
    `edge_time` holds the day of each edge. ``"metr-la-like"`` is a synthetic time series with the
    size of METR-LA. `fgl.data.splits.windows` splits these time series.

    Args:
        name: name of the dataset.
        root: a folder of datasets. By default two folders are searched: first ``$FGL_DATA``, which
            is only read, and then the cache ``$XDG_CACHE_HOME/fgl`` (``~/.cache/fgl``). Downloads
            are written to the cache.
        split: index of one of the splits in the files, counted from 0. The default is the first
            split.
        targets: the node attribute in ``NAME.gml`` that holds the class; default ``"value"``.
        ignore: names of attributes, arrays, edge weights or files that are not read. A warning
            names everything that is not read, except the names in `ignore`.

    Returns:
        The graph. The features x are a Tensor if the files store them as a dense matrix. The files
        of OGB, GraphSAINT, Wiki-CS, the heterophilous graphs and the time series contain a dense
        matrix. A file ``NAME.npz`` of gnn-benchmark contains a dense matrix if it has an array
        ``attr_matrix``. Otherwise x is a float32 `SparseMatrix`, which ``x.to_dense()`` converts to
        a Tensor.

    Raises:
        ValueError: if the name is unknown, if a file is malformed or has a wrong checksum, or if
            the files do not have the requested split.
        OSError: if a file is missing and cannot be downloaded.

    Example:
        >>> graph = fgl.data.load("synthetic")
        >>> graph.num_nodes, graph.num_features, graph.num_classes
        (2708, 1433, 7)

    Source: https://github.com/kimiyoung/planetoid; Yang et al., https://arxiv.org/abs/1603.08861.
    The addresses of the other datasets are in ``fgl/data/catalogue.py``
    """
    options = _given(split=split, targets=targets, ignore=ignore or None)
    if name in GENERATED:
        build, sizes = GENERATED[name]
        return _accepting(build, name, options)(**sizes)
    return _read(name, _places(root), catalogue.GRAPHS, catalogue.GRAPH_LAYOUTS, **options)


def load_graphs(
    name: str,
    root: str | os.PathLike[str] | None = None,
    *,
    attributes: bool = True,
    edge_labels: bool = False,
    ignore: Collection[str] = (),
) -> tuple[list[Graph], Tensor]:
    """Load a collection of graphs with classes or float targets, in the TU format or as molecules.

    ``"NCI1"`` and ``"PROTEINS"`` are read from `root`, or downloaded to it, and checked by SHA-256.
    ``"synthetic"`` is `small_graphs`. Any other name, such as Yeast, is the name of a folder in
    `root`. This folder or its subfolder ``raw`` must contain ``NAME_A.txt``,
    ``NAME_graph_indicator.txt`` and ``NAME_graph_labels.txt``. Features are the columns of
    ``NAME_node_attributes.txt``, followed by the one-hot labels of ``NAME_node_labels.txt`` (the
    labels that occur, in ascending order). If both of these files are missing, one-hot degrees with
    64 columns are used. The last of these columns means a degree of 63 or more. Edges are
    undirected, without self-loops and repeats. If ``NAME_graph_labels.txt`` is missing, the targets
    are the numbers in ``NAME_graph_attributes.txt``, and there are no classes. The datasets of
    `load_molecules` can also be loaded. These datasets have float targets.
    ``NAME_edge_attributes.txt`` is never read, and a warning is given if this file exists.

    Args:
        name: name of the collection.
        root: a folder of datasets, as for `load`.
        attributes: whether the features include the columns of ``NAME_node_attributes.txt``.
        edge_labels: whether to append counts of edges to the features. A node gets one count per
            edge label in ``NAME_edge_labels.txt``: the number of the node's edges that have this
            label. These counts are useful for networks that do not read edge features. An edge is
            counted at both of its nodes. An edge with several labels is counted once per label.
            Self-loops are not counted.
        ignore: names of attributes that are not read, such as ``"edge_attributes"``. No warning is
            given for the names in `ignore`.

    Returns:
        The graphs and their targets. A graph's x is a float32 Tensor ``[num_nodes, num_features]``,
        and its y is None; `Graph.join` joins the graphs into one collection. The targets are
        classes or floats (see `fgl.targets`). Classes are int64 ``[num_graphs]``, renumbered from 0
        in ascending order. Floats are float32 ``[num_graphs]``, or ``[num_graphs, t]`` for several
        columns.

    Raises:
        ValueError: if the name is unknown, or if a file is malformed or has a wrong checksum.
        OSError: if a file is missing and cannot be downloaded.

    Example:
        >>> import pathlib, tempfile
        >>> files = {"A": "1,2\\n2,1\\n3,4\\n", "graph_indicator": "1\\n1\\n2\\n2\\n2\\n"}
        >>> files |= {"graph_labels": "-1\\n1\\n", "node_labels": "6\\n8\\n6\\n6\\n8\\n"}
        >>> with tempfile.TemporaryDirectory() as root:
        ...     folder = pathlib.Path(root, "tiny")
        ...     folder.mkdir()
        ...     for part, text in files.items():
        ...         _ = (folder / f"tiny_{part}.txt").write_text(text)
        ...     graphs, labels = fgl.data.load_graphs("tiny", root)
        >>> [(graph.num_nodes, graph.num_features) for graph in graphs], labels
        ([(2, 2), (3, 2)], tensor([0, 1]))

    Source: Morris et al., https://arxiv.org/abs/2007.08663;
    https://chrsmrrs.github.io/datasets/docs/format
    """
    if name == "synthetic":
        reject_if(edge_labels, 'edge_labels to be False for "synthetic"', "True")
        return small_graphs()
    places = _places(root)
    options = _given(
        attributes=None if attributes else False,
        edge_labels=edge_labels or None,
        ignore=ignore or None,
    )
    collection = _read(name, places, catalogue.COLLECTIONS, catalogue.COLLECTION_LAYOUTS, **options)
    return (collection.graphs, collection.y) if isinstance(collection, Molecules) else collection


def load_molecules(
    name: str,
    root: str | os.PathLike[str] | None = None,
    *,
    targets: Sequence[str] | None = None,
    smiles: str = "smiles",
    ignore: Collection[str] = (),
) -> Molecules:
    """Load molecules as graphs, together with measured targets and SMILES strings.

    ``"esol"`` (log solubility) and ``"freesolv"`` (energy of hydration) have one number per
    molecule. ``"tox21"`` has twelve binary labels (1 or 0), ``"clintox"`` has two, and ``"bace"``
    has one. These datasets are read from `root`, or downloaded to it, and checked by SHA-256. Any
    other name is the name of a folder in `root`. This folder or its subfolder ``raw`` must contain
    ``NAME.csv``, which has a header, a column ``smiles``, and a column of numbers for each target.
    An unknown value is written as an empty field, NA or NaN. A column that only counts the rows
    (pandas writes such columns) is left out, and a warning names the column.

    Atoms are nodes, and bonds are edges in both directions. A hydrogen atom is not a node, but is
    counted in the features of its neighbour. An atom has nine features and a bond has three
    features: the integers of ``torch_geometric.utils.from_smiles``, converted to floats. A molecule
    that rdkit cannot read (8 of tox21's 7831) is left out, and a warning gives the number of such
    molecules.

    Args:
        name: name of the dataset.
        root: a folder of datasets, as for `load`.
        targets: names of the target columns. By default all columns are targets, except the
            `smiles` column and the columns in `ignore`.
        smiles: name of the column of SMILES strings.
        ignore: names of columns that are left out.

    Returns:
        ``(graphs, y, smiles)``. The graphs have x float32 ``[num_nodes, 9]`` and edge_attr float32
        ``[num_edges, 3]``. The targets y are float32 ``[num_graphs]``, or ``[num_graphs, t]`` for t
        > 1 targets. Unknown values are NaN. There is one SMILES string per graph.

    Raises:
        ValueError: if the name is unknown, or if a file is malformed or has a wrong checksum.
        OSError: if a file is missing and cannot be downloaded.
        ImportError: if rdkit or PyG (the extra `molecules`) is not installed.

    Example:
        >>> load_molecules("NCI1")
        Traceback (most recent call last):
        ValueError: Expected name to be one of esol, freesolv, tox21, bace, clintox, or ...

    Source: Wu et al. 2018, MoleculeNet, https://arxiv.org/abs/1703.00564
    """
    options = _given(targets=targets, smiles=smiles, ignore=ignore)
    return _read(name, _places(root), catalogue.MOLECULES, catalogue.MOLECULE_LAYOUTS, **options)


def _given(**options: Any) -> dict[str, Any]:
    """Drop options that are None, since not every reader accepts every option."""
    return {name: value for name, value in options.items() if value is not None}


def _places(root: str | os.PathLike[str] | None) -> list[Path]:
    """The folders in which datasets are searched, in order; downloads go to the last of them."""
    if root is not None:
        return [Path(root).expanduser()]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fgl"
    folder = os.environ.get("FGL_DATA")
    if not folder:
        return [cache]
    reject_if(not Path(folder).is_dir(), "FGL_DATA to be a folder", f"{folder!r}")
    return [Path(folder), cache]


def _read(
    name: str,
    places: list[Path],
    entries: Mapping[str, Entry[Content]],
    layouts: Mapping[str, Reader[Content]],
    **options: Any,
) -> Content:
    """Read a dataset's files; download the files if they are missing."""
    if name in entries:
        read = _accepting(entries[name].read, name, options)
        return read(_public(name, entries[name], places), name, **options)
    folders = _found(places, layouts)
    if name.startswith(OGB) and name not in folders and name.replace("-", "_") in folders:
        folders[name] = folders[name.replace("-", "_")]  # the folder's name in OGB's own library
    if name not in folders:
        where = " or ".join(str(place) for place in places)
        rows = {row for row in entries if any((place / row).is_dir() for place in places)}
        text = (
            f"Expected name to be one of {_names(entries)}, or a folder in {where} with "
            f"{' or '.join(layouts).format(name='NAME')} "
            f"(found: {', '.join(sorted({*folders} | rows)) or 'none'}), "
            f"but got {name!r}"
        )
        text += _elsewhere(name, entries, where) or did_you_mean(name, [*entries, *folders])
        raise about("dataset", ValueError(text))
    folder, read = folders[name]
    return _accepting(read, name, options)(folder, name, **options)


def _accepting(read: Reader[Content], name: str, options: Mapping[str, Any]) -> Reader[Content]:
    """Return the reader; raise an error if the reader does not accept one of the options."""
    for option, value in options.items():
        expected = f"{option} to be left out for {name}, whose files leave no such choice"
        reject_if(option not in inspect.signature(read).parameters, expected, value)
    return read


def _names(entries: Mapping[str, Any]) -> str:
    if entries is catalogue.MOLECULES:
        return ", ".join(entries)
    like = [*LIKE, TRAFFIC] if entries is catalogue.GRAPHS else []
    return ", ".join([*entries, "synthetic", *like])


def _elsewhere(name: str, entries: Mapping[str, Any], where: str) -> str:
    """A hint for a dataset that another function loads, or that users must download themselves."""
    if name.startswith(OGB) and entries is catalogue.GRAPHS:
        return (
            ": it is not downloaded, for its checksums are not known; put the folders raw and "
            f"split of OGB's zip file into a folder {name} in {where}"
        )
    if name in catalogue.COLLECTIONS and entries is not catalogue.COLLECTIONS:
        return ", which load_graphs reads"
    return ", which load reads" if name in catalogue.GRAPHS or name.startswith(OGB) else ""


def _public(name: str, entry: Entry[Any], places: list[Path]) -> Path:
    """The folder with the checked files of a known dataset."""
    needed = [file for file in entry.sha256 if not file.endswith(".xz")]
    folders = [folder for place in places for folder in (place / name / "raw", place / name)]
    complete = (f for f in folders if all(_there(f, file, entry) for file in needed))
    folder = next(complete, None)
    if folder is None and not entry.url:
        expected = f"{' or '.join(map(str, folders[::2]))} to hold {', '.join(needed)}"
        got = f"no {_first_missing(folders, needed, entry)}: {entry.how}"
        raise FileNotFoundError(f"Expected {expected}, but got {got}")
    folder = folder or places[-1] / name / "raw"
    _complete(folder, needed, entry)
    return folder


def _complete(folder: Path, files: list[str], entry: Entry[Any]) -> None:
    """Check the files that exist in a folder, and download the missing files."""
    missing = {}
    for file in files:
        path = _there(folder, file, entry)
        if path is None:
            missing[file] = entry.sha256[file]
        else:
            verify(path, entry.sha256[path.name])
    if missing and entry.url.endswith(".zip"):
        download_members(entry.url, folder, missing)
    else:
        for file, sha256 in missing.items():
            download(f"{entry.url}/{file}", folder / file, sha256)


def _there(folder: Path, file: str, entry: Entry[Any]) -> Path | None:
    """Path of a file in the folder if the catalogue lists the file's checksum; otherwise None."""
    path = there(folder, file)
    return path if path is not None and path.name in entry.sha256 else None


def _first_missing(folders: list[Path], files: list[str], entry: Entry[Any]) -> str:
    """Return the first missing file of the folder with the smallest number of missing files."""
    missing = [[file for file in files if not _there(f, file, entry)] for f in folders]
    return min(missing, key=len)[0]


def _found(
    places: list[Path], layouts: Mapping[str, Reader[Content]]
) -> dict[str, tuple[Path, Reader[Content]]]:
    """Find folders whose files have a known layout; map each name to the folder and the reader."""
    folders: dict[str, tuple[Path, Reader[Content]]] = {}
    for place in filter(Path.is_dir, places):
        for child in sorted(filter(Path.is_dir, place.iterdir())):
            for folder in filter(Path.is_dir, (child / "raw", child)):
                for pattern, read in layouts.items():
                    if any(folder.glob(pattern.format(name=glob.escape(child.name)))):
                        folders.setdefault(child.name, (folder, read))
    return folders

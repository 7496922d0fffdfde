"""Catalogue of the public datasets: the reader, the address and the checksums of each dataset.

A dataset may have a compressed file ``FILE.xz`` in place of ``FILE``. The catalogue must then list
the checksums of both files.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from ..graph import Graph
from .readers.gml import read_gml
from .readers.molecules import Molecules, read_molecules
from .readers.npz import read_npz, read_saint
from .readers.ogb import read_ogb
from .readers.plaintext import read_acm, read_bitcoin, read_dblp_four_area, read_wiki
from .readers.planetoid import read_planetoid
from .readers.series import read_chickenpox, read_england_covid
from .readers.tu import read_tu
from .readers.wiki_cs import read_wiki_cs

if TYPE_CHECKING:
    from ..sparse import SparseMatrix

Content = TypeVar("Content")
Reader = Callable[..., Content]  # takes a folder, a name and the reader's options


class Entry(NamedTuple, Generic[Content]):
    """A dataset; `url` is the address of a folder or of a zip file.

    If `url` is empty, `how` tells users how to get the dataset.
    """

    read: Reader[Content]
    sha256: dict[str, str]
    url: str = ""
    how: str = ""


RAW = "https://raw.githubusercontent.com"
PLANETOID = f"{RAW}/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data"
TADW = f"{RAW}/thunlp/TADW/b4978d814c347f641fa279af225410a4b0ad2111/wiki"
COMMUNITY = f"{RAW}/qinyuenlp/CommunityDetection/8bc22634570438922e3660f147bf9069ff6ffb6d/data"
AM_GCN = f"{RAW}/zhumeiqiBUPT/AM-GCN/1ce29649f47a67e27b89337cc37eb67ba096308a/data"
GRAPH_DATA = f"{RAW}/EdisonLeeeee/GraphData/f8022c26b917346f2a461ffec0ec5ae24b36de68/datasets"
WIKI_CS = f"{RAW}/pmernyei/wiki-cs-dataset/f5207315d649377f936edb66d7d93f5342f01d81/dataset"
# The address names no commit: the commit of the file with this checksum is not known.
GRAPH2GAUSS = "https://github.com/abojchevski/graph2gauss/raw/master/data"
HETEROPHILOUS = (
    f"{RAW}/yandex-research/heterophilous-graphs/a431395582e929d88271309716bea4fe24ce6318/data"
)
TEMPORAL = "https://github.com/benedekrozemberczki/pytorch_geometric_temporal/raw/master/dataset"
MIX_KEY = f"{RAW}/josieyi/Mix-Key/7c633d3c09444d878cfb1c8d1ab724798e0b833c/data"
GRAPH_NN = f"{RAW}/bknyaz/graph_nn/72eaa1c6bd70a90fde772ad4a21049ccd6bc97a2/data"


def _read_cora_full(folder: Path, _: str) -> Graph:
    """Read the dataset authors' ``cora.npz``; set nonzero features to 1, as PyG's CoraFull does."""
    graph = read_npz(folder, "cora")
    return graph.replace(x=cast("SparseMatrix", graph.x).with_value(None))


def _read_polblogs(folder: Path, name: str) -> Graph:
    """Read polblogs as an undirected graph, as papers do; ignore the blogs' names and sources."""
    return read_gml(folder, name, ignore=("label", "source", "directed"))


def _checksums() -> dict[str, dict[str, str]]:
    """Read the known checksums: for each dataset, a dict from file name to SHA-256."""
    sums: dict[str, dict[str, str]] = {}
    for line in Path(__file__).with_name("sha256.txt").read_text(encoding="utf-8").splitlines():
        sha256, path = line.split()
        name, file = path.split("/")
        sums.setdefault(name, {})[file] = sha256
    return sums


SHA256 = _checksums()


def _known(read: Reader[Content], names: Iterable[str], url: str) -> dict[str, Entry[Content]]:
    return {name: Entry(read, SHA256[name], url) for name in names}


GRAPHS: dict[str, Entry[Graph]] = {
    **_known(read_planetoid, ("cora", "citeseer", "pubmed"), PLANETOID),
    "acm": Entry(read_acm, SHA256["acm"], f"{AM_GCN}/acm.zip"),
    "wiki": Entry(read_wiki, SHA256["wiki"], TADW),
    "dblp": Entry(
        read_npz,
        SHA256["dblp"],
        how=f"it is {GRAPH_DATA}/dblp.npz without pickles; another file of the gnn-benchmark "
        "layout can be loaded from a folder of another name",
    ),
    "cora_full": Entry(_read_cora_full, SHA256["cora_full"], GRAPH2GAUSS),
    "wiki_cs": Entry(read_wiki_cs, SHA256["wiki_cs"], WIKI_CS),
    "polblogs": Entry(_read_polblogs, SHA256["polblogs"], COMMUNITY),
    **_known(read_npz, ("minesweeper", "tolokers", "squirrel_filtered"), HETEROPHILOUS),
    "bitcoin_otc": Entry(  # 5,881 nodes, 35,592 edges; no licence is stated
        read_bitcoin,
        SHA256["bitcoin_otc"],
        how="it is soc-sign-bitcoinotc.csv.gz of https://snap.stanford.edu/data/"
        "soc-sign-bitcoin-otc.html, unpacked, below a line source,target,weight,time",
    ),
    "dblp_four_area": Entry(  # 28,871 nodes, 112,340 edges both ways; no licence is stated
        read_dblp_four_area,
        SHA256["dblp_four_area"],
        how="they are in data/DBLP_four_area of https://github.com/Jhy1993/HAN",
    ),
    "chickenpox": Entry(read_chickenpox, SHA256["chickenpox"], TEMPORAL),
    "england_covid": Entry(read_england_covid, SHA256["england_covid"], TEMPORAL),
}
MOLECULES = _known(read_molecules, ("esol", "freesolv", "tox21", "bace", "clintox"), MIX_KEY)
COLLECTIONS: dict[str, Entry[Any]] = {
    "NCI1": Entry(read_tu, SHA256["NCI1"], f"{GRAPH_NN}/NCI1.zip"),
    "PROTEINS": Entry(read_tu, SHA256["PROTEINS"], f"{GRAPH_NN}/PROTEINS.zip"),
    **MOLECULES,
}

# A file in a folder NAME that identifies the layout of its files.
GRAPH_LAYOUTS: dict[str, Reader[Graph]] = {
    "ind.{name}.*": read_planetoid,
    "{name}.npz": read_npz,
    "adj_full.npz": read_saint,
    "data.json": read_wiki_cs,
    "edge.csv.gz": read_ogb,
    "{name}.gml": read_gml,
}
MOLECULE_LAYOUTS: dict[str, Reader[Molecules]] = {"{name}.csv": read_molecules}
COLLECTION_LAYOUTS: dict[str, Reader[Any]] = {"{name}_A.txt": read_tu, **MOLECULE_LAYOUTS}

"""Catalogue of the public datasets: the reader, the address and the checksums of each dataset.

A file may be compressed as ``FILE.xz`` if the catalogue also has the checksum of the compressed
file.
"""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from ..graph import Graph
from .readers.gml import read_gml
from .readers.molecules import Molecules, read_molecules
from .readers.npz import read_npz, read_saint
from .readers.ogb import read_ogb
from .readers.plaintext import read_acm, read_bitcoin, read_dblp_four_area, read_wiki
from .readers.planetoid import PARTS, read_planetoid
from .readers.series import read_chickenpox, read_england_covid
from .readers.tu import read_tu
from .readers.wiki_cs import read_wiki_cs

if TYPE_CHECKING:
    from ..sparse import SparseMatrix

Content = TypeVar("Content")
Reader = Callable[..., Content]  # takes a folder, a name and the reader's options


class Entry(NamedTuple, Generic[Content]):
    """A dataset; `url` is a folder or a zip file.

    If there is no `url`, `how` describes how to get the dataset.
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


def _read_wiki_cs(folder: Path, _: str, *, split: int = 0, ignore: Collection[str] = ()) -> Graph:
    return read_wiki_cs(folder, split=split, ignore=ignore)


def _read_cora_full(folder: Path, _: str) -> Graph:
    """Read the authors' ``cora.npz``; nonzero features become 1, as in PyG's CoraFull."""
    graph = read_npz(folder, "cora")
    return graph.replace(x=cast("SparseMatrix", graph.x).with_value(None))


def _read_polblogs(folder: Path, name: str) -> Graph:
    """Read polblogs as an undirected graph, as papers do, without the blogs' names and sources."""
    return read_gml(folder, name, ignore=("label", "source", "directed"))


def _planetoid(name: str, *sha256: str) -> Entry[Graph]:
    """Entry of a dataset in Planetoid's format; `sha256` holds one checksum per file in `PARTS`."""
    files = (f"ind.{name}.{part}" for part in PARTS)
    return Entry(read_planetoid, dict(zip(files, sha256, strict=True)), PLANETOID)


GRAPHS: dict[str, Entry[Graph]] = {
    "cora": _planetoid(
        "cora",
        "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
        "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
        "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
        "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
        "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
        "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
        "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
        "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    ),
    "citeseer": _planetoid(
        "citeseer",
        "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
        "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
        "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
        "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
        "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
        "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
        "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
        "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    ),
    "pubmed": _planetoid(
        "pubmed",
        "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
        "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
        "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
        "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
        "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
        "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
        "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
        "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    ),
    "acm": Entry(
        read_acm,
        {
            "acm.feature": "9b79821de99b0967e42ed44462e946576a0966285879b90b1d832632bd0a4370",
            "acm.label": "db4872c037fb5e6b2c4e49316e455d5b7347d4798ad230eb9862445badc35f84",
            "acm_PAP.edge": "d4a9d755cb194fa33a3e065178991b6b1169e0211687afce2989210383101c33",
        },
        f"{AM_GCN}/acm.zip",
    ),
    "wiki": Entry(
        read_wiki,
        {
            "graph.txt": "3cdeb169eebca7bc59393da5b3aa030a3ccb7447379d10897df39fed7dde603a",
            "group.txt": "783708cb88bc7b785355a8cdefe9cdd94ad00171dda7d11328849b1a56d99f9e",
            "tfidf.txt": "a475c9fec88f147d0a9a3ed45d2adfccbb0fdd8227f328b1a7d9c1238843ee43",
            "tfidf.txt.xz": "157a24f198b3722b762dcff7fe4d136b73f417cbbae91588149f301fa5b706f4",
        },
        TADW,
    ),
    "dblp": Entry(
        read_npz,
        {"dblp.npz": "82c7af2e7b2ccee69b977f10dd3a94729899a2bd739dfde15ac1672d7c9ce668"},
        how=(
            f"it is {GRAPH_DATA}/dblp.npz without pickles; another file of the gnn-benchmark "
            f"layout can be loaded from a folder of another name"
        ),
    ),
    "cora_full": Entry(
        _read_cora_full,
        {"cora.npz": "62e054f93be00a3dedb15b7ac15a2a07168ceab68b40bf95f54d2289d024c6bc"},
        GRAPH2GAUSS,
    ),
    "wiki_cs": Entry(
        _read_wiki_cs,
        {"data.json": "9bf8cb3ef8eeae81b25e6ccbe0ea195600c205d7edf63ce04f2ec8d9c7dcb3d8"},
        WIKI_CS,
    ),
    "polblogs": Entry(
        _read_polblogs,
        {"polblogs.gml": "bd83e3dd2397a57d2252cc212524c21fee6708663136898d4ace523224bdc632"},
        COMMUNITY,
    ),
    "minesweeper": Entry(
        read_npz,
        {"minesweeper.npz": ("e664c8dacf1e8ac466c2c09ed4b237bd2c5541f47a6eae9c6092cb87f16412b3")},
        HETEROPHILOUS,
    ),
    "tolokers": Entry(
        read_npz,
        {"tolokers.npz": "dacf3ac94cec53d03cd2adb5255c08b33dee1656c33ca8164a464bd9450a1667"},
        HETEROPHILOUS,
    ),
    "squirrel_filtered": Entry(
        read_npz,
        {
            "squirrel_filtered.npz": (
                "f06370ffb3116c5de8b7a600005400b2293c025e0ce2f6916d8201a825505ac7"
            ),
        },
        HETEROPHILOUS,
    ),
    "bitcoin_otc": Entry(  # 5,881 nodes, 35,592 edges; no licence is stated
        read_bitcoin,
        {
            "soc-sign-bitcoinotc.csv": (
                "ad17550ed546a271ad3a89a1775fcd69f2f3339ea64bf1015e0eb9778e1622f8"
            )
        },
        how=(
            "it is soc-sign-bitcoinotc.csv.gz of https://snap.stanford.edu/data/"
            "soc-sign-bitcoin-otc.html, unpacked, below a line source,target,weight,time"
        ),
    ),
    "dblp_four_area": Entry(  # 28,871 nodes, 112,340 edges both ways; no licence is stated
        read_dblp_four_area,
        {
            "author_label.txt": "63521c608c2329fcc0260f72d526dc6a8ae972a67f619933bf4245377920b22e",
            "paper_author.txt": "8d5e93dd298b4ab5ac9e800405599a0ccad250f16028efe78b3e7e1ac16fde74",
            "paper_conf.txt": "43dfb296928f09d71b1e938fa34b952e1c7e280dd06d2b1e3ef8c5d5762beb86",
            "paper_term.txt": "e8f22b835c51b9cd85f4ee7c8158db06f644dcae95660e9e822f69cd1df0ee18",
        },
        how="they are in data/DBLP_four_area of https://github.com/Jhy1993/HAN",
    ),
    "chickenpox": Entry(
        read_chickenpox,
        {"chickenpox.json": "724b48cfb274b2ecbb855bdb99b970b5ef9dd3671694fa477435dc1e08293735"},
        TEMPORAL,
    ),
    "england_covid": Entry(
        read_england_covid,
        {
            "england_covid.json": (
                "497056cc4585b58951fd5cd17554fe0c535f68ea0c907a5b5727ae30e3913450"
            ),
        },
        TEMPORAL,
    ),
}

MOLECULES: dict[str, Entry[Molecules]] = {
    name: Entry(read_molecules, {f"{name}.csv": sha256}, MIX_KEY)
    for name, sha256 in {
        "esol": "f959a0821e852bc37a0609109daa6a981880d161ce71195b47bf9bc48dbd1199",
        "freesolv": "390418d628e265ffed42fa0a979c0034d56f1304522e97845fa98ff324111d7c",
        "tox21": "36a2dfdc5a27598db16c197be9dfd6f4e2c35d96c26bf08fa0371c67f795063c",
        "bace": "d050b0c79a1b101532172ec503819633b73cca0f4d009c88ef6c6d20e5d85ef9",
        "clintox": "e7c492cd96d8a021e0600b430cfadc858c04a7e9ed5002cdbe5afe326348636a",
    }.items()
}

COLLECTIONS: dict[str, Entry[Any]] = {
    "NCI1": Entry(
        read_tu,
        {
            "NCI1_A.txt": "2c028eda59a5fe96e2265a63d9ac236901bd9a7dc658498be13cd704a703076d",
            "NCI1_graph_indicator.txt": (
                "ffe5acfa754b057d5ce0dc725c5aadb631628161886cc040d38c719635257dc5"
            ),
            "NCI1_graph_labels.txt": (
                "fae44681e70113f496256ae87eaac33b7836e3a97fe8e023933b84fde6a5c8a2"
            ),
            "NCI1_node_labels.txt": (
                "dc0a22b6cbff0c939de00373e823977ba32b358f560e4288d7602f7b51407ee2"
            ),
        },
        f"{GRAPH_NN}/NCI1.zip",
    ),
    "PROTEINS": Entry(
        read_tu,
        {
            "PROTEINS_A.txt": "4c4b33e272fc95cac6d27ed6d5d12b9a852c8610e91fff59f8f0dbdd5a20df67",
            "PROTEINS_graph_indicator.txt": (
                "8d4ff1e852a5c28561e9bffb44cf9490bc552b13a3b6156dd12dc7f44e9afc4a"
            ),
            "PROTEINS_graph_labels.txt": (
                "c0ef9810c440775252872318d0c8adc385588e14bc4c47a2c34aa96ee3c7cdcd"
            ),
            "PROTEINS_node_attributes.txt": (
                "54eef829abb37e458a5fbf3a3c581e48e5810e220463c2cd951856b9ceb08f07"
            ),
            "PROTEINS_node_labels.txt": (
                "f758e8ad3d6e3c026b50833d75f6f90735b94eb3345e4243707f495ca8afea8d"
            ),
        },
        f"{GRAPH_NN}/PROTEINS.zip",
    ),
    **MOLECULES,
}

# A file in a folder NAME that identifies the layout of its files.
GRAPH_LAYOUTS: dict[str, Reader[Graph]] = {
    "ind.{name}.*": read_planetoid,
    "{name}.npz": read_npz,
    "adj_full.npz": read_saint,
    "data.json": _read_wiki_cs,
    "edge.csv.gz": read_ogb,
    "{name}.gml": read_gml,
}
MOLECULE_LAYOUTS: dict[str, Reader[Molecules]] = {"{name}.csv": read_molecules}
COLLECTION_LAYOUTS: dict[str, Reader[Any]] = {"{name}_A.txt": read_tu, **MOLECULE_LAYOUTS}

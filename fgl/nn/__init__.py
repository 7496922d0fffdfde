"""Small graph neural networks with the `state_dict` keys and outputs of PyTorch Geometric."""

from .adafgl import AdaFGL
from .as_pyg import to_pyg
from .aux_sage import AuxSAGE
from .deep_neighbours import DeepNeighbours
from .embedded import Embedded
from .gat import GAT, GATConv
from .gcn import GCN, GCNConv
from .gin import GIN, GINConv
from .gine import GINE, GINEConv
from .hetero import Hetero
from .mlp import MLP
from .neighbour_generator import NeighbourGenerator
from .observe import observed
from .pair_net import PairNet
from .rgcn import RGCN, RGCNConv
from .sage import SAGE, EgoSAGE, SAGEConv
from .spa import SPA
from .ssp import SSP
from .star import Star
from .vgae import VGAE

__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "GINE",
    "MLP",
    "RGCN",
    "SAGE",
    "SPA",
    "SSP",
    "VGAE",
    "AdaFGL",
    "AuxSAGE",
    "DeepNeighbours",
    "EgoSAGE",
    "Embedded",
    "GATConv",
    "GCNConv",
    "GINConv",
    "GINEConv",
    "Hetero",
    "NeighbourGenerator",
    "PairNet",
    "RGCNConv",
    "SAGEConv",
    "Star",
    "observed",
    "to_pyg",
]

"""Small graph neural networks with PyTorch Geometric's `state_dict` keys and outputs."""

from .gat import GAT, GATConv
from .gcn import GCN, GCNConv
from .gin import GIN, GINConv
from .mlp import MLP
from .neighbour_generator import NeighbourGenerator
from .observe import observed, outputs
from .pair_net import PairNet
from .sage import SAGE, EgoSAGE, SAGEConv, child_mean
from .star import Star
from .vgae import VGAE

__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "MLP",
    "SAGE",
    "VGAE",
    "EgoSAGE",
    "GATConv",
    "GCNConv",
    "GINConv",
    "NeighbourGenerator",
    "PairNet",
    "SAGEConv",
    "Star",
    "child_mean",
    "observed",
    "outputs",
]

"""Small graph neural networks with PyTorch Geometric's `state_dict` keys and outputs."""

from .gat import GAT, GATConv
from .gcn import GCN, GCNConv
from .sage import SAGE, EgoSAGE, SAGEConv, child_mean

__all__ = ["GAT", "GCN", "SAGE", "EgoSAGE", "GATConv", "GCNConv", "SAGEConv", "child_mean"]

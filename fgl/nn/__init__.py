"""Small graph neural networks with PyTorch Geometric's `state_dict` keys and outputs."""

from .gat import GAT, GATConv
from .gcn import GCN, GCNConv
from .gin import GIN, GINConv

__all__ = ["GAT", "GCN", "GIN", "GATConv", "GCNConv", "GINConv"]

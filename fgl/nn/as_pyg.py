"""Twins of fgl's networks: they consist of PyTorch Geometric's layers and work without fgl."""

import copy
import itertools
from typing import Any

from torch import Tensor, nn

from ..checks import imported, reject_if
from .gat import GATConv
from .gcn import GCNConv
from .gin import GINConv, OfGraphs
from .gine import GINEConv
from .layers import Stack
from .rgcn import RGCN, RGCNConv
from .sage import SAGEConv


def to_pyg(model: nn.Module) -> nn.Module:
    """Rebuild a model with PyTorch Geometric's layers; the weights and outputs stay the same.

    The rebuilt model's `forward` method takes ``(x, edge_index)`` and then the arguments of PyG's
    layers: `edge_weight` for a `GCN`, and `edge_type` for an `RGCN`. For `GIN` and `GINE` the
    arguments are ``(x, edge_index, edge_attr=None, batch=None, batch_size=None)``. In evaluation
    mode, the model and the rebuilt model have equal outputs up to rounding. An exception is `GIN`
    on a graph with edge weights: PyG's layer has no edge weights. The rebuilt model can
    be exported by ``torch.export``, and converted to ONNX. The rebuilt model applies no dropout to
    the input or to attention. Its input features must be dense (``x.to_dense()``).

    Args:
        model: a `GCN`, `GAT`, `SAGE`, `GIN`, `GINE` or `RGCN`, or a convolution of such a network.

    Returns:
        A module with a copy of the model's weights, in the model's mode (training or evaluation).
        The module's ``state_dict`` has the keys of the model's ``state_dict``.

    Raises:
        TypeError: if `model` is any other module.
        ValueError: if `model` is a `GCN` whose input features must already be sums over neighbours.
        ImportError: if torch_geometric is not installed.

    Example:
        >>> model = fgl.nn.GCN(4, 8, 2).eval()
        >>> x, edge_index = torch.rand(3, 4), torch.tensor([[0, 1], [1, 2]])
        >>> twin = fgl.nn.to_pyg(model)  # doctest: +SKIP
        >>> torch.allclose(twin(x, edge_index), model(x, edge_index), atol=1e-6)  # doctest: +SKIP
        True

    Source: https://pytorch-geometric.readthedocs.io
    """
    pyg = imported("torch_geometric.nn", "for to_pyg", "pip install torch_geometric")
    hooked = any(module._forward_hooks for module in model.modules())
    reject_if(hooked, f"{type(model).__name__} to have no forward hooks", "some", TypeError)
    twin = _twin(pyg, model)
    twin.load_state_dict(model.state_dict(), strict=False)  # PyG's GIN has a constant `eps` too
    first = next(itertools.chain(model.parameters(), model.buffers()))
    return twin.to(first.device, first.dtype).train(model.training)


def _twin(pyg: Any, model: Any) -> nn.Module:
    """A twin of a network or of a convolution; the twin has a copy of the weights."""
    other = type(model).__module__.split(".")[0] != "fgl"
    got = f"{type(model).__name__}: the forward of another class may do more"
    reject_if(other, "a network of fgl.nn", got, TypeError)
    if isinstance(model, OfGraphs):
        pool = pyg.global_add_pool if model.pooling == "sum" else pyg.global_mean_pool
        return OfGraphsTwin(model, [_conv(pyg, conv) for conv in model.convs], pool)
    if isinstance(model, Stack | RGCN):
        return StackTwin(model, [_conv(pyg, conv) for conv in model.convs])
    return _conv(pyg, model)


def _conv(pyg: Any, conv: Any) -> nn.Module:
    """PyG's convolution with the sizes and options of an fgl convolution."""
    layer: nn.Module
    if isinstance(conv, GCNConv):
        expected = "the features not to be summed over neighbours"
        reject_if(not conv.propagate, expected, "a GCN with summed=True: PyG has no such layer")
        layer = pyg.GCNConv(*_sizes(conv.lin), normalize=conv.normalize)
    elif isinstance(conv, GATConv):
        sizes = conv.lin.weight.shape[1], conv.att_src.shape[-1]
        layer = pyg.GATConv(*sizes, conv.heads, concat=conv.concat)
    elif isinstance(conv, SAGEConv):
        layer = pyg.SAGEConv(*_sizes(conv.lin_l))
    elif isinstance(conv, GINConv):
        layer = pyg.GINConv(copy.deepcopy(conv.nn))
    elif isinstance(conv, GINEConv):
        layer = pyg.GINEConv(copy.deepcopy(conv.nn), edge_dim=conv.lin.in_features)
    elif isinstance(conv, RGCNConv):
        layer = pyg.RGCNConv(*conv.root.shape, conv.num_relations, num_bases=conv.num_bases)
    else:
        raise TypeError(
            "Expected model to be a GCN, GAT, SAGE, GIN, GINE or RGCN, or one of their "
            f"convolutions, but got {type(conv).__name__}"
        )
    return layer


def _sizes(linear: Any) -> tuple[int, int]:
    width, in_channels = linear.weight.shape
    return in_channels, width


class StackTwin(nn.Module):
    """PyG's convolutions with ReLU and dropout between them, then the model's linear map, if any.

    ``forward(x, edge_index, *of_edges)`` passes the arguments `of_edges` to each convolution.

    Example:
        >>> fgl.nn.to_pyg(fgl.nn.GCN(4, 8, 2))  # doctest: +SKIP
    """

    def __init__(self, like: Stack | RGCN, convs: list[nn.Module]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)
        head = getattr(like, "lin", None)
        self.lin = None if head is None else nn.Linear(*_sizes(head))
        self.dropout = nn.Dropout(like.dropout)

    def forward(self, x: Tensor, edge_index: Tensor, *of_edges: Tensor) -> Tensor:
        h: Tensor = self.convs[0](x, edge_index, *of_edges)
        for conv in self.convs[1:]:
            h = conv(self.dropout(h.relu()), edge_index, *of_edges)
        return h if self.lin is None else self.lin(self.dropout(h.relu()))


class OfGraphsTwin(nn.Module):
    """PyG's network for whole graphs: linear map, convolutions, pooling, hidden layer and logits.

    Example:
        >>> fgl.nn.to_pyg(fgl.nn.GIN(4, 8, 2))  # doctest: +SKIP
    """

    def __init__(self, like: OfGraphs, convs: list[nn.Module], pool: Any) -> None:
        super().__init__()
        self.pre, self.post, self.readout = (
            nn.Linear(*_sizes(linear)) for linear in (like.pre, like.post, like.readout)
        )
        self.convs = nn.ModuleList(convs)
        self.dropout = nn.Dropout(like.dropout)
        self.pool = pool

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        h = self.pre(x)
        of_edges = () if edge_attr is None else (edge_attr,)
        for conv in self.convs:
            h = self.dropout(conv(h, edge_index, *of_edges).relu())
        hidden = self.dropout(self.post(self.pool(h, batch, batch_size)).relu())
        out: Tensor = self.readout(hidden)
        return out

"""Layers that several networks use: linear map, dropout, and a stack of convolutions."""

from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from ..checks import check_count, check_share
from ..sparse import SparseMatrix
from ..sparse.pattern import scalar

Features = Tensor | SparseMatrix
Edges = Tensor | SparseMatrix


class Linear(nn.Module):
    """Linear map of dense or sparse features; weights are Glorot-uniform, and there is no bias.

    Example:
        >>> Linear(2, 3)
        Linear(in_channels=2, out_channels=3)
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels))
        self.reset_parameters()

    def extra_repr(self) -> str:
        return "in_channels={1}, out_channels={0}".format(*self.weight.shape)

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Features) -> Tensor:
        return x @ self.weight.t()


def adjacency(edges: Edges, num_nodes: int) -> SparseMatrix:
    """`edges` as a matrix ``A[target, source]``."""
    if isinstance(edges, SparseMatrix):
        return edges
    return SparseMatrix.from_edge_index(edges, num_nodes)


def dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Inverted dropout, ``x * keep / (1 - p)``; p is rounded to a multiple of 2^-16."""
    if not (training and p):
        return x
    p = round(p * 2**16) / 2**16
    if p >= 1:
        return x * 0
    # Sixteen random bits per entry take a third of the time of `torch.rand` on a CPU.
    words = torch.randint(-(2**63), 2**63 - 1, (x.numel() // 4 + 1,), device=x.device)
    bits = as_integers(words, torch.int16)[: x.numel()].view(x.shape)
    return x * ((bits >= int(p * 2**16) - 2**15) * scalar(1 / (1 - p), x.dtype, x.device))


def as_integers(words: Tensor, dtype: torch.dtype) -> Tensor:
    """View the bytes of int64 words ``[n]`` as smaller integers: ``words.view(dtype)``."""
    try:
        return words.view(dtype)
    except RuntimeError:  # torch 2.10 cannot do this under vmap
        return shifted(words, dtype)


def shifted(words: Tensor, dtype: torch.dtype) -> Tensor:
    """Compute the result of `as_integers` by bit shifts, which every version of `vmap` supports."""
    shifts = torch.arange(0, 64, 8 * dtype.itemsize, device=words.device)
    return (words[:, None] >> shifts).to(dtype).flatten()


def coarse_scale(x: Tensor, p: float) -> Tensor:
    """Sample the factors of `dropout` for the entries of x, with few random bits for each entry.

    If p is a multiple of 1/2, 1/4 or 1/16, an entry needs only 1, 2 or 4 random bits. For p = 1/2
    this function takes a fifth of the time that `dropout` takes.
    """
    bits = next((b for b in (1, 2, 4) if float(p * 2**b).is_integer()), 0)
    if not bits or p >= 1:
        return dropout(torch.ones_like(x), p)
    each = 8 // bits  # entries per byte
    words = torch.randint(-(2**63), 2**63 - 1, (x.numel() // (8 * each) + 1,), device=x.device)
    chosen = as_integers(words, torch.uint8)[: -(-x.numel() // each)].int()
    scale: Tensor = embedding(chosen, _scales(p, bits, x.dtype, x.device))
    return scale.flatten()[: x.numel()].view(x.shape)


@cache
def _scales(p: float, bits: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Table of dropout factors: row b has the factors of the ``8 / bits`` entries in byte b."""
    byte, place = torch.arange(256)[:, None], torch.arange(0, 8, bits)
    survives = ((byte >> place) % 2**bits) >= p * 2**bits
    scales: Tensor = survives.double() / (1 - p)
    return scales.to(device, dtype)


def _dropped(x: Features, p: float) -> Features:
    if not isinstance(x, SparseMatrix):
        return dropout(x, p)
    return x.with_value(dropout(x.values, p))


def through(layers: Iterable[nn.Module], x: Any, p: float, *fields: Any) -> tuple[Any, Any]:
    """Outputs of the last layer and of the layer before it; ReLU and dropout are between layers.

    Args:
        layers: the layers; a layer is called with the previous layer's output and with `fields`.
        x: the first layer's input.
        p: probability of dropping a hidden unit.
        fields: further inputs that every layer gets, such as edges.
    """
    first, *others = layers
    out = first(x, *fields)
    embedding = out
    for layer in others:
        embedding = out
        out = layer(dropout(embedding.relu(), p), *fields)
    return out, embedding


class Layers(nn.Module):
    """Convolutions with ReLU and dropout between them; subclasses define `convs` and `forward`.

    If the network has a `head`, the head maps the last convolution's output, after ReLU and
    dropout.
    """

    def __init__(
        self,
        convs: Iterable[nn.Module],
        dropout: float,
        drop_input: bool = False,
        head: nn.Linear | None = None,
    ) -> None:
        super().__init__()
        check_share(dropout=dropout)
        self.convs = nn.ModuleList(convs)
        self.lin = head
        self.dropout = dropout
        self.drop_input = drop_input

    def outputs(self, x: Features, *fields: Any) -> tuple[Tensor, Tensor]:
        """Outputs of the last layer and the last hidden layer; every layer also gets `fields`."""
        p = self.dropout if self.training else 0.0
        if self.drop_input and p:
            x = _dropped(x, p)
        out, embedding = through(self.convs, x, p, *fields)
        if self.lin is not None:
            out, embedding = self.lin(dropout(out.relu(), p)), out
        return out, embedding


class Stack(Layers):
    """Layers that read only features and edges."""

    def forward(
        self, x: Features, edges: Edges, *, return_embedding: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        out, embedding = self.outputs(x, adjacency(edges, x.shape[0]))
        return (out, embedding) if return_embedding else out


def widths(in_channels: int, hidden: int, out_channels: int, num_layers: int) -> list[int]:
    """Widths of input, hidden layers and output in a network with `num_layers` layers."""
    check_count(num_layers=num_layers)
    check_count(in_channels=in_channels, hidden_channels=hidden, out_channels=out_channels)
    return [in_channels, *[hidden] * (num_layers - 1), out_channels]

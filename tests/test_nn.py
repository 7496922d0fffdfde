"""GCN and GAT: what they promise about graphs; PyG's numbers are in `truth/`."""

from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.func import vmap

from fgl.nn import GAT, GCN, AuxSAGE, EgoSAGE
from fgl.nn.layers import shifted
from fgl.nn.ssp import SSP

N, F, C = 12, 7, 3


def random_edges(num_nodes: int = N, num_edges: int = 40) -> Tensor:
    g = torch.Generator().manual_seed(5)
    source, target = torch.randint(num_nodes, (2, num_edges), generator=g)
    return torch.stack([source, target])[:, source != target].unique(dim=1)


DIRECTED = random_edges()
LOOPS = torch.tensor([[1, 3, 8], [1, 3, 8]])
GRAPHS = {
    "directed": DIRECTED,
    "undirected": torch.cat([DIRECTED, DIRECTED.flip(0)], dim=1).unique(dim=1),
    "self-loops": torch.cat([LOOPS[:, :1], DIRECTED, LOOPS[:, 1:]], dim=1),
    "repeated edges": DIRECTED[:, torch.arange(50) % 20],
    "repeated self-loops": torch.cat([LOOPS, DIRECTED, LOOPS], dim=1),
    "isolated nodes": random_edges(num_nodes=8),
    "one edge": torch.tensor([[4], [2]]),
    "no edges": torch.zeros(2, 0, dtype=torch.int64),
}
graphs = pytest.mark.parametrize("edges", GRAPHS.values(), ids=GRAPHS)

MODELS: dict[str, tuple[type[nn.Module], type[nn.Module], dict[str, Any]]] = {
    "gcn-1": (GCN, pyg.GCN, {"num_layers": 1}),
    "gcn-2": (GCN, pyg.GCN, {"num_layers": 2}),
    "gcn-4": (GCN, pyg.GCN, {"num_layers": 4}),
    "gcn-head": (GCN, pyg.GCN, {"num_layers": 2}),  # its twin has jk="last"
    "gat-1": (GAT, pyg.GAT, {"num_layers": 1}),
    "gat-1-3heads": (GAT, pyg.GAT, {"num_layers": 1, "heads": 3}),
    "gat-2": (GAT, pyg.GAT, {"num_layers": 2}),
    "gat-2-4heads": (GAT, pyg.GAT, {"num_layers": 2, "heads": 4}),
    "gat-3-2heads": (GAT, pyg.GAT, {"num_layers": 3, "heads": 2}),
}
models = pytest.mark.parametrize("name", MODELS)


def twins(name: str, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, nn.Module]:
    """Our model and PyG's with the same parameters, none of them zero."""
    ours, theirs, kwargs = MODELS[name]
    hidden = 9 if kwargs.get("heads") == 3 else 8
    more = ({"head": True}, {"jk": "last"}) if name == "gcn-head" else ({}, {})
    ours = ours(F, hidden, C, **kwargs, **more[0], dropout=0.0).to(dtype)
    theirs = theirs(F, hidden, out_channels=C, **kwargs, **more[1]).to(dtype)
    for parameter in ours.parameters():
        nn.init.normal_(parameter, std=0.5)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def features(dtype: torch.dtype = torch.float64) -> Tensor:
    x = torch.randn(N, F, dtype=dtype)
    x[:, 2] = 0
    x[4] = 0  # a node without features
    return x * (torch.rand(N, F) < 0.6)


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint8])
def test_random_bits_are_the_same_where_torch_has_no_view_under_vmap(dtype: torch.dtype) -> None:
    """As in torch 2.10, the oldest that is supported."""
    words = torch.randint(-(2**63), 2**63 - 1, (3, 9))
    assert torch.equal(shifted(words[0], dtype), words[0].view(dtype))
    assert torch.equal(vmap(lambda row: shifted(row, dtype))(words), words.view(dtype))


def test_bad_sizes() -> None:
    for make, message in (
        (lambda: GCN(F, 8, C, num_layers=0), "num_layers to be an integer >= 1, but got 0"),
        (lambda: GAT(F, 8, C, num_layers=0), "num_layers to be an integer >= 1, but got 0"),
        (lambda: GAT(F, 8, C, heads=3), "hidden_channels to be a multiple of heads=3, but got 8"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


@pytest.mark.parametrize("kind", [AuxSAGE, EgoSAGE, SSP])
def test_all_parameters_are_drawn_again(kind: Any) -> None:
    net = kind(4, 8, 2)
    for own in net.parameters():
        own.data.fill_(7.0)
    net.reset_parameters()
    assert not any((own == 7).any() for own in net.parameters())

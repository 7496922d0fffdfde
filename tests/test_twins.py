"""The PyG twins of the speed benchmarks compute the losses of the recipes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from federations import close, graph, script
from torch.func import functional_call

import fgl
from fgl import pseudo

pytest.importorskip("torch_geometric")
from speed.twins import fedgl as fedgl_twin
from speed.twins import fgssl as fgssl_twin
from torch_geometric.data import Data


def seen(x: Any, adj: Any) -> Any:
    return x, adj


def test_fgssls_twin_is_its_loss() -> None:
    data = graph(30)
    model = fgl.nn.GCN(6, 8, 3, dropout=0.0)
    other = fgl.nn.GCN(6, 8, 3, dropout=0.0)
    views = {"local_view": seen, "global_view": seen}
    method = script("examples/fgssl.py").fgssl(fgl.fedavg(model), **views)
    context = {"model": dict(other.state_dict())}
    params = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    ours = method.loss(params, data, context)

    class With(torch.nn.Module):
        def __init__(self, net: Any) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any, edges: Any) -> Any:
            return self.net(x, edges, return_embedding=True)

    theirs = fgssl_twin.loss(With(model), With(other), data.to_pyg(Data), **views)
    close(ours, theirs)
    grads = torch.autograd.grad(ours, list(params.values()))
    want = torch.autograd.grad(theirs, list(model.parameters()))
    named = dict(zip(params, grads, strict=True))
    for (name, _), grad in zip(model.named_parameters(), want, strict=True):
        close(named[name], grad)


def test_fedgls_twin_is_its_loss() -> None:
    data = graph(30)
    model = fgl.nn.GCN(6, 8, 3, dropout=0.0)
    generator = torch.Generator().manual_seed(1)
    index = torch.randint(30, (2, 50), generator=generator).unique(dim=1)
    weight = torch.rand(index.shape[1], generator=generator)
    similar = fgl.SparseMatrix.from_entries(index[0], index[1], (30, 30), weight)
    wide = pseudo.augmented_operator(data.adj, similar, beta=0.1)
    edges = fedgl_twin.operator(data.edge_index, index, weight, 30, 0.1)
    dense = torch.zeros(30, 30).index_put((edges[0][1], edges[0][0]), edges[1], accumulate=True)
    close(wide.to_dense(), dense)
    labels = torch.randint(-1, 3, (30,), generator=generator)

    def net(x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return functional_call(model, dict(model.state_dict()), (x, wide.as_operator()))

    plain = fgl.fedavg(model)
    seen_graph = data.with_adj(wide.as_operator())
    logits = model(seen_graph.x, seen_graph.adj)
    mask = data.train_mask
    ours = plain.loss(dict(model.state_dict()), seen_graph, {})
    ours = ours + 0.2 * pseudo.label_loss(logits, labels, ~mask)
    close(ours, fedgl_twin.loss(net, data.x, data.y, mask, labels, edges))  # type: ignore[arg-type]

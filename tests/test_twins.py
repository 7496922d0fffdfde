"""The PyG twins of the speed benchmarks compute the losses of the recipes."""

from typing import Any

import pytest
import torch
from federations import close, graph, script
from torch.func import functional_call

import fgl
from fgl import pseudo

pytest.importorskip("torch_geometric")
from speed.twins import fedego as fedego_twin
from speed.twins import fedgl as fedgl_twin
from speed.twins import fgssl as fgssl_twin
from speed.twins import gpfl as gpfl_twin
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
    close(ours, theirs, atol=4e-6)  # four units of the last place of 7.7
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


def forest(trees: torch.Tensor, fanouts: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Nodes of trees, the centres first, and edges from children to parents, as PyG has them."""
    count, size = trees.shape
    place = torch.arange(count * size).view(size, count).t()  # the centres are 0 to count - 1
    bounds = fgl.ego.trees.levels(fanouts)
    edges = []
    for depth, fanout in enumerate(fanouts):
        parents = place[:, bounds[depth] : bounds[depth + 1]].repeat_interleave(fanout, 1)
        children = place[:, bounds[depth + 1] : bounds[depth + 2]]
        edges.append(torch.stack([children.flatten(), parents.flatten()]))
    return trees.t().flatten(), torch.cat(edges, 1)


def test_fedegos_twin_is_its_loss() -> None:
    """On the same trees: its loss and all its gradients, so the same step."""
    test, clients = fgl.data.partitions.major_label_partition(fgl.data.load("synthetic"), 2)
    model = fgl.nn.EgoSAGE(test.num_features, 8, test.num_classes, fanouts=(3, 2), dropout=0.0)
    task = fgl.tasks.ego_nodes.ego_node_task(clients, test, model, torch.optim.Adam)
    method, data = script("examples/fedego.py").fedego(task.fedavg), clients[0]
    batches: Any = method.train.batches
    _, context = next(iter(batches(data, {})))
    params = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    ours = method.loss(params, data, context)
    sizes = test.num_features, 8, test.num_classes
    twin = fedego_twin.Net(*sizes, dropout=0.0)
    twin.load_state_dict(model.state_dict())
    nodes, edge_index = forest(context["trees"].values, (3, 2))
    y = context["labels"].values.argmax(1)
    batch = Data(
        x=context["x"].values.to_dense()[nodes], edge_index=edge_index, y=y, batch_size=len(y)
    )
    theirs = fedego_twin.loss(twin, batch)
    close(ours, theirs, atol=4e-6)  # four units of the last place of 7.7
    for grad, (name, value) in zip(
        torch.autograd.grad(ours, list(params.values())), twin.named_parameters(), strict=True
    ):
        (want,) = torch.autograd.grad(theirs, value, retain_graph=True)
        assert want.abs().sum() > 0, name
        close(grad, want)


def test_gpfls_twin_is_its_loss() -> None:
    each = [graph(n) for n in (5, 9, 7)]
    data = fgl.Graph.join(each, torch.tensor([0, 1, 1]), num_classes=2)
    model = fgl.nn.GIN(6, 8, 2, dropout=0.0)
    twin = gpfl_twin.Net(6, 8, 2, dropout=0.0)
    with torch.no_grad():
        for theirs, ours in zip(twin.parameters(), model.parameters(), strict=True):
            theirs.copy_(ours)
    ours = fgl.fedavg(model).loss(dict(model.named_parameters()), data, {})
    theirs = gpfl_twin.loss(twin, Data(data.x, data.edge_index, y=data.y, batch=data.batch))
    close(ours, theirs, atol=4e-6)  # four units of the last place of 7.7

"""Inference in blocks: equal to the whole forward, whatever the block; how much a block reads."""

from typing import Any

import pytest
import torch
from federations import CLASSES, FEATURES, close, graph, refuses

import fgl
from fgl.blocks import logits_in_blocks
from fgl.predict import predict


def test_what_cannot_be_cut_is_refused() -> None:
    data, model = graph(20), fgl.nn.EgoSAGE(FEATURES, 8, CLASSES)
    assert len(logits_in_blocks(model, model.state_dict(), data, block_size=20)) == 20
    with pytest.raises(TypeError, match="stack of convolutions .* or hops to say how far"):
        logits_in_blocks(model, model.state_dict(), data, block_size=19)
    with pytest.raises(ValueError, match="hops"):
        logits_in_blocks(model, model.state_dict(), data, block_size=19, hops=0)
    refuses("block_size", lambda: logits_in_blocks(model, model.state_dict(), data, block_size=0))
    for kind in (fgl.nn.SPA, fgl.nn.AuxSAGE):  # their layers read more than features and edges
        other = kind(FEATURES, 8, CLASSES).eval()
        with pytest.raises(TypeError, match="or hops to say how far"):
            logits_in_blocks(other, other.state_dict(), data, block_size=19)


# Models whose layers are not known by name


def of_pyg(name: str) -> Any:
    """A model of PyG, what its edges have, and how far a node of it looks."""
    models = pytest.importorskip("torch_geometric.nn.models")
    kinds = {"GAT": models.GAT, "SAGE": models.GraphSAGE, "GCN": models.GCN, "GIN": models.GIN}
    how = {"num_layers": 2, "out_channels": CLASSES}
    return kinds[name](FEATURES, 8, **how), 3 if name == "GCN" else 2


def typed(data: fgl.Graph) -> fgl.Graph:
    return data.replace(edge_type=torch.arange(data.num_edges) % 3)


@pytest.mark.parametrize("block_size", [7, 59])
@pytest.mark.parametrize("name", ["GAT", "SAGE", "GCN", "GIN", "RGCN"])
def test_any_model_says_in_blocks_what_it_says_of_all_nodes(name: str, block_size: int) -> None:
    torch.manual_seed(0)
    if name == "RGCN":
        model, hops = fgl.nn.RGCN(FEATURES, 8, CLASSES, num_relations=3, num_layers=2), 2
    else:
        model, hops = of_pyg(name)
    model.eval()
    data = typed(graph(60)) if name == "RGCN" else graph(60)
    made = logits_in_blocks(model, model.state_dict(), data, block_size=block_size, hops=hops)
    close(made, predict(model, model.state_dict(), data), atol=1e-5)
    assert not made.requires_grad


def test_edges_have_their_features_in_a_block() -> None:
    pytest.importorskip("torch_geometric")
    from conformance import Bonds, with_bonds

    torch.manual_seed(0)
    model, data = Bonds(FEATURES, CLASSES).eval(), with_bonds(graph(40), torch.float32)
    made = logits_in_blocks(model, model.state_dict(), data, block_size=9, hops=2)
    close(made, predict(model, model.state_dict(), data), atol=1e-5)


class Centred(torch.nn.Module):
    """A model that looks at the whole graph: it takes the mean over all nodes away."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.lin(x) - self.lin(x).mean(0)


class Pooled(Centred):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return super().forward(x, edge_index).mean(0, keepdim=True)


def test_too_few_hops_are_found() -> None:
    """GCNConv reads its neighbours' degrees; no number of hops is enough for a mean over all."""
    data, (gcn, hops) = graph(200), of_pyg("GCN")
    gcn.eval()
    for model, few in ((gcn, hops - 1), (gcn, 1), (Centred(), 1)):
        with pytest.raises(ValueError, match="Expected no node to look farther than hops, but got"):
            logits_in_blocks(model, model.state_dict(), data, block_size=50, hops=few)
    with pytest.raises(ValueError, match="Expected the model to return a row for each of"):
        logits_in_blocks(Pooled(), Pooled().state_dict(), data, block_size=50, hops=1)


def test_a_sampled_task_scores_a_model_of_pyg_in_blocks() -> None:
    """It was refused where a graph has more nodes than a block."""
    data, (model, _) = graph(60), of_pyg("GCN")
    clients = fgl.data.partitions.partition_graph(
        data, fgl.data.partitions.random_partition(data, 2)
    )
    whole, blocks = (
        fgl.tasks.sampled_node_task(
            data, clients, model, torch.optim.SGD, fanouts=(3, 2), block_size=size
        )
        for size in (1000, 20)
    )
    one, two = (fgl.run(each.fedavg, each, num_rounds=1) for each in (whole, blocks))
    assert one.history[0].metrics == pytest.approx(two.history[0].metrics)

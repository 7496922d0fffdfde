"""PyG twins of trained networks: the same outputs, and what can be exported."""

from typing import Any

import pytest
import torch
from federations import refuses
from torch import nn
from torch.testing import assert_close as close

import fgl

pytest.importorskip("torch_geometric")

NODES = 7


def inputs() -> dict[str, Any]:
    g = torch.Generator().manual_seed(0)
    batch = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    edge_index = (batch[:, None] == batch).nonzero().t()[:, ::2]
    count = edge_index.shape[1]
    return {
        "x": torch.rand(NODES, 4, generator=g),
        "edge_index": edge_index,
        "edge_attr": torch.rand(count, 3, generator=g),
        "edge_type": torch.randint(2, (count,), generator=g),
        "edge_weight": torch.rand(count, generator=g) + 0.1,
        "batch": batch,
    }


NETS: dict[str, tuple[nn.Module, tuple[str, ...]]] = {
    "gcn": (fgl.nn.GCN(4, 8, 3, num_layers=3, dropout=0.5), ()),
    "gcn with weights": (fgl.nn.GCN(4, 8, 3), ("edge_weight",)),
    "gcn of an operator": (fgl.nn.GCN(4, 8, 3, normalize=False), ("edge_weight",)),
    "gcn with a head": (fgl.nn.GCN(4, 8, 3, head=True), ()),
    "one layer": (fgl.nn.GCN(4, 8, 3, num_layers=1), ()),
    "gat": (fgl.nn.GAT(4, 8, 3, heads=2), ()),
    "sage": (fgl.nn.SAGE(4, 8, 3), ()),
    "rgcn": (fgl.nn.RGCN(4, 8, 3, num_relations=2), ("edge_type",)),
    "rgcn with bases": (fgl.nn.RGCN(4, 8, 3, num_relations=2, num_bases=3), ("edge_type",)),
    "gin": (fgl.nn.GIN(4, 8, 3, dropout=0.5), ("batch",)),
    "gin of means": (fgl.nn.GIN(4, 8, 3, pooling="mean"), ("batch",)),
    "gine": (fgl.nn.GINE(4, 8, 3, edge_dim=3), ("edge_attr", "batch")),
}


def of_fgl(model: nn.Module, fields: tuple[str, ...]) -> torch.Tensor:
    own = inputs()
    chosen = {name: own[name] for name in fields}
    graph = fgl.Graph(own["x"], own["edge_index"], **chosen)
    return fgl.predict(model, model.state_dict(), graph)  # type: ignore[no-any-return]


def of_twin(twin: nn.Module, fields: tuple[str, ...]) -> torch.Tensor:
    own = inputs()
    if "batch" in fields:
        edge_attr = own["edge_attr"] if "edge_attr" in fields else None
        return twin(own["x"], own["edge_index"], edge_attr, own["batch"])
    return twin(own["x"], own["edge_index"], *(own[name] for name in fields))


def test_a_twin_has_the_outputs() -> None:
    for model, fields in NETS.values():
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(1))
        twin = fgl.nn.to_pyg(model.eval())
        assert not twin.training and fgl.nn.to_pyg(model.train()).training
        assert model.eval().state_dict().keys() <= twin.state_dict().keys()
        close(of_twin(twin, fields), of_fgl(model, fields), atol=2e-6, rtol=1e-5)
        if "batch" in fields:  # graphs alone, and a batch whose last graph has no node
            own = inputs()
            alone = [own["x"], own["edge_index"], own["edge_attr"] if len(fields) > 1 else None]
            single = fgl.Graph(*alone[:2], edge_attr=alone[2])
            close(twin(*alone), fgl.predict(model, model.state_dict(), single))
            close(twin(*alone, own["batch"], 4)[:3], of_twin(twin, fields))
            assert len(twin(*alone, own["batch"], 4)) == 4
        with torch.no_grad():
            next(twin.parameters()).zero_()
        assert next(model.parameters()).abs().sum() > 0  # a copy


def test_each_convolution_has_a_twin() -> None:
    own = inputs()
    conv = fgl.nn.GATConv(4, 2, heads=3).double()
    twin = fgl.nn.to_pyg(conv)
    x = own["x"].double()
    close(twin(x, own["edge_index"]), conv(x, own["edge_index"]))


SIZES = {"x": {0: torch.export.Dim("n", min=2)}, "edge_index": {1: torch.export.Dim("m", min=2)}}
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("gat", "sage", "gin")]
EXPORTED = ["gcn", *SLOW]  # PyG's RGCNConv reads a number from a tensor


def larger() -> tuple[torch.Tensor, torch.Tensor]:
    """Another graph than the one that was traced."""
    g = torch.Generator().manual_seed(2)
    return torch.rand(11, 4, generator=g), torch.randint(11, (2, 30), generator=g)


@pytest.mark.parametrize("name", EXPORTED)
def test_an_exported_twin_reads_graphs_of_other_sizes(name: str) -> None:
    twin, own = fgl.nn.to_pyg(NETS[name][0].eval()), inputs()
    exported = torch.export.export(twin, (own["x"], own["edge_index"]), dynamic_shapes=SIZES)
    close(exported.module()(*larger()), twin(*larger()))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EXPORTED)
def test_onnx_has_the_outputs(name: str) -> None:
    pytest.importorskip("onnxscript")
    reference = pytest.importorskip("onnx.reference")
    twin, own = fgl.nn.to_pyg(NETS[name][0].eval()), inputs()
    arguments = (own["x"], own["edge_index"])
    program: Any = torch.onnx.export(twin, arguments, dynamo=True, dynamic_shapes=SIZES)
    names = [each.name for each in program.model_proto.graph.input]
    fields = dict(zip(names, (each.numpy() for each in larger()), strict=True))
    [out] = reference.ReferenceEvaluator(program.model_proto).run(None, fields)
    close(torch.from_numpy(out), twin(*larger()).detach())


def test_what_has_no_twin() -> None:
    refuses("MLP", lambda: fgl.nn.to_pyg(fgl.nn.MLP(4, 8, 3)), TypeError)
    refuses("summed=True", lambda: fgl.nn.to_pyg(fgl.nn.GCN(4, 8, 3, summed=True)))


def test_a_network_that_does_more_has_no_twin() -> None:
    class Doubled(fgl.nn.GCN):
        def forward(self, *args: Any, **options: Any) -> Any:
            return super().forward(*args, **options) * 2

    refuses("Doubled", lambda: fgl.nn.to_pyg(Doubled(4, 8, 3)), TypeError)
    hooked = fgl.nn.GCN(4, 8, 3)
    hooked.register_forward_hook(lambda module, arguments, out: out * 2)
    refuses("hooks", lambda: fgl.nn.to_pyg(hooked), TypeError)

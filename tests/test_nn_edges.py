"""Networks that read edges: GINE and RGCN beside loops, alone and in a batch."""

from typing import Any

import pytest
import torch
from federations import close, refuses
from torch import Tensor
from torch.func import functional_call
from torch_geometric import nn as pyg

import fgl
from fgl import Graph
from fgl.nn import GINE, RGCN
from fgl.predict import predict


def graph(nodes: int, edges: int, seed: int = 0, **given: Any) -> Graph:
    generator = torch.Generator().manual_seed(seed)
    fields: dict[str, Any] = {
        "edge_attr": torch.rand(edges, 3, generator=generator, dtype=torch.float64) - 0.5,
        "edge_type": torch.randint(0, 3, (edges,), generator=generator),
    }
    x = torch.randn(nodes, 4, generator=generator, dtype=torch.float64)
    ends = torch.randint(0, nodes, (2, edges), generator=generator)  # repeats and loops
    return Graph(x, ends, **{**fields, **given})


def ready(network: Any) -> Any:
    return network.double().eval()


def params_of(network: Any) -> dict[str, Tensor]:
    return {**dict(network.named_parameters()), **dict(network.named_buffers())}


@pytest.mark.parametrize("kind", ["gine", "rgcn"])
def test_entries_of_value_zero_are_absent(kind: str) -> None:
    given = graph(6, 18)
    keep = torch.arange(18) % 3 > 0
    value = keep.double()[given.entry_order]
    fewer = given.replace(
        edge_index=given.edge_index[:, keep],
        edge_attr=given.edge_attr[keep],  # type: ignore[index]
        edge_type=given.edge_type[keep],  # type: ignore[index]
    )
    dropped = given.with_adj(given.adj.with_value(value))
    for model in networks(kind):
        close(predict(model, params_of(model), dropped), predict(model, params_of(model), fewer))


def networks(kind: str) -> list[Any]:
    torch.manual_seed(3)
    if kind == "gine":
        return [ready(GINE(4, 6, 2, edge_dim=3, pooling=how)) for how in ("sum", "mean")]
    return [ready(RGCN(4, 6, 2, num_relations=3, num_bases=bases)) for bases in (None, 2)]


def test_models_say_what_is_missing() -> None:
    model = GINE(4, 6, 2, edge_dim=3)
    bare = graph(3, 4).replace(edge_attr=None)
    with pytest.raises(
        ValueError, match=r"have \['edge_attr'\], which GINE's forward reads, but got"
    ):
        predict(model, params_of(model), bare)
    for bad, message in (
        ({"num_layers": 0}, "num_layers"),
        ({"dropout": 2.0}, "dropout"),
        ({"pooling": "max"}, "pooling"),
    ):
        with pytest.raises(ValueError, match=message):
            GINE(4, 6, 2, edge_dim=3, **bad)  # type: ignore[arg-type]
    refuses("num_relations", lambda: RGCN(4, 6, 2, num_relations=0))
    refuses("num_bases", lambda: RGCN(4, 6, 2, num_relations=2, num_bases=0))


def test_embeddings_are_those_of_the_last_hidden_layer() -> None:
    given = graph(6, 15)
    (rgcn, _), (gine, _) = networks("rgcn"), networks("gine")
    out, embedding = predict(rgcn, params_of(rgcn), given, return_embedding=True)
    first = rgcn.convs[0](given.x, given.adj, given.entries("edge_type"))
    close(embedding, first)
    close(out, predict(rgcn, params_of(rgcn), given))
    out, pooled = predict(gine, params_of(gine), given, return_embedding=True)
    close(gine.readout(gine.post(pooled).relu()), out)


def test_a_model_without_embeddings_is_given_them() -> None:
    given = graph(6, 15)
    model = ready(pyg.GAT(4, 6, 2, 2))
    wrapped = fgl.nn.Embedded(model, before="convs.1")
    out, embedding = predict(wrapped, params_of(wrapped), given, return_embedding=True)
    close(out, model(given.x, given.edge_index))
    close(embedding, model.convs[0](given.x, given.edge_index).relu())
    close(predict(wrapped, params_of(wrapped), given), out)
    with pytest.raises(ValueError, match=r"before to be one of \['dropout', .*, but got 'convs.7'"):
        fgl.nn.Embedded(model, before="convs.7")
    never = fgl.nn.Embedded(Unused(), before="layer")
    with pytest.raises(ValueError, match="the model to call 'layer', but it did not"):
        functional_call(never, {}, (given.x,), {"return_embedding": True})


class Unused(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return x

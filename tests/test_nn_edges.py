"""Networks that read edges: GINE and RGCN beside loops, alone and in a batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from federations import close
from torch import Tensor
from torch.func import functional_call, vmap
from torch_geometric import nn as pyg

import fgl
from fgl import Graph, SparseMatrix
from fgl.federation import Cohort
from fgl.nn import GINE, RGCN, GINEConv, RGCNConv
from fgl.predict import predict
from fgl.sparse.batched_pattern import Member


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


def gine_by_hand(conv: GINEConv, given: Graph) -> Tensor:
    total = given.x.clone()  # type: ignore[union-attr]
    attr: Any = given.edge_attr
    for e in range(given.num_edges):
        source, target = given.edge_index[:, e].tolist()
        total[target] += (given.x[source] + conv.lin(attr[e])).relu()  # type: ignore[index]
    out: Tensor = conv.nn(total)
    return out


def rgcn_by_hand(conv: RGCNConv, given: Graph) -> Tensor:
    weight = conv.weight
    if conv.num_bases is not None:
        weight = torch.einsum("rb,bio->rio", conv.comp, conv.weight)
    kinds: Any = given.edge_type
    rows = []
    for v in range(given.num_nodes):
        row = given.x[v] @ conv.root + conv.bias  # type: ignore[index]
        for r in range(conv.num_relations):
            here = [
                int(given.edge_index[0, e])
                for e in range(given.num_edges)
                if int(given.edge_index[1, e]) == v and int(kinds[e]) == r
            ]
            for u in here:
                row = row + given.x[u] @ weight[r] / len(here)  # type: ignore[index]
        rows.append(row)
    return torch.stack(rows)


@pytest.mark.parametrize(("nodes", "edges"), [(7, 20), (5, 0), (1, 2)])
def test_gine_is_what_its_formula_says(nodes: int, edges: int) -> None:
    given, conv = graph(nodes, edges), ready(GINEConv(4, 6, edge_dim=3))
    want = gine_by_hand(conv, given)
    close(conv(given.x, given.adj, given.entries("edge_attr")), want)
    close(conv(given.x, given.edge_index, given.edge_attr), want)


@pytest.mark.parametrize("bases", [None, 2])
@pytest.mark.parametrize(("nodes", "edges"), [(7, 20), (5, 0), (1, 2)])
def test_rgcn_is_what_its_formula_says(nodes: int, edges: int, bases: int | None) -> None:
    given = graph(nodes, edges)
    conv = ready(RGCNConv(4, 5, num_relations=3, num_bases=bases))
    want = rgcn_by_hand(conv, given)
    close(conv(given.x, given.adj, given.entries("edge_type")), want)
    close(conv(given.x, given.edge_index, given.edge_type), want)
    sparse = SparseMatrix.from_dense(given.x)  # type: ignore[arg-type]
    close(conv(sparse, given.adj, given.entries("edge_type")), want)


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


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("kind", ["gine", "rgcn"])
def test_a_batch_of_clients_is_each_alone(kind: str, weights: bool) -> None:
    sizes = [(6, 15), (3, 0), (9, 31)]
    clients = []
    for k, (nodes, edges) in enumerate(sizes):
        value = (torch.arange(edges) % 4).double() if weights else None  # some count as absent
        batch = (torch.arange(nodes) >= nodes // 2).long()
        given = graph(nodes, edges, k, edge_weight=value)
        if kind == "gine":
            same = batch[given.edge_index[0]] == batch[given.edge_index[1]]
            given = given.replace(
                edge_index=given.edge_index[:, same],
                edge_attr=given.edge_attr[same],  # type: ignore[index]
                edge_type=given.edge_type[same],  # type: ignore[index]
                edge_weight=None if value is None else value[same],
                batch=batch,
            )
        clients.append(given)
    cohort = Cohort(clients)
    for model in networks(kind):
        params = params_of(model)
        rows = vmap(lambda i, m=model, p=params: predict(m, p, cohort.graph(Member(i))))(
            cohort.index
        )
        for k, client in enumerate(clients):
            alone = predict(model, params, client)
            close(rows[k, : client.num_examples], alone)


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
    with pytest.raises(ValueError, match="num_relations"):
        RGCN(4, 6, 2, num_relations=0)
    with pytest.raises(ValueError, match="num_bases"):
        RGCN(4, 6, 2, num_relations=2, num_bases=0)


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

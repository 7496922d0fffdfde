"""FedHGN beside a small implementation of its own, by numbers; Hetero beside PyG's networks."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from federations import refuses
from torch import Tensor

import fgl
from fgl.methods import fedhgn
from fgl.methods.fedhgn import nearest

RELATIONS, BASES, LR, ALIGN = 3, 2, 0.1, 0.5


def client(seed: int, n: int = 9) -> fgl.Graph:
    rng = torch.Generator().manual_seed(seed)
    edges = torch.randint(n, (2, 3 * n), generator=rng)
    return fgl.Graph(
        torch.randn(n, 4, generator=rng).double(),
        edges,
        edge_type=torch.randint(RELATIONS, (3 * n,), generator=rng),
        y=torch.randint(3, (n,), generator=rng),
        num_classes=3,
        train_mask=torch.arange(n) < 4 + seed,
    )


def net() -> fgl.nn.RGCN:
    torch.manual_seed(0)
    return fgl.nn.RGCN(
        4, 5, 3, num_relations=RELATIONS, num_bases=BASES, num_layers=2, dropout=0.0
    ).double()


def logits(params: dict[str, Tensor], graph: fgl.Graph) -> Tensor:
    """The network with dense matrices, relation by relation."""
    h = graph.x
    for layer in range(2):
        get = partial(lambda layer, name: params[f"convs.{layer}.{name}"], layer)
        out = h @ get("root") + get("bias")
        for r in range(RELATIONS):
            adj = torch.zeros(graph.num_nodes, graph.num_nodes).double()
            source, target = graph.edge_index[:, graph.edge_type == r]
            adj.index_put_((target, source), torch.ones(len(source)).double(), accumulate=True)
            weight = sum(get("comp")[r, b] * get("weight")[b] for b in range(BASES))
            out = out + adj / adj.sum(1, keepdim=True).clamp(min=1) @ h @ weight
        h = out.relu() if layer == 0 else out
    return h


def twin(
    clients: list[fgl.Graph], rounds: int, steps: int, own: list[Any]
) -> tuple[dict[str, Tensor], list[Any]]:
    """Rounds of FedHGN with plain SGD: the shared tensors, and each client's coefficients."""
    start = {name: value.detach().clone() for name, value in net().state_dict().items()}
    names = [f"convs.{layer}.comp" for layer in range(2)]
    shared = {name: value for name, value in start.items() if name not in names}
    collected = [{name: torch.zeros(1, BASES).double() for name in names} for _ in clients]
    for _ in range(rounds):
        trained = []
        for k, graph in enumerate(clients):
            params = {n: v.clone().requires_grad_() for n, v in {**shared, **own[k]}.items()}
            for _ in range(steps):
                out = logits(params, graph)[graph.train_mask]
                loss = torch.nn.functional.cross_entropy(out, graph.y[graph.train_mask])
                for name in names:
                    rows = [row for j, c in enumerate(collected) if j != k for row in c[name]]
                    for mine in params[name]:
                        far = [((mine - row) ** 2).sum() for row in rows]
                        loss = loss + ALIGN * min(far, key=lambda each: each.item())
                grads = torch.autograd.grad(loss, list(params.values()))
                pairs = zip(params.items(), grads, strict=True)
                params = {n: (v - LR * g).detach().requires_grad_() for (n, v), g in pairs}
            trained.append({name: value.detach() for name, value in params.items()})
        weight = [graph.num_train for graph in clients]
        shared = {
            name: sum(w * t[name] for w, t in zip(weight, trained, strict=True)) / sum(weight)
            for name in shared
        }
        own = [{name: t[name] for name in names} for t in trained]
        collected = own
    return shared, own


@pytest.mark.parametrize(("at_once", "draw"), [(1, True), (3, True), (1, False), (3, False)])
def test_it_is_fedhgn_by_numbers(at_once: int, draw: bool) -> None:
    clients = [client(seed) for seed in range(3)]
    train = fgl.Training(partial(torch.optim.SGD, lr=LR), num_steps=2)
    method, first = fedhgn(fgl.fedavg(net(), train=train), align=ALIGN, draw=draw), {}

    def receive(message: Any, state: Any, graph: fgl.Graph) -> Any:
        params, context = method.receive(message, state, graph)
        first.setdefault(graph, {n: v.clone() for n, v in params.items() if n.endswith("comp")})
        return params, context

    noted = replace(method, receive=receive)
    result = fgl.run(noted, clients, num_rounds=3, clients_at_once=at_once)
    assert not any(each.one_by_one for each in result.history)
    starts = [first[each] for each in clients]
    assert starts[0]["convs.0.comp"].equal(starts[1]["convs.0.comp"]) is not draw
    shared, own = twin(clients, 3, 2, starts)
    for k in range(3):
        message = result.outbox[k]
        assert set(message["model"]) == set(shared)
        used = method.deploy(message, result.client_states[k], clients[k])
        for name, value in {**shared, **own[k]}.items():
            assert torch.allclose(used[name], value, atol=1e-12), name
        others = torch.cat([own[j]["convs.0.comp"] for j in range(3) if j != k])
        assert torch.allclose(message["others"]["convs.0.comp"], others, atol=1e-12)


def test_the_nearest_of_others() -> None:
    own, others = torch.rand(4, 2).double(), torch.rand(6, 2).double()
    want = sum(min(float(((c - o) ** 2).sum()) for o in others) for c in own)
    assert float(nearest(own, others)) == pytest.approx(want)
    assert float(nearest(own, others[:0])) == 0
    assert torch.autograd.gradcheck(nearest, (own.requires_grad_(), others))


def test_a_model_without_bases_is_refused() -> None:
    with pytest.raises(ValueError, match="Expected the model to have coefficients of bases"):
        fedhgn(fgl.fedavg(fgl.nn.RGCN(4, 5, 3, num_relations=2)))


def typed() -> tuple[fgl.Graph, dict[str, int], list[tuple[str, str, str]]]:
    relations = [("paper", "by", "author"), ("author", "wrote", "paper")]
    by = torch.tensor([[0, 0, 1, 2, 3], [0, 1, 1, 2, 0]])
    graph = fgl.data.typed_graph(
        {"paper": torch.rand(4, 3) + 0.1, "author": torch.rand(3, 2) + 0.1},
        {relations[0]: by, relations[1]: by.flip(0)},
        y={"author": torch.tensor([0, 1, 1])},
    )
    return graph.replace(x=graph.x.to_dense()), {"paper": 3, "author": 2}, relations


def networks(relations: list[Any]) -> dict[str, Any]:
    pyg = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)

    class Convs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = {"paper": 3, "author": 2}
            convs = {each: pyg.SAGEConv((sizes[each[0]], sizes[each[2]]), 2) for each in relations}
            self.conv = pyg.HeteroConv(convs)

        def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
            return self.conv(x_dict, edge_index_dict)

    metadata = (["paper", "author"], relations)
    return {"HeteroConv": Convs(), "HGT": pyg.HGTConv({"paper": 3, "author": 2}, 2, metadata)}


@pytest.mark.parametrize("name", ["HeteroConv", "HGT"])
def test_networks_of_dicts_run_on_typed_graphs(name: str) -> None:
    graph, columns, relations = typed()
    model = networks(relations)[name]
    net = fgl.nn.Hetero(model, columns, relations, target="author")
    x_dict = {"paper": graph.x[:4, :3], "author": graph.x[4:, 3:]}
    edges = {each: graph.edge_index[:, graph.edge_type == k] for k, each in enumerate(relations)}
    edges[relations[0]] = edges[relations[0]] - torch.tensor([[0], [4]])
    edges[relations[1]] = edges[relations[1]] - torch.tensor([[4], [0]])
    out = fgl.predict(net, dict(net.named_parameters()), graph)
    assert torch.allclose(out[4:], model(x_dict, edges)["author"], atol=1e-6)
    assert out[:4].eq(0).all()
    clients = [graph, graph.subgraph(torch.tensor([0, 1, 4, 5]))]
    clients[0] = graph.subgraph(torch.arange(7))
    method = fgl.fedavg(net, train=fgl.Training(num_steps=3))
    with pytest.raises(RuntimeError, match="Hetero to be called for one client, but got a batch"):
        fgl.run(method, clients, num_rounds=1, clients_at_once=2)
    result = fgl.run(method, clients, num_rounds=3)  # one by one, without a warning
    assert result.history[-1].loss < result.history[0].loss and not result.history[0].one_by_one


def test_hetero_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match=r"a type of \['paper'\], but got \['author'"):
        fgl.nn.Hetero(torch.nn.Identity(), {"paper": 3}, [], target="author")
    graph, _, relations = typed()
    net = fgl.nn.Hetero(torch.nn.Identity(), {"paper": 3, "author": 9}, relations, target="paper")
    refuses("Expected x to have 12 columns", lambda: fgl.predict(net, {}, graph))
    with pytest.raises(ValueError, match=r"target to be a type or one of .*'strange'"):
        fgl.nn.Hetero(net.model, {"paper": 3}, [], target=("paper", "strange", "paper"))


def test_a_target_is_what_the_examples_are() -> None:
    """Pairs are of one relation, whose types their ends have; a mask of pairs is of no nodes."""
    graph, columns, relations = typed()
    edges = graph.edge_index[:, graph.edge_type == 0]
    mask = torch.ones(edges.shape[1], dtype=torch.bool)
    asked = {"edge_label_index": edges, "y": torch.rand(len(mask)), "num_classes": None}
    pairs = graph.replace(**asked, train_mask=mask, val_mask=None, test_mask=None)

    class Ends(torch.nn.Module):
        def forward(self, x_dict: Any, edge_index_dict: Any, edge_label_index: Any) -> Any:
            source, target = (x_dict[relations[0][end]] for end in (0, 2))
            return source[edge_label_index[0], :1] + target[edge_label_index[1], :1]

    own, other = (fgl.nn.Hetero(Ends(), columns, relations, target=of) for of in relations[:2])
    x = graph.x[:, :3].sum(1, keepdim=True) * 0
    x[:4], x[4:] = graph.x[:4, :1], graph.x[4:, 3:4]
    assert torch.equal(fgl.predict(own, {}, pairs), x[edges[0]] + x[edges[1]])
    with pytest.raises(ValueError, match=f"pairs of .*, but got {len(mask)} that join other"):
        fgl.predict(other, {}, pairs)
    for net, data in ((own, graph), (fgl.nn.Hetero(Ends(), columns, relations, "author"), pairs)):
        with pytest.raises(ValueError, match="target to be a relation if the examples are pairs"):
            fgl.predict(net, {}, data)


def with_attr(both: bool) -> tuple[Any, fgl.Graph]:
    """PyG's data with features of edges, two columns and one, and the graph made of it."""
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    torch.manual_seed(1)
    data["paper"].x, data["author"].x = torch.rand(4, 3) + 0.1, torch.rand(3, 2) + 0.1
    data["author"].y = torch.tensor([0, 1, 1])
    for name, width in (("by", 2), ("edits", 1), ("owns", 0)):
        store = data["paper", name, "author"]
        store.edge_index = torch.tensor([[0, 0, 1, 2, 3], [0, 1, 1, 2, 0]])
        if width:
            store.edge_attr = torch.rand(5, width) + 0.1
    graph = fgl.data.from_hetero(data, both=both)
    return data, graph.replace(x=graph.x.to_dense())


class Attending(torch.nn.Module):
    def __init__(self, relations: list[Any], widths: dict[Any, int]) -> None:
        super().__init__()
        pyg, sizes = pytest.importorskip("torch_geometric.nn"), {"paper": 3, "author": 2}
        convs = {
            each: pyg.GATv2Conv(
                (sizes[each[0]], sizes[each[2]]),
                2,
                edge_dim=widths[each] or None,
                add_self_loops=False,
            )
            for each in relations
        }
        self.conv = pyg.HeteroConv(convs)

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_attr_dict: Any = None) -> Any:
        attr = {} if edge_attr_dict is None else {"edge_attr_dict": edge_attr_dict}
        return self.conv(x_dict, edge_index_dict, **attr)


@pytest.mark.filterwarnings("ignore:There exist node types")  # without reverses papers end here
@pytest.mark.parametrize("both", [False, True])
def test_features_of_edges_reach_the_network_of_dicts(both: bool) -> None:
    """As PyG's own loop over the relations gives it, and training reads them."""
    from torch_geometric.transforms import ToUndirected

    data, graph = with_attr(both)
    whole = ToUndirected()(data.clone()) if both else data
    widths = whole.num_edge_features
    model = Attending(whole.edge_types, widths)
    net = fgl.nn.Hetero(model, whole.num_node_features, whole.edge_types, "author", widths)
    want = model(whole.x_dict, whole.edge_index_dict, whole.edge_attr_dict)["author"]
    assert torch.allclose(fgl.predict(net, dict(net.named_parameters()), graph)[4:], want)
    bare = fgl.nn.Hetero(model.conv, whole.num_node_features, whole.edge_types, "author", widths)
    assert torch.allclose(fgl.predict(bare, dict(bare.named_parameters()), graph)[4:], want)
    other = graph.replace(edge_attr=graph.edge_attr * 3)
    assert not torch.allclose(fgl.predict(net, dict(net.named_parameters()), other)[4:], want)
    result = fgl.run(fgl.fedavg(net, train=fgl.Training(num_steps=2)), [graph], num_rounds=2)
    assert result.history[-1].loss < result.history[0].loss


class Told(torch.nn.Module):
    """What it was told of edges, for the test to see."""

    told: Any = None

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_attr_dict: Any = "default") -> Any:
        self.told = edge_attr_dict
        return x_dict


class Needing(Told):
    def forward(self, x_dict: Any, edge_index_dict: Any, edge_attr_dict: Any) -> Any:
        return x_dict


def test_features_of_edges_that_do_not_fit_are_refused() -> None:
    data, graph = with_attr(False)
    columns, relations, widths = data.num_node_features, data.edge_types, data.num_edge_features
    without, told = graph.replace(edge_attr=None), Told()
    fgl.predict(fgl.nn.Hetero(told, columns, relations, "author", widths), {}, without)
    assert told.told == "default"
    fgl.predict(fgl.nn.Hetero(told, columns, relations, "author", widths), {}, graph)
    assert list(told.told) == relations[:2]
    with pytest.raises(ValueError, match="have edge_attr, which Needing's forward reads as edge_a"):
        fgl.predict(fgl.nn.Hetero(Needing(), columns, relations, "author"), {}, without)
    with pytest.raises(ValueError, match="Expected edge_columns to name .* all 3 columns"):
        fgl.predict(fgl.nn.Hetero(Told(), columns, relations, "author"), {}, graph)
    turned = dict(zip(relations[:2], (1, 2), strict=True))
    with pytest.raises(ValueError, match="Expected edge_attr to be 0 outside the columns"):
        fgl.predict(fgl.nn.Hetero(Told(), columns, relations, "author", turned), {}, graph)
    with pytest.raises(ValueError, match="Expected edge_columns to be of"):
        fgl.nn.Hetero(Told(), columns, relations, "author", {("a", "b", "c"): 1})
    with pytest.raises(ValueError, match="Expected Silent's forward to have edge_attr_dict"):
        fgl.nn.Hetero(Silent(), columns, relations, "author", widths)


class Silent(torch.nn.Module):
    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        return x_dict


BY, WROTE = ("paper", "by", "author"), ("author", "wrote", "paper")
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"columns": {"author": 2, "paper": 3}, "relations": []}, "Expected relations to name .* 2 in"),
    ({"columns": {"author": 2, "paper": 3}}, "to join these types, but got one from"),
    ({"columns": {"paper": 2, "author": 3}}, "Expected x to be 0 outside the columns"),
    ({"columns": {"paper": 5}, "relations": [], "target": "paper"}, "Expected columns to name"),
    ({"relations": [BY]}, "Expected relations to name the graph's 2 in their order"),
    ({"relations": [WROTE, BY]}, "Expected edges of .* to join these types, but got one from"),
    ({"target": "paper"}, "training nodes to be of the target 'paper', but got one of 'author'"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=range(len(WRONG)))
def test_names_that_do_not_fit_the_graph_are_refused(change: Any, message: str) -> None:
    graph, columns, relations = typed()
    given = {"columns": columns, "relations": relations, "target": "author"} | change
    net = fgl.nn.Hetero(Silent(), **given)
    refuses(message, lambda: fgl.predict(net, {}, graph))


def test_who_is_absent_keeps_its_coefficients() -> None:
    clients = [client(seed) for seed in range(3)]
    method = fedhgn(fgl.fedavg(net()))
    state: dict[str, Any] = {"model": method.initial()}
    uploads = {}
    for k in (0, 2):
        params, context = method.receive({"model": method.initial()}, {}, clients[k])
        params = {name: value + k + 1 for name, value in params.items()}
        uploads[k], _ = method.send(params, context, {}, clients[k])
    outbox, state = method.aggregate(fgl.federation.Inbox(uploads, 3), state)
    assert state["coefficients"]["convs.0.comp"][1].eq(0).all()
    one = {0: uploads[0]}
    again, later = method.aggregate(fgl.federation.Inbox(one, 3), state)
    assert torch.equal(
        later["coefficients"]["convs.1.comp"][2], uploads[2]["coefficients"]["convs.1.comp"]
    )
    assert sorted(again) == sorted(outbox) == [0, 1, 2]

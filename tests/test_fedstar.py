"""FedStar: encodings of structure, the model of two channels, and what of it travels."""

from dataclasses import replace
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from conformance import CLASSES, FEATURES, K, case, known
from federations import close, refuses, same

import fgl
from fgl.methods import fedstar
from fgl.nn import Star
from fgl.properties import structure_encoding
from fgl.properties.encodings import walk_returns
from fgl.tasks import with_structure

F64 = torch.float64


def edges_of(network: Any) -> torch.Tensor:
    pairs = torch.tensor(list(network.edges), dtype=torch.int64).view(-1, 2).T
    return torch.cat([pairs, pairs.flip(0)], dim=1)


def by_powers(network: Any, steps: int) -> torch.Tensor:
    """Diagonals of the powers of A D^-1, as matrices."""
    matrix = networkx.to_numpy_array(network, nodelist=range(network.number_of_nodes()))
    degree = matrix.sum(0)
    walk = matrix * np.divide(1.0, degree, out=np.zeros_like(degree), where=degree > 0)
    powers = [np.linalg.matrix_power(walk, step) for step in range(1, steps + 1)]
    return torch.tensor(np.stack([np.diag(each) for each in powers], axis=1)).float()


NETWORKS = {
    "path": networkx.path_graph(5),
    "star of 20": networkx.star_graph(20),
    "triangle and one alone": networkx.disjoint_union(
        networkx.complete_graph(3), networkx.empty_graph(1)
    ),
    "karate": networkx.karate_club_graph(),
    "no edges": networkx.empty_graph(4),
    "larger than what is followed at a time": networkx.gnp_random_graph(300, 0.01, seed=1),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("steps", [1, 2, 7, 16])
def test_walk_returns_are_the_diagonals_of_powers(name: str, steps: int) -> None:
    network = networkx.Graph(networkx.to_edgelist(NETWORKS[name], nodelist=None))
    network.add_nodes_from(range(NETWORKS[name].number_of_nodes()))
    for *_, data in network.edges(data=True):
        data.clear()  # karate has weights
    found = walk_returns(edges_of(network), network.number_of_nodes(), steps=steps)
    close(found, by_powers(network, steps))


def test_directions_repeats_and_loops_do_not_count() -> None:
    one = torch.tensor([[0, 1], [1, 2]])
    more = torch.tensor([[1, 1, 2, 0, 0, 3], [0, 0, 1, 1, 0, 3]])
    close(structure_encoding(one, 4), structure_encoding(more, 4))


def test_empty() -> None:
    none = torch.zeros(2, 0, dtype=torch.int64)
    assert structure_encoding(none, 0).shape == (0, 32)
    assert structure_encoding(none, torch.zeros(0, dtype=torch.int64)).shape == (0, 32)
    found = structure_encoding(none, 2)
    assert found[:, 16].tolist() == [1.0, 1.0] and float(found.sum()) == 2.0


@pytest.mark.parametrize(("given", "options", "said"), [
    ((torch.tensor([[0], [5]]), 3), {}, "edge_index"),
    ((torch.tensor([[0], [1]]), torch.tensor([0, 1])), {}, "inside a graph"),
    ((torch.tensor([[0], [1]]), 2), {"steps": 0}, "steps"),
    ((torch.tensor([[0], [1]]), 2), {"max_degree": 0}, "max_degree"),
])  # fmt: skip
def test_encodings_refuse(given: Any, options: Any, said: str) -> None:
    refuses(said, lambda: structure_encoding(*given, **options))


def by_hand(model: Star, x: torch.Tensor, dense: torch.Tensor, batch: Any) -> torch.Tensor:
    """The two channels with dense matrices, layer by layer."""
    p = dict(model.named_parameters())

    def linear(name: str, value: torch.Tensor) -> torch.Tensor:
        return value @ p[f"{name}.weight"].T + p[f"{name}.bias"]

    looped = dense + torch.eye(len(dense)).to(dense)
    scale = looped.sum(1) ** -0.5
    gcn = scale[:, None] * looped * scale
    h, s = linear("pre", x[:, :5]), linear("structure_pre", x[:, 5:])
    for depth in range(2):
        both = looped @ torch.cat([h, s], 1)
        conv = f"convs.{depth}.nn"
        h = linear(f"{conv}.2", linear(f"{conv}.0", both).relu()).relu()
        name = f"structure_convs.{depth}"
        s = (gcn @ s @ p[f"{name}.lin.weight"].T + p[f"{name}.bias"]).tanh()
    h = linear("join", torch.cat([h, s], 1))
    if batch is not None:
        h = torch.stack([h[batch == k].sum(0) for k in batch.unique()])
    return linear("readout", linear("post", h).relu())


@pytest.mark.parametrize("pooling", ["sum", "none"])
def test_the_model_by_hand(pooling: Any) -> None:
    own = with_structure(fgl.Graph.join(*fgl.data.small_graphs(6)))
    own = own.replace(x=own.x.double())
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Star(5, 8, 3, num_layers=2, pooling=pooling).double().eval()
    batch = own.batch if pooling == "sum" else None
    want = by_hand(model, own.x, own.adj.to_dense().double(), batch)
    close(model(*own.inputs), want, atol=1e-9)
    close(model(own.x, own.edge_index, own.batch), want, atol=1e-9)
    grads = [torch.autograd.grad(v.square().sum(), list(model.parameters())) for v in
             (model(*own.inputs), want)]  # fmt: skip
    close(grads[0], grads[1], atol=1e-7)
    assert all(each.abs().sum() > 0 for each in grads[0])


def test_without_a_pool_all_nodes_are_one_graph() -> None:
    model = Star(4, 8, 2, structure_channels=3).eval()
    x, edges = torch.rand(5, 7), torch.tensor([[0], [1]])
    close(model(x, edges), model(x, edges, torch.zeros(5, dtype=torch.int64)))


@pytest.mark.parametrize(
    "options", [{"num_layers": 0}, {"dropout": 2.0}, {"pooling": "max"}, {"structure_channels": 0}]
)
def test_the_model_refuses(options: Any) -> None:
    refuses(f"Expected {next(iter(options))} to be", lambda: Star(4, 8, 2, **options))
    with pytest.raises(ValueError, match="4 features and 32 encodings"):
        Star(4, 8, 2)(torch.rand(3, 4), torch.tensor([[0], [1]]))


def test_every_client_draws_its_own_feature_channel() -> None:
    """And takes the common structure channel, in its first round; then it goes on with its own."""
    method, made = case("fedstar", "star nodes", dropout=0.0, dtype=F64)
    starts: list[Any] = []

    def send(params: Any, context: Any, state: Any, own: fgl.Graph) -> Any:
        starts.append(context["start"])
        return method.send(params, context, state, own)

    states = fgl.run(replace(method, send=send), made.clients, num_rounds=1).client_states
    fgl.run(replace(method, send=send), made.clients, num_rounds=2)
    first, second = starts[:K], starts[-K:]
    for name, value in method.initial().items():
        structure, bias = name.startswith("structure_"), name.endswith("bias")
        for k in range(K):
            assert same(first[k][name], value) is structure
            assert structure or same(second[k][name], states[k]["model"][name])  # type: ignore[index]
            assert structure or bias or not same(first[k][name], first[k - 1][name])
            spread = (value.std(), first[k][name].std())
            assert structure or bias or 0.5 < float(spread[0] / spread[1]) < 2
    plain = fgl.run(fedstar(made.fedavg, draw=False), made.clients, num_rounds=1)
    assert not same(plain.client_states[0]["model"], states[0]["model"])


def test_a_model_without_the_channel_is_refused() -> None:
    plain = fgl.fedavg(fgl.nn.GCN(FEATURES, 8, CLASSES))
    refuses("structure channel, as fgl.nn.Star has .* got GCN", lambda: fedstar(plain))
    refuses("to name layers", lambda: fedstar(plain, shared=["nowhere"]))


def test_the_model_of_a_client_that_never_trained_is_one() -> None:
    task = known("star nodes", 0.0, F64)
    result = fgl.run(fedstar(task.fedavg), task.clients, num_rounds=1, participation=0.3)
    never = next(client for client in range(K) if client not in result.client_states)
    one, two = (result.model_of(never).state_dict() for _ in range(2))
    assert same(one, two)

"""FedSSP beside a small implementation of its own, by numbers."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from federations import close, refuses
from torch import Tensor
from torch.nn.functional import cross_entropy, gelu

import fgl
from fgl.methods import fedssp
from fgl.nn.ssp import SSP
from fgl.tasks import with_spectrum

LR, WEIGHT, HEADS, WIDTH, STEPS = 0.05, 3.0, 2, 6, 2
STATISTICS = ("running_mean", "running_var", "num_batches_tracked", "mean_embedding")
Numbers = dict[str, Tensor]


def drawn_graph(size: int, seed: int) -> fgl.Graph:
    generator = torch.Generator().manual_seed(seed)
    upper = torch.triu(torch.rand(size, size, generator=generator) < 0.5, 1)
    edges = (upper | upper.T).nonzero().T
    return fgl.Graph(torch.randn(size, 4, generator=generator).double(), edges)


def collection(sizes: list[int], seed: int) -> fgl.Graph:
    """Graphs of these sizes, the last one without an edge."""
    some = [drawn_graph(size, 100 * seed + k) for k, size in enumerate(sizes)]
    some[-1] = some[-1].replace(edge_index=torch.zeros(2, 0, dtype=torch.int64))
    return fgl.Graph.join(some, y=torch.arange(len(sizes)) % 2)


PLAIN = [collection([3, 5, 4, 2], 1), collection([4, 6, 3], 2), collection([5, 2, 4, 1], 3)]
CLIENTS = [with_spectrum(own, width=6) for own in PLAIN]


def net() -> SSP:
    torch.manual_seed(0)
    return SSP(4, WIDTH, 2, num_layers=2, heads=HEADS, dropout=0.0).double()


def linear(p: Numbers, name: str, x: Tensor) -> Tensor:
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def centred(p: Numbers, name: str, x: Tensor, dim: int) -> Tensor:
    gap = x - x.mean(dim, keepdim=True)
    scaled = gap / (gap.square().mean(dim, keepdim=True) + 1e-5).sqrt()
    return scaled * p[f"{name}.weight"] + p[f"{name}.bias"]


def batch_norm(p: Numbers, name: str, x: Tensor) -> Tensor:
    with torch.no_grad():
        p[f"{name}.running_mean"] = 0.9 * p[f"{name}.running_mean"] + 0.1 * x.mean(0)
        p[f"{name}.running_var"] = 0.9 * p[f"{name}.running_var"] + 0.1 * x.var(0)
    return centred(p, name, x, 0)


def two_layers(p: Numbers, name: str, x: Tensor, active: Any) -> Tensor:
    x = active(batch_norm(p, f"{name}.1", linear(p, f"{name}.0", x)))
    return active(batch_norm(p, f"{name}.4", linear(p, f"{name}.3", x)))  # type: ignore[no-any-return]


def filters(p: Numbers, adjacency: Tensor) -> Tensor:
    """``U g_h(L) U^T`` of one graph, ``[n, n, heads]``."""
    value, vectors = torch.linalg.eigh(adjacency.sum(1).diag() - adjacency)
    rows = []
    for number in value:
        angle = [100 * number / 10000 ** (2 * i / WIDTH) for i in range(WIDTH // 2)]
        rows.append(torch.stack([number, *map(torch.sin, angle), *map(torch.cos, angle)]))
    z = linear(p, "eigen_encoder", torch.stack(rows))
    query, key, told = (
        centred(p, "attention_norm", z, 1) @ p["attention.in_proj_weight"].T
        + p["attention.in_proj_bias"]
    ).chunk(3, 1)
    heads = []
    for q, k, v in zip(*(each.chunk(HEADS, 1) for each in (query, key, told)), strict=True):
        heads.append((q @ k.T / math.sqrt(q.shape[1])).softmax(1) @ v)
    z = z + linear(p, "attention.out_proj", torch.cat(heads, 1))
    hidden = gelu(linear(p, "mlp.0", centred(p, "mlp_norm", z, 1)))
    gain = linear(p, "decoder", z + linear(p, "mlp.2", hidden))
    return torch.stack([vectors @ g.diag() @ vectors.T for g in gain.T], -1)


def embeddings(p: Numbers, own: fgl.Graph) -> Tensor:
    """Of each graph, from dense matrices."""
    assert own.batch is not None
    n, big = own.num_nodes, torch.zeros(own.num_nodes, own.num_nodes, dtype=torch.float64)
    big[own.edge_index[0], own.edge_index[1]] = 1.0
    parts = [(own.batch == g).nonzero().squeeze(1) for g in range(int(own.batch.max()) + 1)]
    blocks = [filters(p, big[part][:, part]) for part in parts]
    joined = torch.zeros(n, n, HEADS, dtype=torch.float64)
    for part, block in zip(parts, blocks, strict=True):
        joined[part[:, None], part] = block
    channels = torch.full((n, n, WIDTH), -torch.inf, dtype=torch.float64)
    source, target = big.nonzero().T
    channels[target, source] = two_layers(p, "filter_encoder", joined[source, target], gelu)
    weight = channels.softmax(1).nan_to_num(0.0)
    x = linear(p, "feature_encoder", own.x).relu()  # type: ignore[arg-type]
    for depth in range(2):
        name = f"convs.{depth}"
        y = x + (weight * gelu(linear(p, f"{name}.pre.0", x))[None]).sum(1)
        x = y + two_layers(p, f"{name}.mlp", y, torch.relu)
    return torch.stack([x[part].mean(0) for part in parts])


def train(p: Numbers, own: fgl.Graph, agreed: Tensor | None) -> Numbers:
    p = dict(p)
    names = [name for name in p if not name.endswith(STATISTICS)]
    for _ in range(STEPS):
        leaves = {name: p[name].detach().requires_grad_() for name in names}
        p = {**p, **leaves}
        rep = embeddings(p, own)
        p["mean_embedding"] = rep.detach().mean(0)
        if agreed is None:
            value = cross_entropy(linear(p, "head", rep), own.y)  # type: ignore[arg-type]
        else:  # as the authors write it: half of a mean, a hundred times half of its distance
            moving = 0.5 * torch.zeros_like(rep[0]) + 0.5 * rep.mean(0)
            far = torch.mean(0.5 * (moving - 0.5 * agreed) ** 2)
            value = cross_entropy(linear(p, "head", rep + p["preference"]), own.y)  # type: ignore[arg-type]
            value = value + far * 4 * WEIGHT
        grads = torch.autograd.grad(value, [leaves[n] for n in names], allow_unused=True)
        for name, grad in zip(names, grads, strict=True):
            p[name] = leaves[name].detach() - (0 if grad is None else LR * grad)
    return p


def twin(models: list[Numbers], rounds: int) -> tuple[list[Numbers], Tensor]:
    """What clients have trained, and the consensus, after some rounds."""
    agreed: Any = None
    for index in range(rounds):
        trained = [train(p, own, agreed) for p, own in zip(models, PLAIN, strict=True)]
        agreed = sum(p["mean_embedding"] for p in trained) / len(trained)
        models = trained
        if index:
            common = [n for n in trained[0] if "encoder" in n and "feature" not in n]
            common = [n for n in common if not n.endswith(STATISTICS)]
            mean = {n: sum(p[n] for p in trained) / len(trained) for n in common}
            models = [{**p, **mean} for p in trained]  # type: ignore[dict-item]
    return models, agreed


def run(rounds: int, lr: float = LR, **options: Any) -> fgl.Result:
    how = fgl.Training(partial(torch.optim.SGD, lr=lr), num_steps=STEPS)
    method = fedssp(fgl.fedavg(net(), train=how), weight=WEIGHT, **options)
    return fgl.run(method, CLIENTS, num_rounds=rounds, seed=3, clients_at_once=1)


def first_models() -> list[Numbers]:
    """What clients draw: a round that trains nothing, without its statistics."""
    initial, result = net().state_dict(), run(1, lr=0.0)
    fresh = {name: value for name, value in initial.items() if name.endswith(STATISTICS)}
    return [{**result.client_states[k]["model"], **fresh} for k in range(3)]


def test_it_is_fedssp_by_numbers() -> None:
    result = run(3)
    first = first_models()
    assert not first[0]["eigen_encoder.weight"].equal(first[1]["eigen_encoder.weight"])
    models, agreed = twin(first, 3)
    close(result.outbox[0]["consensus"], agreed, atol=1e-12)
    assert set(result.outbox[0]["model"]) == {
        n for n in result.outbox[0]["model"] if "encoder" in n
    }
    for client, want in enumerate(models):
        method: Any = result.method
        got = method.deploy(result.outbox[client], result.client_states[client], CLIENTS[client])
        want = {n: v for n, v in want.items() if not n.endswith("num_batches_tracked")}
        close({name: got[name] for name in want}, want, atol=1e-12)
        assert got["preference"].any()


def test_the_spectrum_is_joined_to_sparse_features_as_to_dense_ones() -> None:
    x = torch.tensor([[0.0, 2.0], [1.0, 0.0], [0.0, 0.0]])
    own = fgl.Graph(x, torch.tensor([[0, 1], [1, 0]]))
    sparse = own.replace(x=fgl.SparseMatrix.from_dense(x))
    assert torch.equal(with_spectrum(sparse).x, with_spectrum(own).x)  # type: ignore[arg-type]
    assert torch.equal(with_spectrum(own).x[:, :2], x)  # type: ignore[index]


def test_no_mean_of_encoders_is_made_of_the_first_round() -> None:
    one = run(1)
    assert set(one.outbox[0]) == {"consensus"}
    assert not any("running" in n or "num_batches" in n for n in run(2).outbox[0]["model"])


def test_graphs_are_read_alone_and_in_any_order_of_nodes() -> None:
    model = net().eval()
    whole = model(*CLIENTS[0].inputs)
    for k in range(4):
        close(model(*CLIENTS[0].select(torch.tensor([k])).inputs), whole[[k]], atol=1e-10)
    graph = drawn_graph(7, 5)
    order = torch.randperm(7)
    turned = fgl.Graph(graph.x[order], order.argsort()[graph.edge_index])  # type: ignore[index]
    got = model(*with_spectrum(turned).inputs)
    close(got, model(*with_spectrum(graph).inputs), atol=1e-10)


def test_what_it_refuses() -> None:
    refuses(r"an fgl.nn.SSP, but got GIN", lambda: fedssp(fgl.fedavg(fgl.nn.GIN(4, 8, 2))))
    refuses("multiple of heads=4, but got 6", lambda: SSP(4, 6, 2))
    refuses("hidden_channels to be .* >= 2, but got 0", lambda: SSP(4, 0, 2))
    refuses("4 features and a spectrum", lambda: net()(*PLAIN[0].inputs))
    accept: Any = fedssp(fgl.fedavg(net())).accept
    with pytest.raises(ValueError, match=r"mean_embedding to have shape \[6\], but got \[2\]"):
        accept({"num_examples": torch.tensor(1), "mean_embedding": torch.ones(2)}, 0, {})

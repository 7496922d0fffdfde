"""Federated methods written again in loops, in double: a network, its loss and SGD, all dense."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
from federations import CLASSES, FEATURES, double, graph
from torch import Tensor, optim

import fgl
from fgl import Method, Training

LR, STEPS = 0.1, 3
Params = dict[str, Tensor]
Loss = Callable[[Params], Tensor]


def clients(sizes: Sequence[int] = (12, 20, 15), **how: Any) -> list[fgl.Graph]:
    return double([graph(size, seed=k, **how) for k, size in enumerate(sizes)])


def plain(lr: float = LR, steps: int = STEPS, **more: Any) -> Method:
    """FedAvg of a GCN without dropout, by plain SGD on all nodes."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = fgl.nn.GCN(FEATURES, 8, CLASSES, dropout=0.0).double()
    return fgl.fedavg(net, train=Training(partial(optim.SGD, lr=lr, **more), num_steps=steps))


def adjacency(own: fgl.Graph) -> Tensor:
    """``A``, dense: rows are targets."""
    adj = torch.zeros(own.num_nodes, own.num_nodes, dtype=torch.float64)
    for source, target in own.edge_index.T.tolist():
        adj[target, source] += 1
    return adj


def normalised(adj: Tensor) -> Tensor:
    """``D^-1/2 (A + I) D^-1/2``."""
    looped = adj + torch.eye(len(adj)).to(adj)
    scale = looped.sum(1).rsqrt()
    return scale[:, None] * looped * scale


@cache
def operator(own: fgl.Graph) -> Tensor:
    return normalised(adjacency(own))


def forward(params: Params, own: fgl.Graph) -> tuple[Tensor, Tensor]:
    """Logits, and the hidden layer before its ReLU."""
    return gcn(params, own.x, operator(own))


def gcn(params: Params, x: Any, matrix: Tensor) -> tuple[Tensor, Tensor]:
    hidden = matrix @ (x @ params["convs.0.lin.weight"].T) + params["convs.0.bias"]
    out = matrix @ (hidden.relu() @ params["convs.1.lin.weight"].T) + params["convs.1.bias"]
    return out, hidden


def train_nodes(own: fgl.Graph) -> list[int]:
    mask: Any = own.train_mask
    return [v for v in range(own.num_nodes) if mask[v]]


def label(own: fgl.Graph, v: int) -> int:
    y: Any = own.y
    return int(y[v])


def supervised(params: Params, own: fgl.Graph) -> Tensor:
    out, _ = forward(params, own)
    each = [out[v].logsumexp(0) - out[v, label(own, v)] for v in train_nodes(own)]
    return torch.stack(each).mean()


def biased(seed: int = 0) -> Any:
    """A GCN without dropout, in double, whose biases are not 0."""
    torch.manual_seed(seed)
    net = fgl.nn.GCN(FEATURES, 5, CLASSES, dropout=0.0).double()
    for name, value in net.named_parameters():
        if "bias" in name:
            value.data = torch.randn(value.shape).double()
    return net


def gradient(loss: Loss, params: Params) -> Params:
    leaves = {name: value.detach().clone().requires_grad_() for name, value in params.items()}
    found = torch.autograd.grad(loss(leaves), list(leaves.values()), allow_unused=True)
    pairs = zip(leaves, found, strict=True)
    return {n: torch.zeros_like(leaves[n]) if g is None else g for n, g in pairs}


def sgd(loss: Loss, params: Params, lr: float = LR, steps: int = STEPS) -> Params:
    for _ in range(steps):
        grads = gradient(loss, params)
        params = {name: params[name] - lr * grads[name] for name in params}
    return params


def mean(models: Sequence[Params], weights: Sequence[float] | None = None) -> Params:
    shares = [1.0] * len(models) if weights is None else weights
    return {
        name: sum((s * m[name] for s, m in zip(shares, models, strict=True)), torch.zeros(()))
        / sum(shares)
        for name in models[0]
    }


def apart(one: Any, other: Any) -> float:
    """The largest difference of two models."""
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum() / (a.norm() * b.norm())

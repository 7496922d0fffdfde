"""What a method's paper adds to FedAvg reaches the gradient of what is minimised, and nothing else.

The terms are computed again here with nested loops, straight from the formulas.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from federations import (
    close,
    fgssl,
    graph,
    model,
    script,
)
from torch import Tensor
from torch.func import functional_call

import fgl
from fgl import augment

Params = dict[str, Tensor]
EXAMPLE = script("examples/fgssl.py")
DATA = graph(24)
KINDS = pytest.mark.parametrize("kind", [fgl.nn.GCN, fgl.nn.GAT], ids=["gcn", "gat"])


def gradient(loss: Callable[[Params], Tensor], params: Params, seed: int = 3) -> Params:
    leaves = {name: value.detach().clone().requires_grad_() for name, value in params.items()}
    torch.manual_seed(seed)
    grads = torch.autograd.grad(loss(leaves), list(leaves.values()), allow_unused=True)
    return {
        name: torch.zeros_like(params[name]) if grad is None else grad
        for name, grad in zip(params, grads, strict=True)
    }


def two_models(net: torch.nn.Module) -> tuple[Params, Params]:
    """The local weights, some way from the global ones."""
    there = {name: value.detach().clone() for name, value in net.state_dict().items()}
    generator = torch.Generator().manual_seed(1)
    return {
        name: value + 0.3 * torch.randn(value.shape, generator=generator)
        for name, value in there.items()
    }, there


def forwards(
    net: torch.nn.Module, params: Params, there: Params, keys: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits and embeddings of student and teacher, drawing as an FGSSL step does."""
    teacher = copy.deepcopy(net).eval()
    functional_call(net, params, (DATA.x, DATA.adj))  # the step starts with the cross-entropy
    weak = augment.weak(DATA.x, DATA.adj)
    with torch.no_grad():
        z_global, h_keys = functional_call(teacher, there, weak, {"return_embedding": True})
    strong = augment.strong(DATA.x, DATA.adj)
    z_local, h_local = functional_call(net, params, strong, {"return_embedding": True})
    if keys == "local":
        weak = augment.weak(DATA.x, DATA.adj)
        _, h_keys = functional_call(net, params, weak, {"return_embedding": True})
    return z_local, z_global, h_local, h_keys


def contrast_by_hand(anchor: Tensor, keys: Tensor, denominator: str = "negatives") -> Tensor:
    nodes = [i for i in range(DATA.num_nodes) if DATA.train_mask[i]]
    y = DATA.y.tolist()

    def phi(i: int, j: int) -> Tensor:
        return torch.exp(torch.cosine_similarity(anchor[i], keys[j], dim=0) / 0.1)

    losses = []
    for i in nodes:
        others = sum(phi(i, k) for k in nodes if denominator == "all" or y[k] != y[i])
        positives = [p for p in nodes if y[p] == y[i]]
        own = 0 if denominator == "all" else 1
        terms = [torch.log(phi(i, p) / (own * phi(i, p) + others)) for p in positives]
        losses.append(-sum(terms) / len(positives))
    return sum(losses) / len(nodes)


def distillation_by_hand(student: Tensor, teacher: Tensor) -> Tensor:
    losses = []
    for i in range(DATA.num_nodes):
        neighbours = DATA.edge_index[0, DATA.edge_index[1] == i].tolist()
        if not neighbours:
            continue
        ours = torch.stack([student[i] @ student[j] / 5.0 for j in neighbours]).softmax(0)
        theirs = torch.stack([teacher[i] @ teacher[j] / 5.0 for j in neighbours]).softmax(0)
        losses.append((theirs * (theirs.log() - ours.log())).sum())
    return sum(losses) / len(losses)


def term(net: torch.nn.Module, there: Params, which: str) -> Callable[[Params], Tensor]:
    def value(params: Params) -> Tensor:
        keys = "local" if "local keys" in which else "global"
        z_local, z_global, h_local, h_keys = forwards(net, params, there, keys)
        if which == "distillation":
            return distillation_by_hand(z_local, z_global)
        if which == "contrast, symmetric":
            both = contrast_by_hand(h_local, h_keys) + contrast_by_hand(h_keys, h_local)
            return both / 2
        denominator = "all" if which == "contrast, all" else "negatives"
        return contrast_by_hand(h_local, h_keys, denominator)

    return value


TERMS: dict[str, dict[str, Any]] = {
    "contrast": {"lambda_c": 1.5},
    "distillation": {"lambda_d": 25.0},
    "contrast, local keys": {"lambda_c": 1.5, "keys": "local"},
    "contrast, all": {"lambda_c": 0.7, "denominator": "all"},
    "contrast, symmetric": {"lambda_c": 2.0, "direction": "symmetric"},
}


@KINDS
@pytest.mark.parametrize("which", TERMS)
def test_each_term_of_fgssl_reaches_the_gradient(which: str, kind: Any) -> None:
    """On minus off is the weight times the term's own gradient, and that is not zero."""
    net = model(kind).train()
    local, there = two_models(net)
    weight = TERMS[which].get("lambda_c") or TERMS[which]["lambda_d"]
    context: Any = {"model": there}

    def total(**options: Any) -> Callable[[Params], Tensor]:
        method = fgssl(net, **{"lambda_c": 0.0, "lambda_d": 0.0, **options})
        return lambda params: method.loss(params, DATA, context)

    off, on = gradient(total(), local), gradient(total(**TERMS[which]), local)
    own = gradient(term(net, there, which), local)
    assert max(float(g.abs().max()) for g in own.values()) > 1e-3
    for name in local:
        scale = 1e-5 * (1 + float(on[name].abs().max()))
        close(on[name] - off[name], weight * own[name], atol=scale)


def test_local_keys_get_a_gradient_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    net = model().train()
    local, there = two_models(net)
    method = fgssl(net, keys="local", lambda_d=0.0)
    wanted = []

    def contrast(anchor: Tensor, keys: Tensor, *args: Any, **options: Any) -> Tensor:
        wanted.append((anchor.requires_grad, keys.requires_grad))
        return fgl.losses.node_contrast(anchor, keys, *args, **options)

    monkeypatch.setattr(EXAMPLE, "node_contrast", contrast)
    both = gradient(lambda params: method.loss(params, DATA, {"model": there}), local)

    def one_sided(anchor: Tensor, keys: Tensor, *args: Any, **options: Any) -> Tensor:
        return contrast(anchor, keys.detach(), *args, **options)

    monkeypatch.setattr(EXAMPLE, "node_contrast", one_sided)
    one = gradient(lambda params: method.loss(params, DATA, {"model": there}), local)
    assert wanted == [(True, True), (True, False)]
    name = "convs.0.lin.weight"
    assert float((both[name] - one[name]).abs().max()) > 1e-3


def test_the_teacher_is_the_received_model_in_eval_mode() -> None:
    """Dropout is off in the teacher, and its weights are those of the message, not the local."""
    net = model(dropout=0.5).train()
    local, there = two_models(net)
    seen = []
    teacher = script("examples/fgssl.py")
    original = teacher.structure_distillation

    def watch(student: Tensor, frozen: Tensor, *args: Any, **options: Any) -> Tensor:
        seen.append(frozen)
        return original(student, frozen, *args, **options)

    teacher.structure_distillation = watch
    try:
        torch.manual_seed(3)
        fgssl(net, lambda_c=0.0).loss(local, DATA, {"model": there})
    finally:
        teacher.structure_distillation = original
    torch.manual_seed(3)
    _, z_global, _, _ = forwards(net, local, there, "global")
    assert torch.equal(seen[0], z_global)

"""What a method's paper adds to FedAvg reaches the gradient of what is minimised, and nothing else.

The terms are computed again here from their losses, each of which is held to loops in its file.
"""

import copy
from collections.abc import Callable
from typing import Any

import by_loops
import pytest
import torch
from federations import close, fgssl, graph, model
from torch import Tensor
from torch.func import functional_call

import fgl
from fgl import augment
from fgl.losses import node_contrast, structure_distillation

Params = dict[str, Tensor]
DATA = graph(24)
KINDS = pytest.mark.parametrize("kind", [fgl.nn.GCN, fgl.nn.GAT], ids=["gcn", "gat"])


def gradient(loss: Callable[[Params], Tensor], params: Params, seed: int = 3) -> Params:
    torch.manual_seed(seed)
    return by_loops.gradient(loss, params)


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


def term(net: torch.nn.Module, there: Params, which: str) -> Callable[[Params], Tensor]:
    def value(params: Params) -> Tensor:
        keys = "local" if "local keys" in which else "global"
        z_local, z_global, h_local, h_keys = forwards(net, params, there, keys)
        if which == "distillation":
            return structure_distillation(z_local, z_global, DATA.edge_index, temperature=5.0)
        how: Any = {key: TERMS[which].get(key) for key in ("denominator", "direction")}
        how = {"temperature": 0.1, **{key: value for key, value in how.items() if value}}
        return node_contrast(h_local, h_keys, DATA.y, mask=DATA.train_mask, **how)

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

"""FedAux beside a small implementation of its own, by numbers."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from by_loops import sgd
from federations import close, double, graphs, refuses
from torch import Tensor

import fgl
from fgl.methods import fedaux

LR, SCALE, SIGMA = 0.1, 4.0, 0.7
CLIENTS = double(graphs((11, 9, 13)))


def net() -> Any:
    torch.manual_seed(0)
    return fgl.nn.AuxSAGE(6, 5, 3, dropout=0.0, sigma=SIGMA).double()


def smooth(h: Tensor, aux: Tensor) -> Tensor:
    """Each node's mean over all nodes, pair by pair."""
    rows = []
    place = [row @ aux / row.norm() / aux.norm() for row in h]
    for mine in place:
        near = [torch.exp(-((mine - other) ** 2) / SIGMA**2) for other in place]
        rows.append(sum(k * row for k, row in zip(near, h, strict=True)) / sum(near))
    return torch.stack(rows)  # type: ignore[arg-type]


def logits(params: dict[str, Tensor], own: fgl.Graph) -> Tensor:
    h: Any = own.x
    for depth in range(2):
        rows = []
        for node in range(own.num_nodes):
            near = [h[int(a)] for a, b in own.edge_index.T if b == node]
            mean = sum(near) / len(near) if near else torch.zeros_like(h[0])
            left, right = (params[f"convs.{depth}.lin_{side}.weight"] for side in "lr")
            rows.append(left @ mean + params[f"convs.{depth}.lin_l.bias"] + right @ h[node])
        h = torch.stack(rows)
        h = h.relu() if depth == 0 else h
    both = torch.cat([h, smooth(h, params["aux"])], 1)
    return both @ params["head.weight"].T + params["head.bias"]


def fit(params: dict[str, Tensor], own: fgl.Graph) -> Tensor:
    out = logits(params, own)[own.train_mask]
    return torch.nn.functional.cross_entropy(out, own.y[own.train_mask])  # type: ignore[index]


def twin(who: list[list[int]]) -> list[dict[str, Tensor]]:
    """Each client's model after the rounds of these clients."""
    start = {name: value.detach().clone() for name, value in net().state_dict().items()}
    models, seen = [start] * len(CLIENTS), set()
    for here in who:
        trained = []
        for own, model in [(CLIENTS[k], models[k]) for k in here]:
            trained.append(sgd(partial(fit, own=own), model, LR, 2))
        seen |= set(here)
        for k, mine in zip(here, trained, strict=True):
            row = []
            for other in trained:
                cos = mine["aux"] @ other["aux"] / mine["aux"].norm() / other["aux"].norm()
                row.append(math.exp(SCALE * float(cos)))
            mixed = {}
            for name in start:
                values = zip(row, trained, strict=True)
                mixed[name] = sum(w / sum(row) * t[name] for w, t in values)
            models[k] = mixed  # type: ignore[assignment]
        common = {name: sum(t[name] for t in trained) / len(trained) for name in start}
        models = [m if k in seen else common for k, m in enumerate(models)]  # type: ignore[misc]
    return models


@pytest.mark.parametrize("at_once", [1, "all"])
def test_it_is_fedaux_by_numbers(at_once: Any) -> None:
    """Who was never here gets the mean, the public code's "global" model, until it is mixed for."""
    train = fgl.Training(partial(torch.optim.SGD, lr=LR), num_steps=2)
    method = fedaux(fgl.fedavg(net(), train=train), scale=SCALE)
    who = [[0, 1], [0], [1, 2]]
    how: Any = {"dropouts": lambda index, k: k not in who[index], "clients_at_once": at_once}
    for rounds in (1, 2, 3):
        result = fgl.run(method, CLIENTS, num_rounds=rounds, **how)
        for client, want in enumerate(twin(who[:rounds])):
            close(result.outbox[client]["model"], want, atol=1e-12)
    assert not result.outbox[0]["model"]["aux"].equal(net().aux)


def test_the_vector_learns_and_padding_is_no_neighbour() -> None:
    h, aux = torch.randn(7, 5).double(), torch.randn(5).double()
    smoothed = fgl.nn.aux_sage.smoothed
    close(smoothed(h, aux, SIGMA), smooth(h, aux), atol=1e-12)
    there = torch.arange(7) < 4
    close(smoothed(h, aux, SIGMA, there)[:4], smooth(h[:4], aux), atol=1e-12)
    inputs = (h[:4].requires_grad_(), aux.requires_grad_())
    assert torch.autograd.gradcheck(lambda h, aux: smoothed(h, aux, SIGMA), inputs)


def test_what_it_refuses() -> None:
    refuses(r"a vector 'aux', .* but got GCN", lambda: fedaux(fgl.fedavg(fgl.nn.GCN(4, 8, 2))))
    shared = fgl.methods.fedper(fgl.fedavg(net()), shared=["convs"])
    with pytest.raises(ValueError, match="uploads to have the vector 'aux', but got none"):
        fgl.run(fedaux(shared), CLIENTS, num_rounds=1)

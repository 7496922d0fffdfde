"""FedAMP, HeurFedAMP, pFedGraph and FED-PUB: the properties that define them."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from by_loops import gradient
from conformance import K, known
from federations import close, same

import fgl
from fgl.methods import fedamp, fedpub, heurfedamp, pfedgraph, proxy_graph
from fgl.methods.fedpub import MASK, masked
from fgl.methods.pfedgraph import alignment, collaboration, directions

TASK = known("nodes", 0.0, torch.float64)
FEDAVG, CLIENTS = TASK.fedavg, TASK.clients
PROBES = proxy_graph(CLIENTS[0], generator=torch.Generator().manual_seed(0))
run = partial(fgl.run, num_rounds=3)
METHODS: dict[str, Any] = {
    "fedamp": fedamp,
    "heurfedamp": heurfedamp,
    "pfedgraph": pfedgraph,
    "fedpub": partial(fedpub, probes=PROBES),
}


# pFedGraph


def test_pfedgraphs_rows_minimise_its_objective() -> None:
    """No other row of shares, of many that are near and far, is better."""
    alike = torch.tensor([[1.0, 0.95, -0.3], [0.95, 1.0, 0.2], [-0.3, 0.2, 1.0]]).double()
    count = torch.tensor([1, 5, 2])
    rows = collaboration(alike, count, prior=0.8)
    p, d = count / count.sum(), -torch.where(alike > 0.9, 1, alike)
    assert (rows >= 0).all()
    close(rows.sum(1), torch.ones(3).double())

    def cost(x: torch.Tensor, i: int) -> torch.Tensor:
        return (x * d[i]).sum(-1) + 0.8 * (x - p).square().sum(-1)

    generator = torch.Generator().manual_seed(0)
    for i in range(3):
        others = torch.softmax(4 * torch.randn(500, 3, generator=generator), 1).double()
        for share in (1.0, 0.01):
            tried = (1 - share) * rows[i] + share * others
            assert (cost(tried, i) >= cost(rows[i], i) - 1e-12).all()
    none = collaboration(alike, torch.zeros(3, dtype=torch.int64))
    close(none.sum(1), torch.ones(3).double())


def test_a_model_of_zeros_has_no_direction() -> None:
    zero = {"w": torch.zeros(3, requires_grad=True)}
    value = alignment(zero, {"w": torch.ones(3)})
    value.backward()
    assert float(value.detach()) == 0
    assert zero["w"].grad is not None and zero["w"].grad.isfinite().all()
    assert not directions({"w": torch.zeros(2, 3)})["w"].any()


# FED-PUB


def test_both_penalties_of_fedpub_have_their_gradient() -> None:
    """The distance is that of each tensor, from the second round on; here of all masks."""
    own, message = CLIENTS[0], {"model": FEDAVG.initial(), "num_clients": torch.tensor(K)}
    params, context = fedpub(FEDAVG, PROBES, masks="all").receive(message, {}, own)  # type: ignore[arg-type]

    def slope(at: Any, **options: Any) -> dict[str, torch.Tensor]:
        method = fedpub(FEDAVG, PROBES, masks="all", **options)
        return gradient(lambda leaves: method.loss(leaves, own, context), at)

    generator = torch.Generator().manual_seed(0)
    at = {n: v + 0.3 * torch.randn(v.shape, generator=generator).double()
          for n, v in params.items()}  # fmt: skip
    off, on = slope(at, penalties=False), slope(at, sparsity=0.2, proximity=0.3)
    apart = {n: at[n] - context["received"][n] for n in at if not n.startswith(MASK)}
    for name, value in at.items():
        if name.startswith(MASK):
            want = 0.2 * value.sign()
        else:
            want = 0.3 * apart[name] / math.sqrt(float((apart[name] ** 2).sum()))
        close(on[name] - off[name], want, atol=1e-9)
        assert want.any()
    # The loss sees W * m: a weight's gradient is m times that of the product, a mask's W times.
    for name, value in gradient(partial(FEDAVG.loss, graph=own, context={}), masked(at)).items():
        close(off[name], at[MASK + name] * value, atol=1e-10)
        close(off[MASK + name], at[name] * value, atol=1e-10)
    assert all(grad.isfinite().all() for grad in slope(params).values())  # where nothing has moved


def test_what_fedpub_uses_is_masked_and_cut() -> None:
    method = fedpub(FEDAVG, PROBES, sparsity=0.5)
    model, state = FEDAVG.initial(), {}
    params, context = method.receive({"model": model}, state, CLIENTS[0])
    name = "convs.1.lin.weight"
    mask = torch.linspace(-1, 1, model[name].numel()).view_as(model[name]).double()
    upload, state = method.send({**params, MASK + name: mask}, context, state, CLIENTS[0])
    assert torch.equal(upload["model"][name], model[name])  # without its mask
    used = method.deploy({"model": model}, state, CLIENTS[0])
    for got, weight, m in zip(used[name].flatten(), model[name].flatten(), mask.flatten(),
                              strict=True):  # fmt: skip
        assert float(got) == (float(weight * m) if abs(float(m)) >= 0.5 else 0.0)
    call = partial(torch.func.functional_call, FEDAVG.model.eval(), used, PROBES.inputs)
    answers, embeddings = call({"return_embedding": True})
    close(upload["embedding"], embeddings.mean(0).detach())
    asked = fedpub(FEDAVG, PROBES, sparsity=0.5, of="answers")
    other, _ = asked.send({**params, MASK + name: mask}, context, {}, CLIENTS[0])
    close(other["embedding"], answers.mean(0).detach())
    again, _ = method.receive({"model": model}, state, CLIENTS[0])
    assert torch.equal(again[MASK + name], mask)


# All of them


@pytest.mark.parametrize("name", METHODS)
def test_absent_clients_count_for_nobody_and_keep_their_message(name: str) -> None:
    method = METHODS[name](FEDAVG)
    result = run(method, CLIENTS, dropouts=lambda index, client: client == 1 and index > 0)
    first = run(method, CLIENTS, num_rounds=1)
    assert same(result.outbox[1], first.outbox[1])
    assert same(result.client_states[1], first.client_states[1])
    assert result.server_state["matrix"].shape == (K - 1, K - 1)
    three = [CLIENTS[k] for k in (0, 2, 3)]
    never = run(method, CLIENTS, dropouts=lambda index, client: client == 1)
    want = run(method, three)
    for new, old in enumerate((0, 2, 3)):
        close(never.outbox[old], want.outbox[new], atol=1e-7)
    alone = run(method, CLIENTS, dropouts=lambda index, client: client != 2)
    close(alone.server_state["matrix"], torch.ones(1, 1).double())


# What a client trains beside the model

"""Methods of the library: the property that defines each, and the bounds of its numbers."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from conformance import case, known
from federations import close, receive_as_a_run, refuses, same

import fgl
from fgl import methods
from fgl.federation import Inbox
from fgl.methods import adaptive_fedprox, fedopt, local, moon, own_models, ring
from fgl.methods.own_models import drawn

TASK = known("nodes", 0.0, torch.float64)
FEDAVG, CLIENTS = TASK.fedavg, TASK.clients
run = partial(fgl.run, num_rounds=3)


def gradient(method: Any, shift: float, own: fgl.Graph) -> dict[str, torch.Tensor]:
    """At the received model moved by `shift`."""
    params, context = receive_as_a_run(method, {"model": method.initial()}, {}, own)
    leaves = {k: (v + shift).requires_grad_() for k, v in params.items()}
    loss = method.loss(leaves, own, context)
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


def test_adaptive_fedprox_keeps_a_weight_for_each_client() -> None:
    fit = fgl.federation.supervised(FEDAVG.model)
    method = adaptive_fedprox(FEDAVG, fit=lambda params, own: fit(params, own, {}), mu=1.0)
    plain, held = (gradient(m, 0.1, CLIENTS[0]) for m in (FEDAVG, method))
    for name, value in plain.items():
        close(held[name] - value, torch.full_like(value, 0.1))
    states = run(method, CLIENTS).client_states
    weights = [float(state["mu"]) for state in states.values()]
    assert all(1e-5 <= weight <= 10 for weight in weights) and set(weights) != {1.0}


def test_fedopt_that_steps_whole_is_fedavg() -> None:
    one, two = (run(m, CLIENTS) for m in (fedopt(FEDAVG, rule="sgd", server_lr=1.0), FEDAVG))
    close(one.outbox[0]["model"], two.outbox[0]["model"])
    half = run(fedopt(FEDAVG, server_lr=0.5), CLIENTS, num_rounds=1).outbox[0]["model"]
    whole = run(FEDAVG, CLIENTS, num_rounds=1).outbox[0]["model"]
    close(half, {k: (v + whole[k]) / 2 for k, v in FEDAVG.initial().items()})
    refuses("to send everybody the same model", lambda: run(fedopt(ring(FEDAVG)), CLIENTS))


@pytest.mark.parametrize(
    ("rule", "lr"), [("sgd", 1.0), ("adam", 0.3), ("yogi", 0.3), ("adagrad", 0.3)]
)
def test_fedopt_averages_the_statistics_of_batch_norm(rule: Any, lr: float) -> None:
    """A variance that the server's optimiser drove past the mean would become negative."""
    norm = torch.nn.BatchNorm1d(1)
    method = methods.fedopt(fgl.fedavg(norm), rule=rule, server_lr=lr, momentum=0.9)
    start = method.initial()
    state: Any = {"model": start}
    for variance in (0.6, 0.3, 0.1, 0.05, 0.02):
        model = {**start, "running_var": torch.tensor([variance]), "weight": torch.zeros(1)}
        came: Any = {0: {"model": model, "num_examples": torch.tensor(1)}}
        outbox, state = method.aggregate(Inbox(came, 1), state)
        sent: Any = outbox[0]["model"]
        assert list(sent) == list(start)
        assert sent["running_var"].equal(model["running_var"])
    assert not sent["weight"].equal(model["weight"])  # a parameter is stepped


def test_moon_is_near_the_received_and_far_from_its_own_earlier_model() -> None:
    assert moon(FEDAVG, contrast=0) == FEDAVG
    made, own = moon(FEDAVG, contrast=2.0, temperature=0.4), CLIENTS[0]
    result = run(made, CLIENTS, num_rounds=1)
    message, state = result.outbox[0], result.client_states[0]
    params, context = receive_as_a_run(made, message, state, own)
    moved = {k: (v + 0.1).requires_grad_() for k, v in params.items()}

    def embed(of: Any) -> torch.Tensor:
        model = FEDAVG.model.eval()
        call = {"return_embedding": True}
        return torch.func.functional_call(model, of, own.inputs, call)[1]

    near, far = embed(params), state["queue"][:, 0]
    close(context["near"].values, near)
    cos = partial(torch.cosine_similarity, dim=1)
    z = embed(moved)
    pull, push = (cos(z, near) / 0.4).exp(), (cos(z, far) / 0.4).exp()
    want = FEDAVG.loss(moved, own, {}) - 2.0 * (pull / (pull + push)).log().mean()
    got = made.loss(moved, own, context)
    close(got, want, atol=1e-9)
    grads = [torch.autograd.grad(v, list(moved.values()), retain_graph=True) for v in (got, want)]
    close(grads[0], grads[1], atol=1e-9)
    refuses("return_embedding", lambda: moon(fgl.fedavg(torch.nn.Linear(1, 1))), TypeError)
    drawn = fgl.data.partitions.partition_graph(own, [torch.arange(own.num_nodes - 2)])[0]
    refuses("does not train on drawn nodes", lambda: made.loss(moved, drawn, context))


def test_layers_over_messages_without_a_model_say_so() -> None:
    """No KeyError of our own: the sentence names both layers."""
    scaffold, fedselect = methods.scaffold, partial(methods.fedselect, every=1)
    pairs: dict[str, Any] = {
        "fede": (scaffold, fedopt, fedselect, local),
        "fedproto": (scaffold, fedopt, fedselect),
        "fedgm drawn": (scaffold, fedselect, local),
    }
    for inner, outers in pairs.items():
        method, task = case(inner, "triples" if inner == "fede" else "nodes")
        for outer in outers:
            with pytest.raises(ValueError, match="Expected (messages with|local to) .*but got"):
                fgl.run(outer(method), task, num_rounds=1, clients_at_once=1)


def test_coded_uploads_leave_the_contexts_of_methods_alone() -> None:
    method, task = case("fedpub", "nodes")  # keeps what it received in its context
    quantised = fgl.transforms.quantised(method)
    one, other = (fgl.run(m, task, num_rounds=2, clients_at_once=1) for m in (method, quantised))
    assert other.history[1].loss == pytest.approx(one.history[1].loss, rel=1e-2)


def test_a_state_without_a_model_is_no_message_without_one() -> None:
    def receive(message: Any, state: Any, graph: Any) -> Any:
        return state["model"], {}

    method = replace(adaptive_fedprox(FEDAVG, fit=lambda params, own: 0.0), receive=receive)
    refuses("model", lambda: run(fedopt(method), CLIENTS), KeyError)


def test_layers_that_send_under_one_name_are_refused() -> None:
    fedavg = known("nodes", 0.5, torch.float32).fedavg
    for outer, inner in (("scaffold", "feddc"), ("moon", "moon")):
        with pytest.raises(ValueError, match=f"Expected {outer} to .* a method without {inner}"):
            getattr(methods, outer)(getattr(methods, inner)(fedavg))


def test_own_models_are_what_clients_use() -> None:
    result = run(own_models(FEDAVG), CLIENTS)
    for client, own in enumerate(CLIENTS):
        state = result.client_states[client]
        used = own_models(FEDAVG).deploy(result.outbox[client], state, own)
        assert same(dict(used), state["model"])
    assert same(dict(result.outbox[0]), dict(run(FEDAVG, CLIENTS).outbox[0]))
    ego = known("ego", 0.0, torch.float32)
    method, message = own_models(ego.fedavg, draw=True), {"model": ego.fedavg.initial()}
    one, two = (method.receive(message, {}, own)[0] for own in ego.clients[:2])
    assert not same(dict(one), dict(two))
    stays = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(1))])
    with pytest.raises(TypeError, match="ParameterList to have reset_parameters"):
        own_models(fgl.fedavg(torch.nn.Sequential(torch.nn.Linear(1, 1), stays)), draw=True)


NETWORKS: dict[str, Any] = {
    "gcn": fgl.nn.GCN(3, 8, 4),
    "gat": fgl.nn.GAT(3, 8, 4, heads=2),
    "sage": fgl.nn.SAGE(3, 8, 4),
    "rgcn": fgl.nn.RGCN(3, 8, 4, num_relations=3, num_bases=2),
    "spa": fgl.nn.SPA(3, 8, 4),
    "aux": fgl.nn.AuxSAGE(3, 8, 4),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_drawn_anew(name: str) -> None:
    """All but what is constant at first, by the same law."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        again = drawn(NETWORKS[name])
    for key, before in NETWORKS[name].state_dict().items():
        after, most = again[key], before.abs().max()
        if not most:
            assert torch.equal(before, after), key
        else:
            assert not torch.equal(before, after), key
            assert after.abs().max() < 4 * most or after.numel() < 8, key


@pytest.mark.parametrize("wrap", [local, own_models, methods.fedamp])
def test_a_kept_model_is_deployed_as_the_inner_method_does(wrap: Any) -> None:
    """GraphFL's clients adapt the model that they use, whoever keeps it."""
    inner = methods.graphfl(FEDAVG, adapt_steps=1, adapt_lr=0.5)
    result = run(wrap(inner), CLIENTS, num_rounds=1)
    state, own = result.client_states[1], CLIENTS[1]
    used = wrap(inner).deploy(result.outbox[1], state, own)
    assert not same(dict(used), dict(state["model"]))
    assert same(dict(used), dict(inner.deploy({"model": state["model"]}, {}, own)))


def test_a_network_returns_two_matrices_of_those_who_are_here() -> None:
    sent: Any = {k: {"model": {"w": torch.tensor(1.0)}} for k in range(3)}
    base = fgl.fedavg(torch.nn.Linear(1, 1))

    def mixing(network: Any) -> Any:
        inbox = fgl.federation.Inbox(sent, 3, sent)
        return fgl.methods.mix_updates(base, network).aggregate(inbox, {})

    with pytest.raises(TypeError, match=r"network to return \(matrix, known\), but got a Tensor"):
        mixing(lambda inbox, known: known)
    with pytest.raises(ValueError, match=r"network's matrix to have shape \[3, 3\].*\[2, 2\]"):
        mixing(lambda inbox, known: (torch.eye(2), known))

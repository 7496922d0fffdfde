"""FedVGAE: only the encoder is shared, and each client validates it before adopting it.

    python examples/fedvgae.py links --dataset cora
    python examples/fedvgae.py nodes --dataset cora

IEEE Transactions on Big Data 2024. A client that validates worse with the
received encoder moves it back towards its own (Algorithm 1). A contrast
holds its embeddings near those of the received model, far from those of
its own earlier ones (Eq. 10, as MOON). ``--max-adjust 0`` and
``--contrast 0`` leave them out.
"""

from dataclasses import replace

import torch

from fgl import layer, tasks
from fgl.checks import check_number, check_share, check_weight
from fgl.experiment import Run, cli, takes_options_of
from fgl.federation import together
from fgl.methods import fedper, moon
from fgl.personalize import adaptive_aggregation, part

ENCODER = ("conv1", "conv_mu", "conv_logstd")
RUN = Run(rounds=100, patience=20)
NODES = tasks.OwnNodes(dropout=0.0, local=tasks.Local("adam", 0.01, 0.0, 0.0, 5))


@layer
def fedvgae(
    fedavg, validate, *, contrast=0.8, phi=0.5, delta=0.01, max_adjust=1, shared=ENCODER, **how
):
    """FedVGAE; `validate(params, graph)` is a client's own score, `how` is `moon`'s.

    Args:
        contrast: Weight of the contrast between models.
        phi: Share of one's own encoder when the received one is moved back.
        delta: Drop of the validation score that moves it back.
        max_adjust: How often it is moved back in a round.
        shared: The modules that travel, and are moved back.
    """
    check_share(phi=phi)
    check_weight(delta=delta)
    check_number("max_adjust", max_adjust, at_least=0, integer=True)
    limits = {"phi": phi, "delta": delta, "max_adjust": max_adjust}
    fedper_ = fedper(fedavg, shared=shared)
    initial = fedavg.initial()

    def receive(message, state, graph):
        params, context = fedper_.receive(message, state, graph)
        own = state.get("model", initial)
        chosen, score, count = adaptive_aggregation(
            part(params, *shared),
            part(own, *shared),
            lambda encoder: validate({**own, **encoder}, graph),
            float(state.get("validation", "nan")),
            strict=delta > 0,  # with 0: Algorithm 1 as printed
            **limits,
        )
        context = {**context, "received": params}
        context["validation"] = torch.tensor(score, dtype=torch.float64)
        context["adjusted"] = torch.tensor(count > 0)
        return {**own, **chosen}, context

    def send(params, context, state, graph):
        message, new_state = fedper_.send(params, context, state, graph)
        new_state = {**new_state, "validation": context["validation"]}
        new_state["adjusted"] = state.get("adjusted", 0) + context["adjusted"].long()
        new_state["rounds"] = state.get("rounds", 0) + torch.tensor(1)
        return message, new_state

    adaptive = replace(fedper_, receive=receive, send=send)
    return moon(adaptive, contrast=contrast, **how)


def trigger_rate(outbox, states):
    """In which share of the client-rounds the encoder was not adopted as it came."""
    adjusted = sum(int(state["adjusted"]) for state in states.values())
    rounds = sum(int(state["rounds"]) for state in states.values())
    return {"trigger_rate": adjusted / max(rounds, 1)}


@takes_options_of(fedvgae)
def links(task=tasks.Links(), run=RUN, **options):
    """FedVGAE that predicts links."""
    setting = task.load(run.seed)
    method = fedvgae(setting.fedavg, setting.validate, **options)
    score = together(setting.evaluate(method), trigger_rate)
    return run(method, setting, evaluate=score)


@takes_options_of(fedvgae)
def nodes(task=NODES, run=RUN, **options):
    """FedVGAE that classifies nodes."""
    return links(task, run, **options)


if __name__ == "__main__":
    cli({"links": links, "nodes": nodes})

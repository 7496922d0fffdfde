"""FedVGAE: only the encoder travels, checked before it is adopted.

    python examples/fedvgae.py links --dataset cora
    python examples/fedvgae.py nodes --dataset cora
    python examples/fedvgae.py links --contrast 0      w/o contrast
    python examples/fedvgae.py links --max-adjust 0    w/o fine-tuning

IEEE Transactions on Big Data 2024. A client that validates worse with the
received encoder moves it back towards its own (Algorithm 1). A contrast
holds its embeddings near those of the received model, far from those of
its own earlier models (Eq. 10), as MOON does.
"""

import math
from dataclasses import replace

import torch

from fgl import tasks
from fgl.experiment import Run, cli
from fgl.federation import together
from fgl.methods import fedper, moon
from fgl.personalize import adaptive_aggregation, part

ENCODER = ("conv1", "conv_mu", "conv_logstd")


def fedvgae(
    fedavg,
    validate,
    *,
    contrast=0.8,
    phi=0.5,
    delta=0.01,
    max_adjust=1,
    temperature=0.5,
    queue=1,
):
    """FedVGAE; `validate(params, graph)` is a client's own validation score."""
    fedper_ = fedper(fedavg, shared=ENCODER)
    initial = fedavg.initial()

    def receive(message, state, graph):
        params, context = fedper_.receive(message, state, graph)
        own = state.get("model", initial)
        chosen, score, count = adaptive_aggregation(
            part(params, *ENCODER),
            part(own, *ENCODER),
            lambda encoder: validate({**own, **encoder}, graph),
            float(state.get("validation", math.nan)),
            phi=phi,
            delta=delta,
            max_adjust=max_adjust,
            strict=delta > 0,  # with 0: Algorithm 1 as printed
        )
        adopted = {**own, **chosen}
        context = {**context, "received": params, "adopted": adopted}
        context["validation"] = torch.tensor(score, dtype=torch.float64)
        context["adjusted"] = torch.tensor(count > 0)
        return adopted, context

    def send(params, context, state, graph):
        message, kept = fedper_.send(params, context, state, graph)
        kept = {**kept, "validation": context["validation"]}
        kept["adjusted"] = state.get("adjusted", 0) + context["adjusted"].long()
        kept["rounds"] = state.get("rounds", 0) + torch.tensor(1)
        return message, kept

    adaptive = replace(fedper_, receive=receive, send=send)
    return moon(adaptive, contrast=contrast, temperature=temperature, queue=queue)


def trigger_rate(outbox, states):
    """In which share of the client-rounds the encoder was not adopted as it came."""
    kept = states.values()
    adjusted, rounds = (sum(int(each[key]) for each in kept) for key in ("adjusted", "rounds"))
    return {"trigger_rate": adjusted / max(rounds, 1)}


def links(
    task: tasks.Links = tasks.Links(),
    run: Run = Run(rounds=100, patience=20, clients_at_once="all"),
    contrast: float = 0.8,
    phi: float = 0.5,
    delta: float = 0.01,
    max_adjust: int = 1,
):
    """FedVGAE that predicts links.

    Args:
        contrast: Weight of the contrast between models.
        phi: Share of one's own encoder when the received one is moved back.
        delta: Drop of the validation score that moves it back.
        max_adjust: How often it is moved back in a round.
    """
    setting = task.load(run.seed)
    weights = {"contrast": contrast, "phi": phi, "delta": delta, "max_adjust": max_adjust}
    method = fedvgae(setting.fedavg, setting.validate, **weights)
    return run(method, setting, evaluate=together(setting.evaluate(method), trigger_rate))


def nodes(
    task: tasks.OwnNodes = tasks.OwnNodes(
        dropout=0.0, local=tasks.Local("adam", 0.01, 0.0, 0.0, 5)
    ),
    run: Run = Run(rounds=100, patience=20, clients_at_once="all"),
    contrast: float = 0.8,
    phi: float = 0.5,
    delta: float = 0.01,
    max_adjust: int = 1,
):
    """FedVGAE that classifies nodes; its flags are those of `links`."""
    return links(task, run, contrast, phi, delta, max_adjust)


if __name__ == "__main__":
    cli({"links": links, "nodes": nodes})

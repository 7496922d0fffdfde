"""Ditto: the authors' round in loops, the term of its loss, and what it refuses."""

from dataclasses import replace

import torch
from by_loops import LR, STEPS, apart, clients, gradient, mean, plain, supervised
from federations import CLASSES, refuses

import fgl
from fgl.methods import ditto

LAMBDA = 0.6


def test_rounds_are_the_authors() -> None:
    """A personal step, then one of the common model, on the same examples."""
    own, theta = clients(), plain().initial()
    personal = [theta for _ in own]
    for _ in range(3):
        sent = []
        for k, data in enumerate(own):
            w, v = theta, personal[k]
            for _ in range(STEPS):
                grads = gradient(lambda p, data=data: supervised(p, data), v)  # type: ignore[misc]
                v = {n: v[n] - LR * (grads[n] + LAMBDA * (v[n] - theta[n])) for n in v}
                grads = gradient(lambda p, data=data: supervised(p, data), w)  # type: ignore[misc]
                w = {n: w[n] - LR * grads[n] for n in w}
            personal[k] = v
            sent.append(w)
        theta = mean(sent)
    method = ditto(plain(), penalty=LAMBDA)
    result = fgl.run(method, own, num_rounds=3, clients_at_once=1)
    assert apart(result.outbox[0]["model"], theta) < 1e-12
    for k, data in enumerate(own):
        used = method.deploy(result.outbox[k], result.client_states[k], data)
        assert apart(used, personal[k]) < 1e-12


def test_what_would_mix_the_two_models_is_refused() -> None:
    base = plain()
    clipped = replace(base, train=replace(base.train, max_grad_norm=1.0))
    refuses("clips no gradient, but got max_grad_norm=1.0", lambda: ditto(clipped))
    net = torch.nn.Sequential(torch.nn.Linear(2, CLASSES), torch.nn.BatchNorm1d(CLASSES))
    refuses("a model without buffers, but got .*'1.running_mean'", lambda: ditto(fgl.fedavg(net)))

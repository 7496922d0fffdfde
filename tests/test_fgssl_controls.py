"""The controls of FGSSL: each takes away one reason of its gain, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conformance import as_it_is, case
from federations import close
from papers.fgssl_controls import augmented_fedavg, keys_shuffled, shuffle
from torch.func import functional_call

import fgl
from fgl import augment
from fgl.losses import node_contrast


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A task without dropout, its first client, another model; views that change nothing."""
    monkeypatch.setattr(augment, "weak", as_it_is)
    monkeypatch.setattr(augment, "strong", as_it_is)
    method, task = case("fedavg", "nodes", dropout=0.0)
    received = {name: value + 0.1 for name, value in method.initial().items()}
    return SimpleNamespace(task=task), method, task.clients[1], received


def test_keys_are_those_of_other_labels(parts: Any) -> None:
    loaded, fedavg, graph, received = parts
    with torch.no_grad():
        plain = fedavg.loss(fedavg.initial(), graph, {})
        got = keys_shuffled(loaded, lambda_c=2.0, lambda_d=0.0, tau=0.5).loss(
            fedavg.initial(), graph, {"model": received}
        )
        anchors, keys = (
            functional_call(fedavg.model, params, graph.inputs, {"return_embedding": True})[1]
            for params in (fedavg.initial(), received)
        )
        anchors, keys = anchors[graph.train_mask], keys[graph.train_mask]
        y = graph.y[graph.train_mask]
        place = shuffle(len(y), y.device)
        assert (y[place] != y).any()
        want = node_contrast(anchors, keys[place], y, temperature=0.5)
        true = node_contrast(anchors, keys, y, temperature=0.5)
    close(got, plain + 2 * want)
    assert not torch.allclose(want, true)


def test_controls_run() -> None:
    _, task = case("fedavg", "nodes")
    for make in (keys_shuffled, augmented_fedavg):
        result = fgl.run(make(SimpleNamespace(task=task)), task, num_rounds=2)
        assert not result.history[-1].dropped

"""What a checkpoint holds of a run, piece by piece."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from federations import CLASSES, FEATURES, graph, identified, model, same

import fgl
from fgl.federation import Broadcast
from fgl.federation.method.describe import architecture
from fgl.federation.saved import checkpoint
from fgl.federation.saved.identity import DEPTH, _digest, scoring

METHOD = fgl.fedavg(model(dropout=0.0))


def test_a_message_to_all_is_stored_once_and_others_each() -> None:
    one = {"w": torch.ones(2)}
    stored = checkpoint._plain(Broadcast(one, 3))
    assert list(stored) == ["everybody"]
    assert same(dict(checkpoint._outbox(stored, 3)), dict.fromkeys(range(3), one))
    each = {0: one, 2: {"w": torch.zeros(2)}}
    assert same(dict(checkpoint._outbox(checkpoint._plain(each), 3)), each)


def test_an_architecture_is_that_of_the_model_that_trains() -> None:
    sage = fgl.nn.SAGE(FEATURES, 8, CLASSES, dropout=0.25)
    other = replace(METHOD, model=sage)
    assert identified(other)["architecture"] == identified(fgl.fedavg(sage))["architecture"]
    assert identified(other)["architecture"] != identified(METHOD)["architecture"]


def test_a_part_that_is_not_trained_is_named_where_it_is() -> None:
    net = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(1, 1)))
    net[0][0].bias.requires_grad_(False)
    frozen = [path for path, text in architecture(net).items() if "bias is not trained" in text]
    assert frozen == ["0.0"]


def test_tensors_on_the_processor_are_named_in_a_run_elsewhere() -> None:
    there, here = torch.ones(1, device="meta"), torch.ones(1)
    mixed = {"outbox": {"everybody": {"w": there}}, "server_state": {"n": here}}
    assert checkpoint._on_processor(mixed) == ["server_state/n"]
    assert checkpoint._on_processor({"server_state": {"n": here}}) == []
    assert checkpoint._on_processor({"server_state": {"n": there}}) == []


def test_a_digest_is_as_stored_and_builders_of_one_name_are_numbered() -> None:
    assert _digest([{"w": torch.zeros(2)}]) == "04a84e98533fe762"
    method = METHOD
    for mu in (0.1, 0.2, 0.3):
        method = fgl.methods.fedprox(method, mu=mu)
    found = {
        k: v["mu"] for k, v in identified(method).items() if k.startswith("settings of fedprox")
    }
    assert found == {
        "settings of fedprox": 0.1,
        "settings of fedprox 2": 0.2,
        "settings of fedprox 3": 0.3,
    }


def test_data_of_a_score_are_found_as_deep_as_is_looked() -> None:
    for wraps, found in ((DEPTH - 2, True), (DEPTH - 1, False)):

        def evaluate(own: fgl.Graph, wraps: int = wraps) -> Any:
            inner: Any = lambda: own  # noqa: E731
            for _ in range(wraps):
                inner = partial(print, inner)
            return inner

        one, two = (scoring(evaluate(graph(seed=seed)), []) for seed in (0, 1))
        assert (one != two) == found

"""A spoiled model: its clients are not blamed, and a server can go back to an older one."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from conformance import case
from federations import Elsewhere, by_hand, end, fedavg, graphs, model, ruled, same
from test_malformed import sending, weights

import fgl
from fgl import Method, Training

SLOW = Training(num_steps=2)  # SGD with a rate of .1


def fragile() -> Method:
    """Training diverges from parameters that are far from 1, and converges from all others."""

    def loss(params: Any, data: Any, context: Any) -> Any:
        return sum(((value - 1) ** 4).sum() for value in params.values())

    return replace(fedavg(model(dropout=0.0), SLOW), loss=loss)


def far(message: dict[str, Any]) -> dict[str, Any]:
    """Within the bounds of an upload, and far enough to spoil the mean."""
    filled = {name: torch.full_like(value, 20.0) for name, value in message["model"].items()}
    return {**message, "model": filled}


def spoiled() -> Method:
    """One client lies in round 1."""
    return sending(far, at=(1, 3), method=fragile())


@pytest.mark.filterwarnings("ignore:Round")
@pytest.mark.parametrize("place", [None, Elsewhere(graphs(), 1)])
def test_clients_of_a_spoiled_model_are_not_blamed(place: Any) -> None:
    where: Any = {"clients": place} if place else {"clients": graphs(), "clients_at_once": 1}
    notes: list[dict[int, str]] = []
    keep = [lambda record, result: notes.append(record.dropped)]
    with pytest.raises(RuntimeError, match="Round 4: .* in 3 rounds in a row") as caught:
        fgl.run(spoiled(), num_rounds=8, callbacks=keep, **where)
    assert [sorted(dropped) for dropped in notes] == [[], [], [0, 1, 2, 3], [0, 1, 2, 3]]
    assert all("not this client's fault" in why for why in notes[2].values())
    assert "not this client's fault" in str(caught.value)


@pytest.mark.filterwarnings("ignore:Round")
@pytest.mark.parametrize("back", [1, 2])
def test_a_server_goes_back_to_its_model_before_the_lie(back: int) -> None:
    got = fgl.run(spoiled(), Elsewhere(graphs(), 1), num_rounds=6, go_back=back)
    assert [len(record.dropped) for record in got.history] == [0, 0, 4, 0, 0, 0]
    lost = range(3) if back == 2 else range(1, 3)  # the rounds of which nothing is left
    want = by_hand(fragile(), graphs(), num_rounds=6, absent=lambda index, client: index in lost)
    assert same(dict(got.outbox), want.outbox)
    assert same(dict(got.server_state), dict(want.server_state))


@pytest.mark.filterwarnings("ignore:Round")
@pytest.mark.filterwarnings("ignore:Expected the checkpoint to know all settings")
@pytest.mark.parametrize("name", ["fedavg", "local"])
def test_a_run_that_goes_back_resumes_bit_for_bit(name: str, tmp_path: Path) -> None:
    """Also where each client is sent a message of its own."""
    how: Any = {"clients": Elsewhere(graphs(), 1), "go_back": 2}
    built = fgl.methods.local if name == "local" else lambda method: method
    want = fgl.run(built(spoiled()), num_rounds=6, **how)
    method = built(spoiled())
    how["checkpoint"] = tmp_path
    fgl.run(method, num_rounds=2, **how)
    got = fgl.run(method, num_rounds=6, **how)
    assert same(end(got), end(want))
    with pytest.raises(ValueError, match="go_back=None, but got 2|go_back=1, but got 2"):
        fgl.run(method, num_rounds=7, **{**how, "go_back": 1})


@pytest.mark.filterwarnings("ignore:Round")
def test_a_single_client_of_a_spoiled_model_is_not_blamed_either() -> None:
    """The median client's loss shows that the model is bad, although only one cannot train it."""
    slow = replace(fragile(), train=Training(partial(torch.optim.SGD, lr=1e-3), num_steps=2))
    method = sending(far, at=(1, 3), method=ruled(slow, max_change=1e5))
    nan = weights(**{"convs.0.bias": torch.full((8,), torch.nan)})
    got = fgl.run(sending(nan, at=(2, 0), method=method), Elsewhere(graphs(), 1), num_rounds=3)
    assert [list(record.dropped) for record in got.history] == [[], [], [0]]
    assert "the model that it received has a loss of" in got.history[2].dropped[0]
    alone = fgl.run(sending(nan, at=(2, 0), method=slow), Elsewhere(graphs(), 1), num_rounds=3)
    assert alone.history[2].dropped == {0: "model/convs.0.bias is not finite"}


def test_one_that_diverges_beside_others_is_to_blame() -> None:
    huge = sending(lambda m: far(m) | {"model": {k: v * 1e9 for k, v in m["model"].items()}},
                   at=(1, 3), method=fragile())  # fmt: skip
    with pytest.warns(UserWarning, match="Round 1, client 3: model changed by"):
        got = fgl.run(huge, Elsewhere(graphs(), 1), num_rounds=3, go_back=2)
    assert [sorted(record.dropped) for record in got.history] == [[], [3], []]


@pytest.mark.filterwarnings("ignore:.*unprotected")
def test_what_counts_noise_or_exchanges_cannot_go_back() -> None:
    for name in ("local gaussian drawn", "central gaussian drawn", "secure sum", "DP-SGD drawn"):
        method, task = case(name, "rows" if "DP" in name else "nodes")
        with pytest.raises(ValueError, match="go_back to be 0, .* but got 3"):
            fgl.run(method, task.clients, num_rounds=4, go_back=3)
    for wrong in (-1, 1.5, "2"):
        with pytest.raises((TypeError, ValueError), match=f"go_back .*{wrong}"):
            fgl.run(fedavg(model()), graphs(), num_rounds=1, go_back=wrong)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:.*unprotected")
def test_a_run_that_starts_from_one_with_noise_cannot_forget_what_it_adds() -> None:
    """The record of noise is in the state: an older one lacks the answers of the lost rounds."""
    method, task = case("local gaussian drawn", "nodes")
    start = fgl.run(method, task.clients, num_rounds=1)
    with pytest.raises(ValueError, match="go_back to be 0, .* but got 2"):
        fgl.run(task.fedavg, task.clients, num_rounds=1, start=start, go_back=2)

"""Codes of tensors in fewer bytes, and methods whose messages travel in them."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from conformance import nodes, rehearsed
from federations import refuses

import fgl
from fgl.compress import dequantise, largest, quantise
from fgl.federation import Inbox
from fgl.transforms import (
    clipped,
    local_gaussian,
    privacy_spent,
    quantised,
    robust,
    rounded_downloads,
    secure_sum,
    sparsified,
)


def task() -> fgl.tasks.Task:
    return nodes(0.0, torch.float32)


def test_models_of_float64_keep_their_dtype_and_a_share_of_one_all_digits() -> None:
    made = nodes(0.0, torch.float64)
    whole = fgl.run(made.fedavg, made, num_rounds=2, clients_at_once=1).outbox[0]["model"]
    coded = sparsified(made.fedavg, share=1.0)
    got = fgl.run(coded, made, num_rounds=2, clients_at_once=1).outbox[0]["model"]
    for name, value in whole.items():
        torch.testing.assert_close(got[name], value, rtol=1e-12, atol=1e-14)


def naive_quantised(x: list[float], draws: list[float], bits: int, bucket: int) -> list[float]:
    levels, out = 2 ** (bits - 1) - 1, []
    for i, value in enumerate(x):
        start = i // bucket * bucket
        scale = max(abs(v) for v in x[start : start + bucket])
        if scale == 0:
            out.append(0.0)
            continue
        step = min(math.floor(levels * abs(value) / scale + draws[i]), levels)
        out.append(math.copysign(scale * step / levels, value) if step else 0.0)
    return out


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_code_is_that_of_loops(bits: int) -> None:
    x = torch.randn(50, generator=torch.Generator().manual_seed(2))
    x[16:32] = 0
    codes = quantise(x, bits=bits, bucket=16, generator=torch.Generator().manual_seed(3))
    back = dequantise(*codes, x.shape, bits=bits, bucket=16)
    draws = torch.rand(4, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    want = naive_quantised(x.tolist(), draws.flatten().tolist(), bits, 16)
    torch.testing.assert_close(back, torch.tensor(want))


def test_largest_are_those_of_a_sorted_list_and_of_equal_ones_the_first() -> None:
    draws = torch.Generator().manual_seed(5)
    for size in (1, 2, 9, 40):
        x = torch.randint(-4, 5, (size,), generator=draws).float()
        for share in (0.01, 0.5, 1.0):
            places, values = largest(x.view(1, -1), share=share)
            by_size = sorted(range(size), key=lambda i: (-abs(float(x[i])), i))
            assert places.tolist() == sorted(by_size[: math.ceil(share * size)])
            assert values.tolist() == x[places.long()].tolist()
    places, values = largest(torch.tensor([1.0, math.nan, -5.0]), share=0.3)
    assert places.tolist() == [1] and values.isnan().all()
    assert largest(torch.zeros(0), share=0.5)[0].tolist() == []


def upload(method: fgl.Method, state: Any = None, **changed: Any) -> Any:
    """What a client sends that has trained to twice the model, and its state."""
    made = task()
    message = {"model": method.initial()}
    params, context = method.receive(message, state or {}, made.clients[0])
    trained = {name: 2 * t for name, t in params.items()}
    sent, new = method.send(trained, context, state or {}, made.clients[0])
    return message, {**sent, **changed}, new


def test_nothing_is_lost_with_feedback() -> None:
    """What was sent in all rounds, and what is left, are all differences."""
    method = sparsified(task().fedavg, share=0.1)
    total: dict[str, Any] = {name: torch.zeros_like(t) for name, t in method.initial().items()}
    state: Any = {}
    for _ in range(4):
        message, sent, state = upload(method, state)
        inbox = Inbox({1: sent}, 4, {1: message}, 0)
        new = method.aggregate(inbox, {})[0][0]["model"]
        total = {name: t + new[name] - message["model"][name] for name, t in total.items()}
    for name, each in total.items():
        want = 4 * message["model"][name]
        torch.testing.assert_close(each + state["model_left"][name], want)
    assert any((t != 0).any() for t in state["model_left"].values())
    _, _, lost = upload(sparsified(task().fedavg, share=0.1, feedback=False))
    assert "model_left" not in lost


@pytest.mark.parametrize(("key", "change"), [
    ("model_codes", lambda codes: {}),
    ("model_codes", lambda codes: {**codes, "other": torch.zeros(1, dtype=torch.uint8)}),
    ("model_codes", lambda codes: {n: t[:-1] for n, t in codes.items()}),
    ("model_codes", lambda codes: {n: t.int() for n, t in codes.items()}),
    ("model_scales", lambda scales: {n: -t for n, t in scales.items()}),
    ("model_scales", lambda scales: {n: t.double() for n, t in scales.items()}),
    ("model_scales", lambda scales: torch.zeros(1)),
    ("model_places", lambda places: {n: t - 1 for n, t in places.items()}),
    ("model_places", lambda places: {n: t + 10**6 for n, t in places.items()}),
    ("model_places", lambda places: {n: t.flip(0) for n, t in places.items()}),
    ("model_places", lambda places: {n: t.long() for n, t in places.items()}),
    ("model_places", lambda places: {n: t[:-1] for n, t in places.items()}),
    ("model_values", lambda values: {n: t[:-1] for n, t in values.items()}),
    ("model_values", lambda values: {n: t.double() for n, t in values.items()}),
])  # fmt: skip
def test_what_is_no_code_and_what_are_no_places_is_refused(key: str, change: Any) -> None:
    of_codes = key in ("model_codes", "model_scales")
    method = quantised(task().fedavg) if of_codes else sparsified(task().fedavg, share=0.5)
    _, sent, _ = upload(method)
    method.accept(sent, 0, {})
    refuses("Expected", lambda: method.accept({**sent, key: change(sent[key])}, 0, {}))


def test_a_hostile_scale_costs_one_client_its_round() -> None:
    made = task()
    method = quantised(made.fedavg)

    def hostile(params: Any, context: Any, state: Any, graph: fgl.Graph) -> Any:
        message, new = method.send(params, context, state, graph)
        if graph is made.clients[2]:
            big = {name: t * 1e30 for name, t in message["model_scales"].items()}
            message = {**message, "model_scales": big}
        return message, new

    open_method = fgl.federation.method.compose.unsealed(method)
    with pytest.warns(UserWarning, match="client 2"):
        result = fgl.run(replace(open_method, send=hostile), made, num_rounds=1, clients_at_once=1)
    assert list(result.history[0].dropped) == [2]


def test_what_must_be_exact_is_refused_with_its_reason() -> None:
    fedavg = task().fedavg
    for inner in (clipped(fedavg, length=1.0), quantised(fedavg), sparsified(fedavg)):
        for outer in (quantised, sparsified):
            with pytest.raises(ValueError, match=r"Expected (quantised|sparsified) to be given a"):
                outer(inner)
    refuses("means alone|model", lambda: secure_sum(quantised(fedavg), threshold=3))
    made = task()
    with pytest.raises(ValueError, match="Expected quantised to be the outermost wrapper"):
        fgl.run(robust(quantised(fedavg), fgl.aggregate.robust.median), made, num_rounds=1)


def test_local_noise_may_be_inside_and_is_counted() -> None:
    made = task()
    method = quantised(rehearsed(local_gaussian, made))
    result = fgl.run(method, made, num_rounds=2, watch=privacy_spent)
    assert result.history[-1].metrics["epsilon"] == math.inf  # drawn from the run's seed
    assert method.rules.silent


def test_a_download_is_half_and_a_client_starts_from_what_it_got() -> None:
    made = task()
    method = rounded_downloads(made.fedavg)
    history = fgl.run(method, made, num_rounds=3).history
    assert history[0].bytes_down == 2 * history[1].bytes_down == 2 * history[2].bytes_down
    message = {"model": {n: t * 1.0001 for n, t in method.initial().items()}}
    sent = {0: {**message, "num_examples": torch.tensor(1)}}
    outbox, _ = method.aggregate(Inbox(sent, 4, {0: message}, 0), {})
    params, _ = method.receive(outbox[0], {}, made.clients[0])
    for name, tensor in params.items():
        assert tensor.dtype == torch.float32
        assert tensor.equal(message["model"][name].bfloat16().float())
    deployed = method.deploy(outbox[0], {}, made.clients[0])
    assert all(deployed[name].equal(tensor) for name, tensor in params.items())


def test_what_does_not_fit_into_float16_raises() -> None:
    method = rounded_downloads(task().fedavg, dtype="float16")
    large = {"model": {n: torch.full_like(t, 1e5) for n, t in method.initial().items()}}
    sent = {0: {**large, "num_examples": torch.tensor(1)}}
    with pytest.raises(ValueError, match=r"Expected model/\S+ to fit into torch.float16"):
        method.aggregate(Inbox(sent, 4, {0: large}, 0), {})


def test_only_what_has_the_names_of_the_model_is_coded() -> None:
    with pytest.raises(ValueError, match="names of the model"):
        upload(quantised(task().fedavg, parts=("model", "num_examples")))

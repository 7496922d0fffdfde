"""Messages: their bytes, their checks, the inbox and the broadcast."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fgl.federation import Broadcast, Inbox, check_message, num_bytes
from fgl.federation.checks import check_model, first_not_finite
from fgl.federation.message import leaves

MODEL = {"weight": torch.zeros(2, 3), "bias": torch.zeros(3)}


def message(**changes: Any) -> dict[str, Any]:
    return {"model": {**MODEL, **changes}, "num_examples": torch.tensor(4)}


def naive_bytes(value: Any) -> int:
    if isinstance(value, dict):
        return sum(naive_bytes(item) for item in value.values())
    return len(bytes(value.contiguous().view(torch.uint8).flatten().tolist()))


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.float32, torch.float64, torch.int64, torch.bool, torch.uint8]
)
def test_num_bytes_counts_what_the_tensors_hold(dtype: torch.dtype) -> None:
    tensors = {"a": torch.zeros(3, 5).to(dtype), "deep": {"b": torch.ones(1, 7).to(dtype)}}
    assert num_bytes(tensors) == naive_bytes(tensors)


def test_num_bytes_of_a_view_counts_the_view() -> None:
    assert num_bytes({"row": torch.zeros(100, 100)[0], "wide": torch.zeros(1).expand(9)}) == 436


def test_num_bytes_of_nothing() -> None:
    assert num_bytes({}) == num_bytes({"model": {}, "empty": torch.zeros(0, 4)}) == 0


def test_leaves_come_in_order_with_their_path() -> None:
    assert [path for path, _ in leaves(message())] == [
        "model/weight",
        "model/bias",
        "num_examples",
    ]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_first_not_finite_names_the_tensor(bad: float) -> None:
    assert first_not_finite(message()) is None
    assert first_not_finite(message(bias=torch.tensor([0.0, bad, 0.0]))) == "model/bias"
    assert first_not_finite({"steps": torch.tensor(3), "loss": torch.tensor(bad)}) == "loss"


def test_a_good_message_passes() -> None:
    check_message(message(), like=message(), model=MODEL)
    check_message({}, model=MODEL)
    check_message({"model": {"bias": MODEL["bias"]}}, model=MODEL)  # part of a model may travel
    check_model(MODEL, MODEL)


def test_a_check_changes_nothing() -> None:
    value = message()
    check_message(value, like=message(), model=MODEL)
    assert list(value) == ["model", "num_examples"]
    assert value["model"]["weight"] is MODEL["weight"]


def test_whole_model_is_asked_for_by_name() -> None:
    with pytest.raises(ValueError, match=r"message\['model'\] to have .* missing \['bias'\]"):
        check_model({"weight": MODEL["weight"]}, MODEL)
    with pytest.raises(ValueError, match=r"extra \['head'\]"):
        check_model({**MODEL, "head": torch.zeros(1)}, MODEL)
    with pytest.raises(TypeError, match=r"message\['model'\] to be a dict of .* got NoneType"):
        check_model(None, MODEL)


def test_inbox_is_in_the_order_of_the_clients() -> None:
    inbox = Inbox({3: {"n": torch.tensor(3)}, 0: {"n": torch.tensor(0)}}, num_clients=5)
    assert list(inbox) == [0, 3]
    assert len(inbox) == 2
    assert inbox.num_clients == 5
    assert 1 not in inbox
    assert inbox[3]["n"] == 3
    assert inbox.stack("n").tolist() == [0, 3]


def test_inbox_stacks_each_entry() -> None:
    first, second = message(), message(weight=torch.ones(2, 3))
    stack = Inbox({1: second, 0: first}, 2).stack("model")
    assert list(stack) == ["weight", "bias"]
    assert torch.equal(stack["weight"], torch.stack([torch.zeros(2, 3), torch.ones(2, 3)]))
    assert stack["bias"].shape == (2, 3)


def test_inbox_does_not_stack_what_does_not_fit() -> None:
    def stack(second: Any, key: str = "model") -> Any:
        return Inbox({0: message(), 4: second}, 5).stack(key)

    with pytest.raises(ValueError, match=r"client 4's message to have 'model', but got \[\]"):
        stack({})
    with pytest.raises(ValueError, match=r"client 4's model to have .* missing \['bias'\]"):
        stack({"model": {"weight": MODEL["weight"]}})
    with pytest.raises(ValueError, match=r"client 4's model to have .* extra \['head'\]"):
        stack(message(head=torch.zeros(1)))
    with pytest.raises(ValueError, match=r"client 4's model/bias to have shape \[3\], .* \[1\]"):
        stack(message(bias=torch.zeros(1)))
    with pytest.raises(
        TypeError, match=r"client 4's model/bias to be torch.float32, .* torch.float64"
    ):
        stack(message(bias=torch.zeros(3, dtype=torch.float64)))
    with pytest.raises(TypeError, match=r"client 4's model to be a dict, but got a Tensor"):
        stack({"model": torch.zeros(3)})
    with pytest.raises(TypeError, match=r"client 4's num_examples to be a tensor, but got dict"):
        stack({"num_examples": {}}, "num_examples")
    with pytest.raises(ValueError, match=r"inbox to have a message, but got none"):
        Inbox({}, 2).stack("model")


def test_broadcast_is_one_message_for_everybody() -> None:
    value = message()
    outbox = Broadcast(value, num_clients=3)
    assert list(outbox) == [0, 1, 2]
    assert all(got is value for got in outbox.values())
    for nobody in (3, -1):
        with pytest.raises(KeyError):
            outbox[nobody]
    assert outbox.get(3) is None

"""Messages: their bytes, their checks, the inbox and the broadcast."""

from typing import Any

import numpy as np
import pytest
import torch
from federations import refuses

from fgl.federation import Inbox
from fgl.federation.method.message import check_message, leaves, whole

MODEL = {"weight": torch.zeros(2, 3), "bias": torch.zeros(3)}


def message(**changes: Any) -> dict[str, Any]:
    return {"model": {**MODEL, **changes}, "num_examples": torch.tensor(4)}


def test_leaves_come_in_order_with_their_path() -> None:
    assert [path for path, _ in leaves(message())] == ["model/weight", "model/bias", "num_examples"]


def test_keys_are_strings() -> None:
    for wrong in ({1: torch.ones(1)}, {"model": {1: torch.ones(1)}}):
        with pytest.raises(TypeError, match=r"the keys of message.* to be strings, but got 1"):
            check_message(wrong)  # type: ignore[arg-type]


def test_inbox_does_not_stack_what_does_not_fit() -> None:
    def stack(second: Any, key: str = "model") -> Any:
        return Inbox({0: message(), 4: second}, 5).stack(key)

    refuses(r"client 4's message to have 'model', but got \[\]", lambda: stack({}))
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
    refuses(r"inbox to have a message, but got none", lambda: Inbox({}, 2).stack("model"))


def three() -> tuple[dict[int, Any], dict[int, Any]]:
    """What clients 0, 2 and 3 were sent, and what they sent."""
    went = {k: {"model": {"w": torch.full((2, 3), float(k)), "b": torch.ones(2)}} for k in range(4)}
    came = {
        k: {
            "model": {"w": torch.arange(6.0).view(2, 3) * (k + 1), "b": torch.full((2,), k + 0.5)},
            "n": torch.tensor(k),
        }
        for k in (3, 0, 2)
    }
    return went, came


def test_changes_name_what_is_missing() -> None:
    went, came = three()
    with pytest.raises(ValueError, match=r"client 0 to have been sent 'model', but got \[\]"):
        Inbox(came, 4).changes("model")
    with pytest.raises(ValueError, match=r"client 0 to have been sent 'n', but got \['model'\]"):
        Inbox(came, 4, went).changes("n")
    went[2] = {"model": {"w": went[2]["model"]["w"]}}
    with pytest.raises(ValueError, match=r"client 2 to have been sent all of model .* no \['b'\]"):
        Inbox(came, 4, went).changes("model")
    went[2] = {"model": {"w": torch.ones(3, 3), "b": torch.ones(2)}}
    with pytest.raises(ValueError, match=r"client 2 .* model/w of shape \[2, 3\], .* \[3, 3\]"):
        Inbox(came, 4, went).changes("model")
    went[2] = {"model": torch.ones(1)}
    with pytest.raises(TypeError, match=r"client 2 to have been sent model as a dict"):
        Inbox(came, 4, went).changes("model")


def test_messages_are_the_way_back() -> None:
    _, came = three()
    inbox = Inbox(came, 4)
    stacks = {"model": inbox.stack("model"), "n": inbox.stack("n")}
    back = inbox.messages(stacks)
    assert list(back) == [0, 2, 3]
    for client, message in back.items():
        assert list(message) == ["model", "n"]
        assert torch.equal(message["model"]["w"], came[client]["model"]["w"])
        assert message["n"] == client
    with pytest.raises(ValueError, match=r"model/w to have 3 rows, one per client, .* \[4, 2\]"):
        inbox.messages({"model": {"w": torch.ones(4, 2)}})
    with pytest.raises(ValueError, match=r"n to have 3 rows, one per client, but got shape \[\]"):
        inbox.messages({"n": torch.tensor(1)})
    assert inbox.messages({}) == {0: {}, 2: {}, 3: {}}


def test_a_stack_is_a_copy_to_be_changed_at_will() -> None:
    inbox = Inbox(three()[1], 4)
    before = inbox.stack("model")["w"]
    inbox.stack("model")["w"][0] += 1
    assert torch.equal(inbox.stack("model")["w"], before)


def test_tensors_side_by_side_in_two_storages_are_no_stack() -> None:
    room = np.arange(6.0)
    parts = [torch.from_numpy(room[:3]), torch.from_numpy(room[3:])]
    assert whole(parts) is parts
    assert torch.equal(whole([*torch.from_numpy(room).view(2, 3)]), torch.stack(parts))  # type: ignore[arg-type]

"""Packed messages: every name, dtype, shape and bit comes back; what is broken is refused."""

from typing import Any

import pytest
import torch
from federations import refuses, same

pytest.importorskip("safetensors")

from fgl.federation.executors.remote.shelf import StateFolder
from fgl.federation.executors.remote.wire import pack, unpack

NANS = torch.tensor([0x7FC00001, 0x7F800001, -1], dtype=torch.int32).view(torch.float32)
TWICE = torch.arange(6.0).view(2, 3)
MESSAGE: dict[str, Any] = {
    "z": torch.tensor(True),
    "model": {"b.weight": TWICE.mT, "a/b": torch.zeros(0, 3), "": torch.ones(())},
    "nothing": {},
    "a": torch.tensor([2**62, -1]),
    "half": torch.tensor([1.0, torch.nan], dtype=torch.bfloat16),
    "same": TWICE,
    "again": TWICE,
    "part": torch.arange(100)[::7],
    "expanded": torch.ones(1).expand(4),
    "double": torch.tensor([1e-320], dtype=torch.float64),
}


def test_everything_comes_back_in_its_order() -> None:
    back = unpack(pack(MESSAGE))
    assert same(back, MESSAGE)
    assert list(back["model"]) == list(MESSAGE["model"])
    assert unpack(pack({})) == {}


def test_every_bit_of_a_nan_comes_back() -> None:
    back: Any = unpack(pack({"w": NANS}))
    assert back["w"].view(torch.int32).tolist() == NANS.view(torch.int32).tolist()


def test_what_cannot_be_packed() -> None:
    with pytest.raises(TypeError, match="Expected 'w' to be dense, but got torch.sparse_coo"):
        pack({"w": torch.eye(2).to_sparse()})


@pytest.mark.parametrize("cut", [0, 4, 20, -1])
def test_half_a_message_is_refused(cut: int) -> None:
    refuses("to be a packed message", lambda: unpack(pack(MESSAGE)[:cut]))


def test_a_damaged_state_is_not_read(tmp_path: Any) -> None:
    shelf = StateFolder(tmp_path, run=1, client=0)
    shelf.write(2, b"state")
    (path,) = tmp_path.rglob("*.state")
    assert shelf.read(2) == b"state"
    path.write_bytes(path.read_bytes()[:-1])
    assert shelf.read(2) is None
    shelf.drop(2)
    shelf.drop(2)
    assert shelf.rounds() == []

"""How far uploads are from what was sent, against one upload at a time in plain Python."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from fgl.federation.gate.uploads import FEW, changes


def plain(message: Any, sent: Any) -> dict[str, tuple[float, float | None]]:
    """Entry by entry, in double."""
    found: dict[str, tuple[float, float | None]] = {}
    for key, value in message.items():
        inner = value if isinstance(value, dict) else {"": value}
        went = sent.get(key, {})
        went = went if isinstance(went, dict) else {"": went}
        new = {n: t.double() for n, t in inner.items() if t.is_floating_point()}
        if not new or key == "num_examples":
            continue
        floats = {n: t.double() for n, t in went.items() if t.is_floating_point()}
        old = {n: floats[n] for n in new if n in floats and floats[n].shape == new[n].shape}
        moved = torch.cat([(t - old.get(n, 0)).flatten() for n, t in new.items()])
        size = torch.cat([t.flatten() for t in old.values()]).norm() if old else None
        count = math.sqrt(max(moved.numel(), 1))
        found[key] = float(moved.norm()) / count, None if size is None else float(size) / count
    return found


def some(seed: int, large: int = 3, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    g = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=g).to(dtype)

    model = {"w": draw(large, 4), "b": draw(4), "turned": draw(4, 5).t(), "none": draw(0)}
    return {"model": model, "shift": draw(7), "num_examples": torch.tensor(3), "n": draw()}


def assert_close(got: Any, want: Any, rel: float = 1e-5) -> None:
    assert got.keys() == want.keys()
    for key, (moved, size) in want.items():
        assert got[key].moved == pytest.approx(moved, rel=rel)
        assert got[key].size == (size if size is None else pytest.approx(size, rel=rel))


@pytest.mark.parametrize("large", [3, FEW // 4 + 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_all_at_once_are_each_alone(large: int, dtype: torch.dtype) -> None:
    uploads = {k: some(k, large, dtype) for k in (0, 3, 4)}
    sent: dict[int, Any] = {k: {"model": some(9, large, dtype)["model"]} for k in (0, 3)}
    sent[4] = {"model": {"w": torch.zeros(2, 2)}, "shift": some(8)["shift"].double()}
    found, wrong = changes(uploads, sent)
    assert not wrong
    for client, message in uploads.items():
        want = plain(message, sent[client])
        assert_close(found[client], want, rel=2e-2 if dtype == torch.bfloat16 else 1e-5)


def test_sparse_entries_count_with_their_values() -> None:
    dense = torch.eye(3)
    for layout in (torch.sparse_coo, torch.sparse_csr):
        (change,) = changes({0: {"w": dense.to_sparse(layout=layout)}}, {})[0][0].values()
        assert change.moved == pytest.approx(1) and change.size is None

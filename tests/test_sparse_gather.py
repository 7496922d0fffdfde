"""`gather_rows` and `sum_rows` against loops; alone, under `vmap`, and on the pretended device."""

from typing import Any

import pytest
import torch
from pretended_device import PretendedDevice
from torch import Tensor
from torch.func import grad, vmap

from fgl.sparse import gather_rows
from fgl.sparse.gather import below_each_other

D = torch.float64


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=D)


@pytest.mark.parametrize("dims", [(0, None), (1, None), (None, 0), (0, 0), (1, 1), (0, 1)])
def test_vmap_equals_the_loop(dims: tuple[Any, Any]) -> None:
    size = 3
    shape, places = [4, 2], [5]
    if dims[0] is not None:
        shape.insert(dims[0], size)
    if dims[1] is not None:
        places.insert(dims[1], size)
    x = draw(*shape)
    index = torch.randint(4, places, generator=torch.Generator().manual_seed(1))

    def one(x: Tensor, index: Tensor) -> Tensor:
        return gather_rows(x, index)

    def slope(x: Tensor, index: Tensor) -> Tensor:
        return grad(lambda each: gather_rows(each, index).pow(3).sum())(x)

    for function in (one, slope):
        each = [
            [t if d is None else t.select(d, k) for t, d in zip((x, index), dims, strict=True)]
            for k in range(size)
        ]
        want = [function(*own) for own in each]
        torch.testing.assert_close(vmap(function, dims)(x, index), torch.stack(want))


@pytest.mark.parametrize("bad", [-1, 4])
def test_under_vmap_an_index_out_of_range_names_no_row_of_another_client(bad: int) -> None:
    x, index = draw(2, 4, 1), torch.tensor([[0, 1], [2, bad]])
    with pytest.raises(IndexError, match=rf"Expected index to be in \[0, 4\), but got {bad}"):
        vmap(gather_rows)(x, index)
    with PretendedDevice(), pytest.raises(IndexError):  # of the next kernel
        vmap(gather_rows)(x.cuda(), index.cuda())


def test_on_a_device_sums_have_an_order_and_the_host_does_not_wait() -> None:
    index = torch.tensor([[0, 2, 2, 2], [1, 1, 0, 1]])
    x = draw(2, 3, 2)

    def slopes(x: Tensor, index: Tensor) -> Tensor:
        return vmap(grad(lambda each, at: gather_rows(each, at).pow(3).sum()))(x, index)

    want = slopes(x, index)
    with PretendedDevice() as gpu:
        x, index = x.cuda(), index.cuda()
        gpu.waits.clear()
        got = slopes(x, index)
        assert not gpu.waits
        assert not gpu.unordered
        x.index_select(1, index[0]).cpu()
        torch.zeros(3, device="cuda").index_add(0, index[0], torch.ones(4, device="cuda"))
        assert gpu.unordered  # what it would have said
    torch.testing.assert_close(got, want)
    assert below_each_other(torch.zeros(0, 2, dtype=torch.int64), 3).shape == (0,)

"""Server-side aggregation against loops over the formulas."""

import math

import pytest
import torch
from federations import refuses
from torch import Tensor

from fgl import SparseMatrix
from fgl.aggregate import mean, mix, server_step

K = 5


def stack(dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(2)
    shapes = {"weight": (4, 3), "bias": (3,), "scale": ()}
    return {
        name: torch.randn(K, *shape, generator=g, dtype=torch.float64).to(dtype)
        for name, shape in shapes.items()
    }


@pytest.mark.parametrize("listed", [False, True])
def test_mean_has_the_gradient_of_its_value(listed: bool) -> None:
    value = stack()["weight"].requires_grad_()
    weight = torch.tensor([3.0, 1, 0.5, 20, 7], dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda v, w: mean({"w": list(v) if listed else v}, w)["w"], (value, weight)
    )


@pytest.mark.parametrize(("weight", "message"), [
    (torch.tensor([1.0, 1, -1, 1, 1]), "Expected weight to be finite and >= 0, but got"),
    (torch.tensor([1.0, 1, math.nan, 1, 1]), "Expected weight to be finite and >= 0, but got"),
    (torch.tensor([1.0, 1, math.inf, 1, 1]), "Expected weight to be finite and >= 0, but got"),
    (torch.zeros(K), "Expected weight to have a positive entry, but got"),
    (torch.zeros(0), "Expected weight to have a positive entry, but got"),
    (torch.ones(K, 1), r"Expected weight to have shape \[K\], but got \[5, 1\]"),
    (torch.tensor(1.0), r"Expected weight to have shape \[K\], but got \[\]"),
    (torch.ones(K - 1), r"Expected stack\['w'\] to have 4 clients, but got shape \[5, 2\]"),
])  # fmt: skip
def test_mean_refuses_bad_weights(weight: Tensor, message: str) -> None:
    refuses(message, lambda: mean({"w": torch.ones(K, 2)}, weight))


def client_matrix(dtype: torch.dtype = torch.float64) -> Tensor:
    matrix = torch.rand(K, K, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    matrix[matrix < 0.4] = 0
    matrix[3] = 0  # one who learns from nobody
    return matrix.to(dtype)


FORMS = {
    "dense": lambda matrix: matrix,
    "coo": Tensor.to_sparse,
    "csr": Tensor.to_sparse_csr,
    "SparseMatrix": SparseMatrix.from_dense,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("self_weight", [0.0, 0.05, 0.95])
def test_mix_equals_loops(form: str, self_weight: float) -> None:
    models, matrix = stack(), client_matrix()
    models["empty"] = torch.zeros(K, 0, dtype=torch.float64)
    kept = {name: value.clone() for name, value in models.items()}
    got = mix(models, FORMS[form](matrix), self_weight=self_weight)
    assert got.keys() == models.keys()
    for name, value in kept.items():
        assert torch.equal(models[name], value)
        assert got[name].shape == value.shape
        for i in range(K):
            for place, own in enumerate(value[i].flatten().tolist()):
                others = [value[j].flatten().tolist()[place] for j in range(K)]
                near = sum(a * x for a, x in zip(matrix[i].tolist(), others, strict=True))
                want = self_weight * own + (1 - self_weight) * near
                assert got[name][i].flatten()[place].item() == pytest.approx(want, abs=1e-13)


@pytest.mark.parametrize(("matrix", "self_weight", "message"), [
    (torch.ones(K), 0.0, r"Expected matrix to have shape \[K, K\], but got \[5\]"),
    (torch.ones(K, 4), 0.0, r"Expected matrix to have shape \[K, K\], but got \[5, 4\]"),
    (torch.ones(4, 4), 0.0, r"Expected stack\['w'\] to have 4 clients, but got \[5, 2\]"),
    (torch.full((K, K), math.nan), 0.0, "Expected matrix to be finite, but got NaN"),
    (torch.full((K, K), math.inf), 1.0, "Expected matrix to be finite, but got NaN"),
    (torch.eye(K), 1.5, r"Expected self_weight to be a number >= 0 and <= 1, but got 1.5"),
    (torch.eye(K), math.nan, r"Expected self_weight to be a number >= 0 and <= 1, but got nan"),
])  # fmt: skip
def test_mix_refuses_bad_input(matrix: Tensor, self_weight: float, message: str) -> None:
    refuses(message, lambda: mix({"w": torch.ones(K, 2)}, matrix, self_weight=self_weight))


def test_mix_refuses_a_sparse_matrix_that_is_not_finite() -> None:
    bad = SparseMatrix.from_dense(torch.eye(K) * math.nan)
    for matrix in (bad, bad.to_dense().to_sparse()):
        with pytest.raises(ValueError, match="Expected matrix to be finite, but got NaN"):
            mix({"w": torch.ones(K, 2)}, matrix)


def test_server_step_wants_a_target_of_every_shape() -> None:
    params = {"w": torch.zeros(2), "b": torch.zeros(1)}
    for target, name, got in (
        ({"w": torch.zeros(1), "b": torch.zeros(1)}, "w", r"\[1\]"),  # it would be broadcast
        ({"w": torch.zeros(2)}, "b", "no such tensor"),
    ):
        with pytest.raises(ValueError, match=rf"target\['{name}'\] to have shape .*got {got}"):
            server_step(params, target, {})


def test_mix_by_whole_numbers_is_refused() -> None:
    with pytest.raises(TypeError, match="matrix to be floating point, but got torch.bool"):
        mix({"w": torch.ones(2, 1)}, torch.eye(2).bool())


def test_mean_does_not_broadcast() -> None:
    text = r"Expected stack\['w'\] to have one shape, but got \[\(1,\), \(3,\)\]"
    for order in (slice(None), slice(None, None, -1)):
        tensors = [torch.zeros(3), torch.ones(1)][order]
        with pytest.raises(ValueError, match=text):
            mean({"w": tensors}, torch.ones(2))


@pytest.mark.parametrize("rule", ["adam", "yogi", "adagrad"])
def test_server_step_with_the_state_of_another_rule(rule: str) -> None:
    zero, one = {"w": torch.zeros(1)}, {"w": torch.ones(1)}
    _, state = server_step(zero, one, {})
    with pytest.raises(ValueError, match=rf"Expected state\['v'\] to hold 'w' for {rule}, but"):
        server_step(zero, one, state, rule=rule)  # type: ignore[arg-type]


def test_complex_and_mixed_dtypes_are_refused() -> None:
    with pytest.raises(TypeError, match=r"clients' tensors to be real, but got torch.complex64"):
        mean({"w": torch.ones(2, 3) * 1j}, torch.ones(2))
    with pytest.raises(TypeError, match=r"clients' tensors to be real"):
        mix({"w": torch.ones(2, 3) * 1j}, torch.eye(2))
    with pytest.raises(TypeError, match=r"stack\['w'\] to have one dtype, but got .*float32.*int"):
        mean({"w": [torch.ones(3, dtype=torch.int64), torch.full((3,), 0.4)]}, torch.ones(2))


def test_mean_of_a_list_equals_loops_whatever_its_length() -> None:
    weight = torch.arange(1, 41)
    for size in (3, 5_000, 9_000):  # few numbers, a list that is stacked, one that is not
        rows = [*torch.randn(40, size, generator=torch.Generator().manual_seed(size)).double()]
        want = sum(int(w) * row for w, row in zip(weight, rows, strict=True)) / int(weight.sum())
        torch.testing.assert_close(mean({"w": rows}, weight)["w"], want)

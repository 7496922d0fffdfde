"""What CUDA would refuse, and where the host would wait for it, without any CUDA at hand."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import test_cuda
import torch
from conformance import ROWS
from federations import METHODS, end, fedavg, graphs, model, printed, same, script
from pretended_cases import case_there, cases, together
from pretended_device import CUDA, Mixed, PretendedDevice
from test_recipes import VARIANTS, go

import fgl
from fgl.federation.method.message import leaves

CPU = torch.device("cpu")
RESUMED = (("gcfl plus gradients", "own"), ("fedavg", "graphs"), ("gcfl plus", "graphs"))
SLOW = pytest.mark.slow


@pytest.fixture
def gpu() -> Iterator[PretendedDevice]:
    with PretendedDevice() as pretended:
        yield pretended


# -- the tool itself


def test_what_is_made_of_its_tensors_is_there_too(gpu: PretendedDevice) -> None:
    x = torch.ones(3, 2).to("cuda")
    made = [x + 1, x[0], x.t(), torch.zeros(2, device="cuda"), x.new_tensor([1.0])]
    made += [torch.nn.functional.pad(x, (0, 1)), torch.nn.functional.one_hot(x[0].long())]
    made += [torch.nn.utils.rnn.pad_sequence([x, x[:1]]), copy.deepcopy(x), torch.rand_like(x)]
    made += [torch.func.vmap(lambda row: row * 2)(x), x.to(torch.float64)]
    assert {each.device for each in made} == {CUDA}
    assert {x.cpu().device, torch.ones(2).device, torch.zeros_like(x, device="cpu").device} == {CPU}
    net = torch.nn.Linear(2, 1).cuda()
    net(x).sum().backward()
    torch.optim.Adam(net.parameters()).step()
    assert net.weight.device == net.weight.grad.device == CUDA  # type: ignore[union-attr]
    assert gpu.steps == 1


@pytest.mark.parametrize(
    "mixed",
    [
        lambda x, y: x + y,
        lambda x, y: x @ y.diag(),
        lambda x, y: torch.stack([x.sum(), y.sum()]),
        lambda x, y: y[x.long()],
        lambda x, y: y.sum().add_(x.sum()),
        lambda x, y: x.index_copy(0, torch.tensor([0]), y[:1]),
        lambda x, y: torch.func.vmap(lambda a, b: a * b)(x, y),
        lambda x, y: x.numpy(),
        lambda x, y: torch.rand(2, generator=torch.Generator(), device="cuda"),
    ],
)
def test_operands_of_two_devices_are_refused(gpu: PretendedDevice, mixed: Any) -> None:
    with pytest.raises(Mixed, match=r"Expected .* at .*py:\d+"):
        mixed(torch.zeros(3, device="cuda"), torch.zeros(3))
    assert len(gpu.mixed) == 1


def test_waits_and_copies_are_counted_with_file_and_line(gpu: PretendedDevice) -> None:
    x = torch.ones(3, device="cuda")
    fgl.metrics.accuracy(x[:, None], x.long() * 0)
    assert gpu.waits.total() == gpu.copies.total() == 1
    x[x > 0].tolist()
    place = [what for what in gpu.waits if what.startswith("fgl/metrics/classes.py:")]
    assert place
    assert all(what.split(":")[1].split()[0].isdigit() for what in place)
    assert any(what.endswith(" index by a mask") for what in gpu.waits)
    assert any("test_pretended_device.py" in what and "tolist" in what for what in gpu.waits)
    x.cpu()
    assert gpu.copies.total() == 2
    before = gpu.waits.total()
    assert torch.ones(3).sum().item() == 3  # of the processor: nothing is waited for
    assert gpu.waits.total() == before


@pytest.mark.parametrize("name", ["gcn_fedavg", "fgssl"])
def test_a_step_of_a_batch_is_a_graph(name: str, gpu: PretendedDevice) -> None:
    """All that can be known of `benchmarks/speed/cuda_graph.py` without a device."""
    words = ["--nodes", "30", "--clients", "3", "--steps", "3", "--repeats", "1", "--only", name]
    with warnings.catch_warnings():
        found = script("benchmarks/speed/cuda_graph.py").main(words)[f"{name}/K=3"]
    assert found.keys() == {
        *("largest_difference", "same", "step_ms", "replayed_ms", "replayed_over_step")
    }
    assert found["same"]
    assert not gpu.mixed


# The tests of a real device, here.


@SLOW
@pytest.mark.parametrize("test", [name for name in vars(test_cuda) if name.startswith("test_")])
def test_the_tests_of_a_gpu_pass_here(test: str) -> None:
    words = ["-q", "-p", "no:cacheprovider", "tests/test_cuda.py", "-k", test]
    said = printed("-m", "pretended_device", "-m", "pytest", *words)
    assert " passed" in said
    assert "skipped" not in said
    assert " 0 mixed devices" in said


# -- the library there


@pytest.mark.parametrize("at_once", [1, "all"], ids=["loop", "batch"])
@cases()
def test_a_round_mixes_no_devices(
    name: str, task: str, at_once: Any, gpu: PretendedDevice, monkeypatch: Any
) -> None:
    method, made = case_there(name, task, monkeypatch)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Secure sum")
        at_once = together(name, task, at_once)
        result = fgl.run(method, made, num_rounds=2, clients_at_once=at_once, strict=True)
    assert not gpu.mixed
    if task != "a PyG model":  # its own layers scatter
        assert not gpu.unordered  # so that a run has the same bits every time
    models = [message["model"] for message in result.outbox.values() if "model" in message]
    assert {each.device for params in models for _, each in leaves(params)} <= {CUDA}


@SLOW
@pytest.mark.parametrize("at_once", [1, "all"], ids=["loop", "batch"])
@pytest.mark.parametrize("kind", [fgl.nn.GCN, fgl.nn.GAT], ids=["gcn", "gat"])
def test_no_sum_is_without_an_order_where_a_gpu_must_repeat_its_bits(
    kind: Any, at_once: Any, gpu: PretendedDevice
) -> None:
    """The runs of `test_cuda.test_reductions_are_deterministic`."""
    method = METHODS["fgssl"](model(kind).cuda())
    fgl.run(method, test_cuda.clients(), num_rounds=2, clients_at_once=at_once)
    assert gpu.steps
    assert not gpu.unordered


@cases(
    (),
    [
        *((name, row.tasks[0]) for name, row in ROWS.items()),
        *(("fedavg", task) for task in ("gat", "sampled", "a PyG model", "molecules", "types")),
    ],
)
def test_nothing_raises_under_deterministic_algorithms(
    name: str, task: str, gpu: PretendedDevice, monkeypatch: Any
) -> None:
    method, made = case_there(name, task, monkeypatch)
    torch.use_deterministic_algorithms(True)
    try:
        at_once = together(name, task)
        fgl.run(method, made, num_rounds=2, clients_at_once=at_once, strict=True)
    finally:
        torch.use_deterministic_algorithms(False)
    assert not gpu.mixed


def test_shares_are_projected_under_deterministic_algorithms(gpu: PretendedDevice) -> None:
    rows = torch.randn(5, 7)
    want = fgl.aggregate.project_to_simplex(rows)
    torch.use_deterministic_algorithms(True)
    try:
        got = fgl.aggregate.project_to_simplex(rows.cuda()).cpu()
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close(got, want)


def devices(result: Any) -> list[Any]:
    """Where all that a run keeps is."""
    kept = [result.server_state, *result.outbox.values(), *result.client_states.values()]
    return [(path, tensor.device) for each in kept for path, tensor in every(each)]


def every(value: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    for key, part in value.items():
        if isinstance(part, torch.Tensor):
            yield f"{path}/{key}", part
        else:
            yield from every(part, f"{path}/{key}")


@pytest.mark.parametrize("at_once", [1, "all"], ids=["loop", "batch"])
@cases((), [*RESUMED, *((name, row.tasks[0]) for name, row in ROWS.items())])
def test_a_resume_puts_everything_back_where_it_was(
    name: str, task: str, at_once: Any, gpu: PretendedDevice, monkeypatch: Any, tmp_path: Path
) -> None:
    method, made = case_there(name, task, monkeypatch)
    at_once = together(name, task, at_once)
    go_on = partial(fgl.run, clients_at_once=at_once, seed=1, strict=True)
    whole = go_on(method, made, num_rounds=3)
    go_on(method, made, num_rounds=1, checkpoint=tmp_path)
    resumed = go_on(method, made, num_rounds=3, checkpoint=tmp_path)
    assert not gpu.mixed
    assert devices(resumed) == devices(whole)
    assert same(end(resumed), end(whole))


def test_a_run_moves_from_the_processor_to_a_device_and_back(
    gpu: PretendedDevice, tmp_path: Path
) -> None:
    method, data = fedavg(model()), graphs()
    fgl.run(method, data, num_rounds=1, checkpoint=tmp_path, clients_at_once=1)
    there = [graph.to("cuda") for graph in data]
    moved = fgl.run(
        fedavg(model().cuda()), there, num_rounds=2, checkpoint=tmp_path, clients_at_once=1
    )
    assert {device for _, device in devices(moved) if _.startswith("/model")} == {CUDA}
    back = fgl.run(method, data, num_rounds=3, checkpoint=tmp_path, clients_at_once=1)
    assert {device for _, device in devices(back)} == {CPU}
    assert not gpu.mixed


RECIPES = {**VARIANTS, "baseline": ("baseline", ["fedprox", "ego-nodes", "--mu", "0.1"])}
RECIPES["baseline"][1].extend(["--rounds", "2", "--hidden", "8", "--clients", "2"])


@SLOW
@pytest.mark.parametrize(("variant", "at_once"), list(product(RECIPES, ("1", "all"))))
def test_a_recipe_runs_and_resumes_there(
    variant: str, at_once: str, gpu: PretendedDevice, tmp_path: Path
) -> None:
    name, flags = RECIPES[variant]
    flags = [*flags, "--device", "cuda", "--clients-at-once", at_once, "--checkpoint"]
    whole = go(name, *flags, str(tmp_path / "whole"))[1]
    go(name, *flags, str(tmp_path / "cut"), "--rounds", "1")
    resumed = go(name, *flags, str(tmp_path / "cut"))[1]
    assert not gpu.mixed
    assert devices(resumed) == devices(whole)
    assert same(end(resumed), end(whole))

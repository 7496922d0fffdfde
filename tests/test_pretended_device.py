"""What CUDA would refuse, and where the host would wait for it, without any CUDA at hand."""

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
from federations import CLASSES, FEATURES, end, fedavg, graphs, model, printed, same
from pretended_cases import case_there, cases, together
from pretended_device import CUDA, PretendedDevice
from test_recipes import VARIANTS, go

import fgl
from fgl.federation.executors.batch import traced
from fgl.federation.executors.batch.captured import captured
from fgl.federation.method.message import leaves

CPU = torch.device("cpu")
RESUMED = (("gcfl plus gradients", "own"), ("fedavg", "graphs"), ("gcfl plus", "graphs"))
SLOW = pytest.mark.slow


@pytest.fixture
def gpu() -> Iterator[PretendedDevice]:
    with PretendedDevice() as pretended:
        yield pretended


# -- the tool itself


# The tests of a real device, here.


@SLOW
@pytest.mark.parametrize("test", [name for name in vars(test_cuda) if name.startswith("test_")])
def test_the_tests_of_a_gpu_pass_here(test: str) -> None:
    words = ["-q", "-p", "no:cacheprovider", "tests/test_cuda.py", "-k", test]
    said = printed("-m", "pretended_device", "-m", "pytest", *words)
    assert " passed" in said
    assert "skipped" not in said
    assert " 0 mixed devices" in said


@SLOW
def test_steps_are_measured_here() -> None:
    words = ["--nodes", "30", "--clients", "3", "--steps", "4", "--repeats", "1"]
    said = printed("-m", "pretended_device", "benchmarks/speed/cuda_graph.py", *words)
    assert said.count("'largest_difference': 0.0") == said.count("'why': ''") == 2


def test_a_remembered_partition_is_on_the_graph_s_device(gpu: PretendedDevice) -> None:
    for device in ("cpu", "cuda", "cpu"):
        task = fgl.tasks.Nodes(clients=2, hidden=4, device=device).load(seed=0)
        assert {own.node_id.device.type for own in task.clients} == {device}


# -- recorded steps as CUDA graphs


def test_a_graph_reads_its_inputs_changes_them_and_draws_anew(gpu: PretendedDevice) -> None:
    def call(x: Any, total: Any) -> list[Any]:
        total.add_(x)
        return [x * total + torch.randn_like(x), None]

    repeat = captured(call, [torch.zeros(3).cuda(), torch.zeros(3).cuda()])
    assert repeat is not call
    for number in (1.0, 2.0):
        x, total = torch.full((3,), number).cuda(), torch.ones(3).cuda()
        torch.cuda.manual_seed(0)
        first, none = repeat(x, total)
        assert none is None
        assert total.cpu().equal(torch.full((3,), 1 + number))
        torch.cuda.manual_seed(0)
        second = repeat(x, torch.ones(3).cuda())[0]
        want = number * (1 + number)
        torch.cuda.manual_seed(0)
        assert first.equal(second) and first.equal(want + torch.randn_like(x))
        assert not repeat(x, total)[0].equal(second)


def test_a_graph_keeps_the_constants_that_it_reads(gpu: PretendedDevice) -> None:
    def made() -> Any:
        twos = torch.full((3,), 2.0).cuda()
        return lambda x: [x * twos]

    repeat = captured(made(), [torch.ones(3).cuda()])
    assert repeat(torch.full((3,), 4.0).cuda())[0].tolist() == [8.0] * 3


def test_a_graph_has_no_part_of_the_processor(gpu: PretendedDevice) -> None:
    def call(x: Any, rate: Any) -> list[Any]:
        return [x * rate]

    there, here = torch.ones(3).cuda(), torch.tensor(0.5)
    assert captured(call, [there, here]) is call
    assert captured(call, [there, torch.ones(1).cuda().expand(3)]) is call  # overlaps
    assert captured(call, [there, there]) is not call
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "mem_get_info", lambda *_: (3, 8))
        assert captured(call, [there, there]) is call


class Indexed(fgl.nn.GCN):
    """A model that reads some of its columns."""

    columns = torch.arange(CLASSES).flip(0)

    def forward(self, x: Any, adj: Any, return_embedding: bool = False) -> Any:
        return super().forward(x, adj)[:, self.columns]


def test_no_capture_fails(gpu: PretendedDevice, monkeypatch: Any) -> None:
    """After a failed capture, torch draws no numbers on the GPU."""
    method = fedavg(Indexed(FEATURES, 8, CLASSES).cuda())
    mask = torch.ones(CLASSES, dtype=torch.bool).cuda()  # whose numbers the device counts
    for columns in (Indexed.columns, mask):
        monkeypatch.setattr(Indexed, "columns", columns)
        got, tracer = test_cuda.run_traced(method, 1, monkeypatch, 1, sparse=False)
        want, _ = test_cuda.run_traced(method, 1, monkeypatch, 10**9, sparse=False)
        assert tracer.steps and not tracer.why
        assert same(got, want)
    assert not gpu.spoiled


def test_replays_have_equal_bits(gpu: PretendedDevice, monkeypatch: Any) -> None:
    test_cuda.test_replays_have_equal_bits("fedavg", fgl.nn.GCN, "all", monkeypatch)
    assert not gpu.mixed


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
        result = fgl.run(
            method, made, num_rounds=2 * method.rules.exchange, clients_at_once=at_once, strict=True
        )
    assert not gpu.mixed
    if task != "a PyG model":  # its own layers scatter
        assert not gpu.unordered  # so that a run has the same bits every time
    models = [message["model"] for message in result.outbox.values() if "model" in message]
    assert {each.device for params in models for _, each in leaves(params)} <= {CUDA}


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
        fgl.run(
            method, made, num_rounds=2 * method.rules.exchange, clients_at_once=at_once, strict=True
        )
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


def test_a_run_moves_from_host_to_device_and_back(gpu: PretendedDevice, tmp_path: Path) -> None:
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
    variant: str, at_once: str, gpu: PretendedDevice, tmp_path: Path, monkeypatch: Any
) -> None:
    # The pretended device takes a repeated `arange` of a trace for one on the processor.
    monkeypatch.setattr(traced, "AFTER", 10**9)
    name, flags = RECIPES[variant]
    flags = [*flags, "--device", "cuda", "--clients-at-once", at_once, "--checkpoint"]
    whole = go(name, *flags, str(tmp_path / "whole"))[1]
    go(name, *flags, str(tmp_path / "cut"), "--rounds", "1")
    resumed = go(name, *flags, str(tmp_path / "cut"))[1]
    assert not gpu.mixed
    assert devices(resumed) == devices(whole)
    assert same(end(resumed), end(whole))

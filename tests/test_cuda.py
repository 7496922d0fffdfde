"""On a GPU: the numbers of the CPU, the same bits every time, a step that can be captured."""

from functools import partial
from typing import Any

import federations
import pytest
import test_rows as touched
import torch
from federations import METHODS, VIEWS, close, end, fedavg, graphs, model, same, script
from test_rows import used  # noqa: F401

import fgl
from fgl import SparseMatrix, Training
from fgl.experiment import cli
from fgl.federation import Cohort
from fgl.federation.executors import loop
from fgl.federation.executors.batch import traced
from fgl.federation.executors.batch.captured import captured
from fgl.sparse.batched_pattern import Member

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is at hand")


def clients(sparse: bool = True) -> list[fgl.Graph]:
    found = graphs()
    if sparse:
        found = [g.replace(x=SparseMatrix.from_dense(g.x * (g.x > 0))) for g in found]
    return [g.to("cuda") for g in found]


@pytest.mark.parametrize("at_once", [1, "all"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", METHODS)
def test_a_run_is_that_of_the_cpu(name: str, sparse: bool, at_once: Any, monkeypatch: Any) -> None:
    for view in VIEWS:  # a GPU draws other numbers
        monkeypatch.setitem(VIEWS, view, lambda x, adj: (x, adj))
    data = clients(sparse)
    got = fgl.run(
        METHODS[name](model(dropout=0.0).cuda()), data, num_rounds=3, clients_at_once=at_once
    )
    cpu = [g.to("cpu") for g in data]
    want = fgl.run(METHODS[name](model(dropout=0.0)), cpu, num_rounds=3, clients_at_once=at_once)
    for client in range(4):
        moved: Any = got.outbox[client]["model"]
        close({k: v.cpu() for k, v in moved.items()}, want.outbox[client]["model"], atol=1e-4)


@pytest.mark.parametrize("at_once", [1, "all"])
@pytest.mark.parametrize("kind", [fgl.nn.GCN, fgl.nn.GAT], ids=["gcn", "gat"])
def test_reductions_are_deterministic(kind: Any, at_once: Any) -> None:
    run = partial(fgl.run, num_rounds=3, clients_at_once=at_once)
    ends = [end(run(METHODS["fgssl"](model(kind).cuda()), clients())) for _ in range(3)]
    assert same(ends[0], ends[1])
    assert same(ends[0], ends[2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 7, 64])
def test_sparse_products_have_one_order_of_additions(width: int, dtype: torch.dtype) -> None:
    """With rows of 0 to 1,500 entries; torch's own CSR product gave other bits at the next call."""
    draw = torch.Generator().manual_seed(0)
    share = torch.rand(500, 1, generator=draw) ** 4
    dense = torch.rand(500, 1500, generator=draw, dtype=dtype)
    dense *= torch.rand(500, 1500, generator=draw) < share
    dense[100] = 0
    x = torch.randn(1500, width, generator=draw, dtype=dtype)
    matrix = SparseMatrix.from_dense(dense)
    want, ours, moved = dense @ x, matrix.to("cuda"), x.cuda()
    ends = [ours @ moved for _ in range(5)]
    assert all(each.equal(ends[0]) for each in ends)
    close(ends[0].cpu(), want, atol=1e-3)
    none = SparseMatrix.from_dense(torch.zeros(3, 1500, dtype=dtype)).to("cuda")
    assert (none @ moved).equal(moved.new_zeros(3, width))


def run_traced(method: Any, at_once: Any, monkeypatch: Any, after: int, sparse: bool = True) -> Any:
    """A run's end, and its tracer."""
    tracer = traced.Tracer()
    monkeypatch.setattr(loop, "Tracer", lambda: tracer)
    monkeypatch.setattr(traced, "AFTER", after)
    result = fgl.run(method, clients(sparse), num_rounds=4, clients_at_once=at_once)
    return end(result), tracer


@pytest.mark.parametrize("at_once", [1, "all"])
@pytest.mark.parametrize("kind", [fgl.nn.GCN, fgl.nn.GAT], ids=["gcn", "gat"])
@pytest.mark.parametrize("name", ["fedavg", "fgssl"])
def test_replays_have_equal_bits(name: str, kind: Any, at_once: Any, monkeypatch: Any) -> None:
    method, replays = METHODS[name](model(kind).cuda()), []

    def noted(call: Any, inputs: Any) -> Any:
        replays.append(captured(call, inputs))
        return replays[-1]

    monkeypatch.setattr(traced, "captured", noted)
    got, tracer = run_traced(method, at_once, monkeypatch, 1)
    assert {each.__name__ for each in replays} == {"replay"}
    want, _ = run_traced(method, at_once, monkeypatch, 10**9)
    assert not tracer.why
    assert tracer.steps >= 2
    assert same(got, want)


@pytest.mark.parametrize("name", touched.TAKEN)
def test_touched_rows_have_the_bits_of_whole_stacks(
    name: str,
    used: list[bool],  # noqa: F811
    monkeypatch: Any,
) -> None:
    there, plain = [own.to("cuda") for own in touched.CLIENTS], touched.fedavg

    def fedavg(train: Training = touched.ADAM, model: Any = None) -> Any:
        return plain(train, (model or touched.gcn()).cuda())

    monkeypatch.setattr(touched, "gcn", lambda made=touched.gcn: made().cuda())
    monkeypatch.setattr(touched, "fedavg", fedavg)
    method = touched.TAKEN[name]()
    found, want = (touched.run(method, there, after=after) for after in (1, 10**9))
    assert touched.equal(found, want)
    assert all(used[2:6]) and not any(used[6:])


@pytest.mark.filterwarnings("ignore:This instance was constructed with capturable")
def test_the_batched_step_can_be_captured_as_a_cuda_graph() -> None:
    """Static shapes and no wait for the GPU: replayed steps are those that were not captured."""
    net = model(dropout=0.0).cuda()
    adam = partial(torch.optim.Adam, lr=0.01, capturable=True)
    method, cohort = fedavg(net, Training(adam)), Cohort(clients())
    start = {k: torch.stack([v.detach()] * 4) for k, v in net.state_dict().items()}

    def make() -> Any:
        leaves = {k: v.clone().requires_grad_() for k, v in start.items()}
        optimizer = adam(list(leaves.values()))

        def loss(index: torch.Tensor, params: Any) -> torch.Tensor:
            return method.loss(params, cohort.graph(Member(index)), {})

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            torch.func.vmap(loss, randomness="different")(cohort.index, leaves).sum().backward()
            optimizer.step()

        return leaves, step

    want, plain = make()
    for _ in range(3 + 5):
        plain()
    got, step = make()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        step()
    for _ in range(5):
        captured.replay()
    torch.cuda.synchronize()
    for key, value in want.items():
        close(got[key].detach(), value.detach(), atol=1e-5)


@pytest.mark.parametrize(("recipe", "words"), [
    ("fgssl", []),
    ("fedgl", ["--proportions", "0.3", "0.4", "0.5"]),
    ("fedego", ["--fanouts", "2", "2"]),
    ("fedvgae", ["links"]),
    ("fedvgae", ["nodes", "--clients-at-once", "all"]),
    ("gpfl", []),
    ("gpfl", ["--clients-at-once", "1"]),
    ("baseline", ["fedprox", "ego-nodes", "--mu", "0.1"]),
])  # fmt: skip
def test_recipes_run_there(recipe: str, words: list[str]) -> None:
    small = ["--rounds", "2", "--clients", "3", "--hidden", "8", "--device", "cuda"]
    module, argv = script(f"examples/{recipe}.py"), [*words, *small]
    if recipe == "baseline":
        report, result = module.main(argv)
    else:
        mains: Any = {"links": module.links, "nodes": module.nodes} if recipe == "fedvgae" else None
        presets = getattr(module, "PRESETS", None)
        report, result = cli(mains or module.main, presets=presets, argv=argv)
    assert all(value == value for each in report["metrics"].values() for value in each.values())
    for message in result.outbox.values():
        tensors = message["model"].values()
        assert all(tensor.device.type == "cuda" for tensor in tensors)


def test_a_gin_reads_a_collection_as_on_a_processor() -> None:
    whole = fgl.Graph.join(*fgl.data.small_graphs(12))
    net = fgl.nn.GIN(whole.num_features, 8, 2).eval()
    want = net(*whole.inputs)
    close(net.cuda()(*whole.to("cuda").inputs).cpu(), want, atol=1e-5)
    part = torch.tensor([3, 1])
    close(whole.to("cuda").select(part.cuda()).x.cpu(), whole.select(part).x)
    found = fgl.properties.graph_properties(whole.edge_index, whole.batch)
    edges, batch = whole.edge_index.cuda(), whole.batch.cuda()
    close(fgl.properties.graph_properties(edges, batch).cpu(), found)


class Noisy(fgl.nn.GCN):
    """A model whose noise comes from the processor, which a graph would repeat."""

    def forward(self, x: Any, adj: Any, return_embedding: bool = False) -> Any:
        out = super().forward(x, adj)
        return out + torch.randn(out.shape[-1]).to(out.device)


@pytest.mark.parametrize("at_once", [1, "all"])
def test_noise_of_the_processor_is_drawn_anew_at_each_step(at_once: Any, monkeypatch: Any) -> None:
    method = METHODS["fedavg"](Noisy(federations.FEATURES, 8, federations.CLASSES).cuda())
    got, _ = run_traced(method, at_once, monkeypatch, 1, sparse=False)
    want, _ = run_traced(method, at_once, monkeypatch, 10**9, sparse=False)
    assert same(got["outbox"], want["outbox"])

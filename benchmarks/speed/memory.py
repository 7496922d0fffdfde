"""Peak memory of a loss's forward and backward, beyond its inputs, as the graph grows.

    python benchmarks/speed/memory.py --json benchmarks/results/memory.json
    python benchmarks/speed/memory.py --quick

Every case runs in a process of its own: the inputs are made, the code is warmed up on a tiny graph,
the kernel's peak of resident memory is reset (Linux only), and what the peak rises by is the
figure, gradients included. Beside fgl stand the twins that the formula suggests: "dense" makes
N x N matrices, "gather" a row per edge; one that would need more than `LARGEST_TWIN` is not run.
Exits with 1 if fgl takes more than `LIMITS` allows, or if a twin's loss is another one.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import SUPPRESS, arguments, flag
from harness.machine import FREED_AT_ONCE, machine, spent, write
from torch import Tensor

import fgl
from fgl.losses import node_contrast, structure_distillation, unit_rows

MB = 1e6
LARGEST_TWIN = 4000  # MB
NUM_CLASSES = 7


@dataclass(frozen=True)
class Case:
    """What one process measures."""

    op: str
    nodes: int
    width: int
    edges: int = 0
    option: str = ""
    block: int = 0  # 0 is the library's own choice
    by: str = "fgl"

    def twins(self) -> list[Case]:
        """The same by its naive twins, where they fit."""
        # Bytes: some six or five matrices of float32 live at a time.
        sizes = {"dense": 6 * 4 * self.nodes**2, "gather": 5 * 4 * self.edges * self.width}
        known = self.option in ("", "all")
        fits = [by for by, size in sizes.items() if known and 0 < size < LARGEST_TWIN * MB]
        return [replace(self, by=by) for by in fits]


CONTRAST = [Case("node_contrast", n, 128) for n in (5_000, 10_000, 20_000, 40_000)]
OPTIONS = [Case("node_contrast", 20_000, 128, option=o) for o in ("all", "symmetric")]
DISTILLATION = [
    Case("structure_distillation", edges // 10, width, edges)
    for width in (7, 128)
    for edges in (10_000, 100_000, 1_000_000)
]
FULL = [*CONTRAST, *OPTIONS, *DISTILLATION]
QUICK = [CONTRAST[0], DISTILLATION[1], DISTILLATION[4]]
# The most that fgl may take, in MB.
LIMITS = {case: 1000 for case in [*CONTRAST[:3], *OPTIONS]} | {case: 500 for case in DISTILLATION}


def dense_contrast(anchor: Tensor, keys: Tensor, y: Tensor, option: str) -> Tensor:
    """`node_contrast` with N x N matrices, on autograd."""
    sim = unit_rows(anchor) @ unit_rows(keys).t() / 0.1
    same = y[:, None] == y
    if option == "all":
        ratio = sim.logsumexp(1, keepdim=True) - sim
    else:
        rest = sim.masked_fill(same, -torch.inf).logsumexp(1, keepdim=True)
        ratio = torch.nn.functional.softplus(rest - sim)
    return ((ratio * same).sum(1) / same.sum(1)).mean()


def dense_distillation(student: Tensor, teacher: Tensor, edges: Tensor) -> Tensor:
    """`structure_distillation` with N x N matrices, on autograd."""
    absent = torch.ones(len(student), len(student), dtype=torch.bool)
    absent[edges[1], edges[0]] = False
    ours, theirs = (
        (z @ z.t() / 5).masked_fill(absent, -1e9).log_softmax(1) for z in (student, teacher)
    )
    has = (~absent).any(1)
    return ((theirs.exp() * (theirs - ours)).sum(1) * has).sum() / has.sum()


def gather_distillation(student: Tensor, teacher: Tensor, edges: Tensor) -> Tensor:
    """`structure_distillation` with a row per edge, on autograd."""
    source, target = edges
    nothing = torch.zeros(len(student))
    logs = []
    for z in (student, teacher):
        logit = (z[source] * z[target]).sum(1) / 5
        top = nothing.scatter_reduce(0, target, logit.detach(), "amax")
        logit = logit - top[target]
        logs.append(logit - nothing.index_add(0, target, logit.exp()).log()[target])
    ours, theirs = logs
    has = torch.bincount(target, minlength=len(student)) > 0
    return (theirs.exp() * (theirs - ours)).sum() / has.sum()


def prepare(case: Case) -> Callable[[], Tensor]:
    """The inputs, and what computes the loss of them."""
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, case.nodes, case.width, generator=generator).unbind()
    first = first.clone().requires_grad_()
    second = second.clone().requires_grad_(case.option == "symmetric")
    if case.op == "node_contrast":
        y = torch.randint(NUM_CLASSES, (case.nodes,), generator=generator)
        if case.by == "dense":
            return lambda: dense_contrast(first, second, y, case.option)
        kwargs: dict[str, Any] = {"block": case.block} if case.block else {}
        kwargs |= {"all": {"denominator": "all"}, "symmetric": {"direction": "symmetric"}}.get(
            case.option, {}
        )
        return lambda: node_contrast(first, second, y, **kwargs)
    wanted = math.ceil(1.05 * case.edges) + 100
    pairs = torch.randint(case.nodes**2, (wanted,), generator=generator).unique()
    pairs = pairs[torch.randperm(len(pairs), generator=generator)[: case.edges]]
    edges = torch.stack([pairs // case.nodes, pairs % case.nodes])
    losses = {"fgl": structure_distillation, "dense": dense_distillation}
    losses["gather"] = gather_distillation
    return lambda: losses[case.by](first, second, edges)


def work(case: Case, threads: int) -> dict[str, float]:
    """Measure `case` in this process."""
    torch.set_num_threads(threads)
    prepare(replace(case, nodes=64, edges=128 if case.edges else 0))().backward()
    loss = prepare(case)
    value, seconds, extra = spent(lambda: differentiated(loss()))
    return {"extra_mb": round(extra, 1), "seconds": round(seconds, 2), "loss": value.item()}


def differentiated(loss: Tensor) -> Tensor:
    """The loss after its backward pass."""
    loss.backward()  # type: ignore[no-untyped-call]
    return loss


def measure(case: Case, threads: int = 1) -> dict[str, float]:
    """Measure `case` in a fresh process."""
    command = [sys.executable, __file__, "--case", json.dumps(asdict(case))]
    own = {"PYTHONPATH": str(Path(fgl.__file__).parents[1])}  # the same fgl as here
    out = subprocess.run(
        [*command, "--threads", str(threads)],
        env=os.environ | FREED_AT_ONCE | own,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result: dict[str, float] = json.loads(out.stdout)
    return result


def row(case: Case, found: dict[str, dict[str, float]]) -> str:
    """A line of the table."""
    name = f"{case.op} {case.option}".strip()
    memory = [f"{found[by]['extra_mb']:.0f}" if by in found else "-" for by in COLUMNS]
    limit = str(LIMITS.get(case, "-"))
    edges = f"{case.edges:,}" if case.edges else "-"
    seconds = f"{found['fgl']['seconds']:.2f}"
    cells = [name, f"{case.nodes:,}", edges, str(case.width), *memory, limit, seconds]
    return f"| {' | '.join(cells)} |"


COLUMNS = ("fgl", "gather", "dense")


def main(argv: list[str] | None = None) -> int:
    quick = flag(False, "the small cases only")
    args = arguments(argv, quick=quick, threads=1, case=flag(str, SUPPRESS))
    if args.case:
        print(json.dumps(work(Case(**json.loads(args.case)), args.threads)))
        return 0
    print("Extra memory in MB, forward and backward; processor seconds of fgl\n")
    head = ["loss", "nodes", "edges", "width", *COLUMNS, "limit of fgl", "seconds"]
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    results, failures = [], []
    for case in QUICK if args.quick else FULL:
        found = {each.by: measure(each, args.threads) for each in [case, *case.twins()]}
        print(row(case, found), flush=True)
        results += [asdict(case) | {"by": by} | values for by, values in found.items()]
        if found["fgl"]["extra_mb"] > LIMITS.get(case, math.inf):
            failures.append(f"over the limit: {case}")
        losses = [values["loss"] for values in found.values()]
        if not all(math.isclose(losses[0], other, rel_tol=1e-4) for other in losses):
            failures.append(f"losses disagree: {case} {losses}")
    write({"machine": machine() | {"threads": args.threads}, "results": results}, args.json)
    print("", *failures, sep="\n")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())

"""Operations that torch dispatches in a local step and in a round, counted below autograd.

    python benchmarks/speed/operations.py --json benchmarks/results/operations.json
    python benchmarks/speed/operations.py --before out/other.json --json ...   beside another count
    python benchmarks/speed/operations.py --report
    python benchmarks/speed/operations.py --list gcn_fedavg/K=10 batch     names and numbers of one

A view moves no numbers and is counted apart. A step's count is that of all clients of a batch, or
of one client of a loop: what four more steps add, over four. A round's is what one more round adds,
its local steps taken off. The count depends on nothing but the code and torch's version.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments, flag
from harness.machine import RESULTS, kept, machine, write
from harness.report import publish
from speed.cases import CASES, on_cora
from torch.utils._python_dispatch import TorchDispatchMode

import fgl

NAME = "operations.json"
MORE = 4  # steps that are added
ROUNDS = 6  # the next one looks at no padding


class Counted(TorchDispatchMode):
    """The operations that ran inside, by name; views apart."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: Counter[str] = Counter()
        self.views: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        if name.startswith("profiler::"):
            return func(*args, **(kwargs or {}))
        is_view = func.is_view or name.endswith(("::detach", "::_unsafe_view"))
        (self.views if is_view else self.operations)[str(func)] += 1
        return func(*args, **(kwargs or {}))


def on_gat(num_clients: int) -> Any:
    """FedAvg of a GAT on Cora."""
    method, clients = on_cora("gcn_fedavg", num_clients)
    torch.manual_seed(0)
    sizes = clients[0].num_features, 64, clients[0].num_classes
    model = fgl.nn.GAT(*sizes, dropout=0.5)
    return fgl.fedavg(model, train=method.train), clients


COUNTED: dict[str, Callable[[], Any]] = {
    **{name: CASES[name] for name in ("gcn_fedavg/K=10", "gcn_fedavg/K=100", "fgssl/K=10")},
    "gat/K=10": lambda: on_gat(10),
}
WAYS = {"loop": 1, "batch": "all"}
KINDS = ("operations", "views", "round_operations")


def counted(method: fgl.Method, clients: Any, at_once: Any, rounds: int, steps: int) -> Counted:
    """What a run of so many rounds dispatches, of so many local steps each."""
    train = replace(method.train, num_steps=steps)
    with Counted() as count:
        fgl.run(replace(method, train=train), clients, num_rounds=rounds, clients_at_once=at_once)
    return count


def difference(more: Counted, less: Counted, over: int) -> dict[str, dict[str, float]]:
    """What the longer one has more, over a number."""
    found = {}
    for kind in ("operations", "views"):
        names: Counter[str] = getattr(more, kind).copy()
        names.subtract(getattr(less, kind))
        found[kind] = {name: number / over for name, number in names.most_common() if number}
    return found


def measure(method: fgl.Method, clients: Any, way: str) -> dict[str, Any]:
    """Operations and views of a step, and of a round beside its steps."""
    at_once, steps = WAYS[way], method.train.num_steps or 1
    clients = [graph for graph in clients if graph.num_train]
    at_a_time = len(clients) if at_once == 1 else 1
    first = counted(method, clients, at_once, ROUNDS, steps)  # makes what graphs keep
    less, more = (counted(method, clients, at_once, n, steps) for n in (ROUNDS, ROUNDS + 1))
    longer = counted(method, clients, at_once, ROUNDS, steps + MORE)
    assert sum(first.operations.values()) >= sum(less.operations.values())
    step = difference(longer, less, ROUNDS * MORE * at_a_time)
    whole, taken = difference(more, less, 1), steps * at_a_time
    out: dict[str, Any] = {"names": step["operations"], "view_names": step["views"]}
    for kind in ("operations", "views"):
        a_step, a_round = sum(step[kind].values()), sum(whole[kind].values())
        out[kind], out[f"round_{kind}"] = round(a_step, 1), round(a_round - taken * a_step)
    names = Counter(whole["operations"])
    names.subtract({name: taken * number for name, number in step["operations"].items()})
    out["round_names"] = {name: round(number) for name, number in names.most_common() if number}
    return out


def table(found: dict[str, Any]) -> list[str]:
    out = ["| case | way | operations of a step | before | views of a step | before |"]
    out[0] += " operations of a round beside its steps | before |"
    out.append("|---" * 8 + "|")
    for case, ways in found["cases"].items():
        for way, each in ways.items():
            was = found["before"][case][way]
            cells = [f"{of[name]:,g}" for name in KINDS for of in (each, was)]
            out.append(f"| {case} | {way} | {' | '.join(map(str, cells))} |")
    return out


def main(argv: list[str] | None = None) -> dict[str, Any]:
    args = arguments(
        argv,
        report=False,
        before=flag(Path, "numbers of older code", metavar="PATH"),
        list=flag(str, "print one by name", nargs=2, metavar=("CASE", "WAY")),
    )
    if args.report:
        found = kept(RESULTS / NAME)
        publish("operations", "\n".join(table(found)) + "\n")
        return dict(found)
    torch.set_num_threads(1)
    if args.list:
        found = measure(*COUNTED[args.list[0]](), args.list[1])
        for key, value in found.items():
            print(key, *(value.items() if isinstance(value, dict) else [value]), sep="\n  ")
        return found
    cases = {}
    for case in COUNTED:
        cases[case] = {way: measure(*COUNTED[case](), way) for way in WAYS}
        print(
            case,
            {
                way: {k: v for k, v in each.items() if "names" not in k}
                for way, each in cases[case].items()
            },
            flush=True,
        )
    other = kept(args.before)
    report = {"benchmark": "operations", "machine": machine(), "cases": cases}
    if other:
        report["before"] = {
            case: {way: {kind: each[kind] for kind in KINDS} for way, each in ways.items()}
            for case, ways in other["cases"].items()
        }
        report["before_commit"] = other["machine"]["commit"]
    write(report, args.json)
    return report


if __name__ == "__main__":
    main()

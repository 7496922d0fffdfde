"""Rounds of PyG's models: as a user writes them, our loop, our batch, and which one is chosen.

    python benchmarks/speed/pyg_models.py --quick                  100 clients of 30 nodes
    python benchmarks/speed/pyg_models.py --json benchmarks/results/pyg_models.json
    python benchmarks/speed/pyg_models.py --report                 docs/speed.md, from that file

FedAvg of two layers, five steps of Adam a round, without evaluation; rounds of all variants take
turns in one process. Milliseconds are medians; the ratio's range is over the turns.
"""

import copy
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments, flag
from harness.machine import RESULTS, in_turn, kept, machine, ratio, seconds, write
from harness.report import publish
from speed.by_hand import rounds_by_hand
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GraphSAGE

import fgl

SIZES = {"100 of 30": (100, 30), "30 of 300": (30, 300), "5 of 3000": (5, 3000)}
MODELS: dict[str, Callable[[], Any]] = {
    "fgl GCN": lambda: fgl.nn.GCN(64, 64, 7, dropout=0.0),
    "PyG GCN": lambda: GCN(64, 64, 2, 7),
    "PyG GAT": lambda: GAT(64, 64, 2, 7),
    "PyG SAGE": lambda: GraphSAGE(64, 64, 2, 7),
}
ADAM = partial(torch.optim.Adam, lr=0.01)
STEPS, ROUNDS = 5, 6


def graphs(clients: int, nodes: int) -> list[fgl.Graph]:
    """Random graphs of four edges a node, whose sizes differ by up to a half."""
    made = []
    for seed in range(clients):
        generator = torch.Generator().manual_seed(seed)
        n = nodes - int(torch.randint(0, nodes // 2, (), generator=generator))
        edges = torch.randint(0, n, (2, 4 * n), generator=generator)
        y = torch.randint(0, 7, (n,), generator=generator)
        made.append(fgl.Graph(torch.randn(n, 64, generator=generator), edges, y=y, num_classes=7))
    return made


def plain(model: Any, clients: list[fgl.Graph]) -> Callable[[], None]:
    """Rounds as a user of PyG writes them."""
    data = [client.to_pyg(Data) for client in clients]

    def loss(own: Any, each: Any) -> Any:
        return cross_entropy(own(each.x, each.edge_index), each.y)

    sizes = [each.num_nodes for each in data]
    steps = [[each] * STEPS for each in data]
    server = copy.deepcopy(model)
    return rounds_by_hand(server, steps, sizes, loss=loss, optimizer=ADAM, rounds=ROUNDS)


def ours(model: Any, clients: list[fgl.Graph], at_once: int) -> Callable[[], Any]:
    method = fgl.fedavg(model, train=fgl.Training(ADAM, num_steps=STEPS))
    return lambda: fgl.run(method, clients, num_rounds=ROUNDS, clients_at_once=at_once)


def measured(name: str, size: str, turns: int) -> dict[str, Any]:
    """Milliseconds of a round by variant, and how much faster the batch is than the loop."""
    clients, model = graphs(*SIZES[size]), MODELS[name]()
    variants = {"loop": ours(model, clients, 1), "batch": ours(model, clients, len(clients))}
    if name.startswith("PyG"):
        variants["plain"] = plain(model, clients)
    timed = {variant: partial(seconds, run) for variant, run in variants.items()}
    spent = in_turn(timed, turns)
    made: dict[str, Any] = {
        variant: round(1000 * statistics.median(each) / ROUNDS, 2)
        for variant, each in spent.items()
    }
    method = fgl.fedavg(model, train=fgl.Training(ADAM, num_steps=STEPS))
    made["batch_over_loop"], made["range"] = ratio(spent["loop"], spent["batch"])
    made["chosen"] = fgl.federation.choose(method, clients).clients_at_once
    return made


def table(report: dict[str, Any]) -> str:
    """The table of the page."""
    at = report["machine"]
    about = f"{at['cpu']}, one thread, torch {at['torch']}, commit {at['commit']}."
    head = "| clients of nodes | model | plain PyG, ms | loop, ms | batch, ms | batch over loop |"
    lines = [about, "", f"{head} chosen at once |", "|---" * 7 + "|"]
    for case, each in report["cases"].items():
        size, name = case.split(": ")
        low, high = each["range"]
        lines.append(
            f"| {size} | {name} | {each.get('plain', '')} | {each['loop']} | {each['batch']} | "
            f"{each['batch_over_loop']}x ({low} to {high}) | {each['chosen']} |"
        )
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> None:
    quick = flag(False, "100 clients of 30 nodes alone")
    args = arguments(argv, turns=5, quick=quick, report=False)
    if args.report:
        publish("pyg_models", table(kept(RESULTS / "pyg_models.json")))
        return
    torch.set_num_threads(1)
    sizes = ["100 of 30"] if args.quick else list(SIZES)
    cases: dict[str, Any] = {}
    for size in sizes:
        for name in MODELS:
            cases[f"{size}: {name}"] = measured(name, size, args.turns)
            print(size, name, cases[f"{size}: {name}"], flush=True)
            write({"benchmark": "pyg_models", "machine": machine(), "cases": cases}, args.json)


if __name__ == "__main__":
    main()

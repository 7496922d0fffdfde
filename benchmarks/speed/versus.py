"""Rounds of this checkout beside those of another one: processor time, in alternated pairs.

    git worktree add ../before 820a2c6
    python benchmarks/speed/versus.py ../before --json benchmarks/results/asked-versus.json

Each number is the median round of a process of its own, after `WARM` rounds, in which a batch's
step is traced; the processes of the two checkouts take turns. A ratio above 1 says that this
checkout is faster; its range is over the pairs. The leaderboard's case is a whole process instead:
four methods on Cora, imports, data and recordings of steps included.
"""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

if "--one" not in sys.argv:  # else the checkout's own cases are asked for
    sys.path.insert(0, str(Path(__file__).parents[1]))

ROUNDS = 20
WARM = 14  # rounds before those that are measured
RATIOS = (
    ("gcn_fedavg/K=10", "all"),
    ("gcn_fedavg/K=10", "1"),
    ("gcn_fedavg/K=100", "auto"),
    ("fgssl/K=10", "all"),
    ("ten of 40 nodes", "all"),
    ("1000 of 30 nodes", "auto"),
    ("GCN of 10^5 nodes", "1"),
    ("SAGE of 10^5 nodes", "1"),
    ("a tenth of products", "1"),
    ("NCI1", "auto"),
    ("leaderboard", "auto"),
)


def large(kind: str) -> Any:
    """One client of 10^5 nodes and 10^6 edges with 10 of 100 words a node, three steps."""
    import torch
    from speed.cases import ADAM
    from speed.rounds import synthetic

    import fgl

    graph = synthetic(100_000, 0, degree=10)
    torch.manual_seed(0)
    model = getattr(fgl.nn, kind)(100, 64, graph.num_classes, dropout=0.5)
    return fgl.fedavg(model, train=fgl.Training(ADAM, num_steps=3)), [graph]


def of_few_nodes(clients: int, nodes: int, steps: int) -> Any:
    """Random graphs; with many steps a round, the time of a step counts alone."""
    from speed.cases import gcn
    from speed.rounds import synthetic

    graphs = [synthetic(nodes, seed) for seed in range(clients)]
    return gcn(graphs, 16, steps), graphs


def products() -> Any:
    """One of ten clients of a graph like ogbn-products: a GCN takes one step on all its nodes."""
    from speed.cases import gcn
    from speed.products_sampled import TENTH, client

    clients = [client(TENTH)]
    return gcn(clients, 64, 1), clients


OWN: dict[str, Any] = {
    "a tenth of products": products,
    "ten of 40 nodes": partial(of_few_nodes, 10, 40, 30),
    "1000 of 30 nodes": partial(of_few_nodes, 1_000, 30, 3),
    "GCN of 10^5 nodes": partial(large, "GCN"),
    "SAGE of 10^5 nodes": partial(large, "SAGE"),
}


def leaderboard(rounds: int = 100) -> float:
    """Milliseconds of this process, with a run of four methods on Cora."""
    import fgl

    task = fgl.tasks.SubgraphNodes(dataset="cora").load(seed=0)
    own = task.fedavg
    fedpub = fgl.methods.fedpub(own, fgl.methods.proxy_graph(task.clients[0]))
    for method in (own, fedpub, fgl.methods.scaffold(own), fgl.methods.fedtgp(own)):
        fgl.run(method, task.clients, num_rounds=rounds, evaluate=task.evaluate(method))
    return 1e3 * time.process_time()


def one(case: str, at_once: str) -> float:
    """Milliseconds of a round here."""
    import torch
    from speed.cases import CASES

    import fgl

    torch.set_num_threads(1)
    if case == "leaderboard":
        return leaderboard()
    method, clients = (CASES[case] if case in CASES else OWN[case])()
    stamps: list[float] = []

    def stamp(record: Any, result: Any) -> None:
        stamps.append(time.process_time())

    number: Any = int(at_once) if at_once.isdigit() else at_once
    fgl.run(method, clients, clients_at_once=number, num_rounds=ROUNDS + WARM, callbacks=[stamp])
    return 1e3 * statistics.median(b - a for a, b in itertools.pairwise(stamps[WARM - 1 :]))


def there(folder: Path, case: str, at_once: str) -> float:
    """The same in a process that runs the code of a checkout."""
    command = [sys.executable, str(Path(__file__)), "--one", case, at_once]
    places = [str(folder.resolve()), str(folder.resolve() / "benchmarks")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    return float(subprocess.check_output(command, env=env, text=True).splitlines()[-1])


def compared(here: Path, before: Path, case: str, at_once: str, pairs: int) -> dict[str, Any]:
    runs = [(there(here, case, at_once), there(before, case, at_once)) for _ in range(pairs)]
    ratios = sorted(old / new for new, old in runs)
    return {
        "ms": round(statistics.median(new for new, _ in runs), 2),
        "before_ms": round(statistics.median(old for _, old in runs), 2),
        "faster": round(statistics.median(ratios), 3),
        "least": round(ratios[0], 3),
        "most": round(ratios[-1], 3),
    }


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    other = Path("../before")
    parser.add_argument("before", nargs="?", type=Path, default=other, help="the other checkout")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the numbers there")
    parser.add_argument("--one", nargs=2, metavar=("CASE", "AT_ONCE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(one(*args.one))
        return
    from harness.machine import ROOT, machine, write

    revision = ["git", "-C", str(args.before), "rev-parse", "--short", "HEAD"]
    before = subprocess.check_output(revision, text=True).strip()
    report: dict[str, Any] = {"benchmark": "versus", "machine": machine(), "before": before}
    report["cases"] = {}
    for case, at_once in RATIOS:
        found = compared(ROOT, args.before, case, at_once, args.pairs)
        report["cases"][f"{case} {at_once}"] = found
        print(case, at_once, found, flush=True)
        write(report, args.json)


if __name__ == "__main__":
    main()

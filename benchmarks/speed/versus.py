"""Rounds of this checkout beside those of another one: processor time, in alternated pairs.

    git worktree add ../before 5e9f272
    python benchmarks/speed/versus.py ../before --json benchmarks/results/versus.json
    git worktree add ../graphs 88172ca
    python benchmarks/speed/versus.py ../graphs --json benchmarks/results/versus_graphs.json
    python benchmarks/speed/versus.py --report

Each number is the median round of a process of its own, after `WARM` rounds, in which a batch's
step is traced; the processes of the two checkouts take turns. A ratio above 1 says that this
checkout is faster; its range is over the pairs. Also the share of the processor time of a round
that checks of uploads take, on one thread. The leaderboard's case is a whole process instead: four
methods on Cora, imports, data and recordings of steps included.
"""

import argparse
import itertools
import json
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

NAMES, ROUNDS = ("versus", "versus_graphs"), 20  # blocks of docs/speed.md, and files
WARM = 14  # rounds before those that are measured
CASES = (
    ("gcn_fedavg/K=10", "all"),
    ("gcn_fedavg/K=10", "1"),
    ("gcn_fedavg/K=100", "auto"),
    ("gcn_fedavg/K=100", "1"),
    ("fgssl/K=10", "all"),
    ("nodes=10000", "1"),
    ("dense", "all"),
    ("clients=1000", "auto"),
    ("gcn_fedavg/K=100", "all"),
    ("NCI1", "auto"),
)
STEPS = (
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


def leaderboard(rounds: int = 100) -> dict[str, float]:
    """Milliseconds of this process, with a run of four methods on Cora."""
    import fgl

    task = fgl.tasks.SubgraphNodes(dataset="cora").load(seed=0)
    own = task.fedavg
    fedpub = fgl.methods.fedpub(own, fgl.methods.proxy_graph(task.clients[0]))
    for method in (own, fedpub, fgl.methods.scaffold(own), fgl.methods.fedtgp(own)):
        fgl.run(method, task.clients, num_rounds=rounds, evaluate=task.evaluate(method))
    return {"ms": 1e3 * time.process_time(), "checks": 0.0}


def one(case: str, at_once: str) -> dict[str, float]:
    """Milliseconds of a round here, and the share of the checks of uploads."""
    import torch
    from speed.cases import CASES

    import fgl
    from fgl.federation import round as play

    torch.set_num_threads(1)
    if case == "leaderboard":
        return leaderboard()
    method, clients = (CASES[case] if case in CASES else OWN[case])()
    stamps: list[float] = []
    checks = [0.0]
    sift = play.sift

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.process_time()
        made = sift(*args, **kwargs)
        checks[0] += time.process_time() - start
        return made

    def stamp(record: Any, result: Any) -> None:
        stamps.append(time.process_time())
        if record.round == WARM - 1:
            checks[0] = 0.0

    play.sift = timed
    number: Any = int(at_once) if at_once.isdigit() else at_once
    fgl.run(method, clients, clients_at_once=number, num_rounds=ROUNDS + WARM, callbacks=[stamp])
    rounds = [b - a for a, b in itertools.pairwise(stamps[WARM - 1 :])]
    share = checks[0] / (stamps[-1] - stamps[WARM - 1])
    return {"ms": 1e3 * statistics.median(rounds), "checks": share}


def there(folder: Path, case: str, at_once: str) -> dict[str, float]:
    """The same in a process that runs the code of a checkout."""
    command = [sys.executable, str(Path(__file__)), "--one", case, at_once]
    places = [str(folder.resolve()), str(folder.resolve() / "benchmarks")]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compared(here: Path, before: Path, case: str, at_once: str, pairs: int) -> dict[str, Any]:
    runs = [(there(here, case, at_once), there(before, case, at_once)) for _ in range(pairs)]
    ratios = sorted(old["ms"] / new["ms"] for new, old in runs)
    return {
        "ms": round(statistics.median(new["ms"] for new, _ in runs), 2),
        "before_ms": round(statistics.median(old["ms"] for _, old in runs), 2),
        "faster": round(statistics.median(ratios), 3),
        "least": round(ratios[0], 3),
        "most": round(ratios[-1], 3),
        "checks": round(statistics.median(new["checks"] for new, _ in runs), 4),
        "checks_before": round(statistics.median(old["checks"] for _, old in runs), 4),
    }


def table(found: dict[str, Any]) -> list[str]:
    out = ["| case | at once | ms | before | faster | pairs | checks | before |", "|---" * 8 + "|"]
    for name, each in found["cases"].items():
        shares = [f"{100 * each[key]:.1f} %" for key in ("checks", "checks_before")]
        cells = [each["ms"], each["before_ms"], f"{each['faster']}x"]
        cells += [f"{each['least']} to {each['most']}", *shares]
        out.append(f"| {' | '.join([*name.split(), *map(str, cells)])} |")
    return out


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("before", nargs="?", type=Path, help="the other checkout")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", action="store_true", help="the cases of `asked.py`")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the numbers there")
    parser.add_argument("--report", action="store_true", help="write the table of docs/speed.md")
    parser.add_argument("--one", nargs=2, metavar=("CASE", "AT_ONCE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(*args.one)))
        return
    from harness.machine import RESULTS, ROOT, kept, machine, write
    from harness.report import publish

    if args.report:
        for name in NAMES:
            found = kept(RESULTS / f"{name}.json")
            named = f"{found['machine']['cpu']}, one thread, commit {found['machine']['commit']}."
            publish(name, "\n".join([named, "", *table(found)]) + "\n")
        return
    if args.before is None:
        parser.error("Expected before to be the folder of another checkout, but got none")
    revision = ["git", "-C", str(args.before), "rev-parse", "--short", "HEAD"]
    before = subprocess.run(revision, capture_output=True, text=True, check=True).stdout.strip()
    report: dict[str, Any] = {"benchmark": "versus", "machine": machine(), "before": before}
    report["cases"] = {}
    for case, at_once in STEPS if args.steps else CASES:
        found = compared(ROOT, args.before, case, at_once, args.pairs)
        report["cases"][f"{case} {at_once}"] = found
        print(case, at_once, found, flush=True)
        write(report, args.json)


if __name__ == "__main__":
    main()

"""A client with a tenth of a graph like ogbn-products: sampled SAGE and full-batch GCN, in memory.

    python benchmarks/speed/products_sampled.py --json benchmarks/results/products_sampled.json
    python benchmarks/speed/products_sampled.py --nodes 20000    a small one
    python benchmarks/speed/products_sampled.py --report         the table, from that file

One client, 8 % of whose nodes train, as in ogbn-products. A round is an epoch of minibatches or one
step on the whole graph, plus what FedAvg does with it. Each case runs in a process of its own; the
peak of resident memory is taken over what the graph and its adjacency hold (Linux only).
Seconds are the processor's, on one thread.
"""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments, flag
from harness.machine import FREED_AT_ONCE, RESULTS, kept, machine, process_memory, spent, write
from harness.report import publish

import fgl
from fgl import tasks
from fgl.blocks import logits_in_blocks
from fgl.data.large import LIKE
from fgl.metrics import accuracy

TENTH = LIKE["products-like"]["num_nodes"] // 10
CASES = ("sampled sage", "full gcn", "sampled gcn", "full sage")
ADAM = partial(torch.optim.Adam, lr=0.003)


def client(nodes: int) -> fgl.Graph:
    """A graph like products with so many nodes, and as many edges per node."""
    like = dict(LIKE["products-like"])
    edges = like.pop("num_edges") * nodes // like.pop("num_nodes")
    whole = fgl.data.large_graph(nodes, edges, **like)
    return fgl.data.splits.random_split(whole, train=0.08, val=0.02)


def case(name: str, nodes: int, rounds: int) -> dict[str, Any]:
    """Measure one case in this process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    (own, making, _), (how, kind) = spent(lambda: client(nodes)), name.split()
    _, building, _ = spent(lambda: own.adj.pattern.transpose if how == "full" else own.adj)
    held = process_memory("VmRSS")
    classes: Any = own.num_classes
    model = {"sage": fgl.nn.SAGE, "gcn": fgl.nn.GCN}[kind](own.num_features, 128, classes)
    if how == "full":
        made = tasks.node_task(own, [own], model, fgl.Training(ADAM, num_steps=1))
    else:
        made = tasks.sampled_node_task(own, [own], model, ADAM, fanouts=(10, 10), batch_size=1024)
    steps = 1 if how == "full" else len(made.fedavg.train.batches(own, {}))  # type: ignore[misc, arg-type]
    never = lambda outbox, states: {}  # noqa: E731  # scored below
    train = partial(fgl.run, made.fedavg, made.clients, num_rounds=rounds, evaluate=never)
    result, training, peak = spent(train)
    params = dict(result.outbox[0]["model"])
    model.eval()
    block = own.num_nodes if how == "full" else 2**15
    predict = partial(logits_in_blocks, model, params, own, block_size=block)
    logits, scoring, scoring_peak = spent(torch.no_grad()(predict))
    return {
        "case": name,
        "nodes": own.num_nodes,
        "edges": own.num_edges,
        "train": own.num_train,
        "rounds": rounds,
        "steps": steps,
        "making_seconds": round(making, 1),
        "adjacency_seconds": round(building, 1),
        "held_mb": round(held),
        "round_seconds": round(training / rounds, 2),
        "round_mb": round(peak),
        "scoring_seconds": round(scoring, 2),
        "scoring_mb": round(scoring_peak),
        "test_accuracy": round(accuracy(logits, own.y, own.test_mask), 4),  # type: ignore[arg-type]
    }


def table(report: dict[str, Any]) -> str:
    """What was measured, as text."""
    of, first = report["machine"], report["rows"][0]
    lines = [
        f"{of['cpu']}, {of['threads']} thread(s): {first['nodes']:,} nodes, {first['edges']:,} "
        f"directed edges, {first['train']:,} training nodes.\n",
        "| | steps a round | seconds a round | MB over the graph | graph, MB | scoring, seconds | "
        "MB | test accuracy | after |",
        "|---" * 9 + "|",
    ]
    for row in report["rows"]:
        cells = [row["case"], row["steps"], row["round_seconds"], f"{row['round_mb']:,}"]
        cells += [f"{row['held_mb']:,}", row["scoring_seconds"], f"{row['scoring_mb']:,}"]
        cells += [f"{100 * row['test_accuracy']:.1f}", f"{row['rounds']} rounds"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    args = arguments(
        nodes=TENTH,
        rounds=3,
        case=flag(str, "one alone, in this process", choices=CASES),
        report=False,
    )
    if args.report:
        publish("products-sampled", table(kept(RESULTS / "products_sampled.json")))
        return
    if args.case:
        print(json.dumps(case(args.case, args.nodes, args.rounds)))
        return
    torch.set_num_threads(1)  # as the cases have
    rows = []
    for name in CASES:
        size = ["--nodes", str(args.nodes), "--rounds", str(args.rounds)]
        command = [sys.executable, __file__, "--case", name, *size]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env=os.environ | FREED_AT_ONCE
        )
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
        write({"machine": machine(), "rows": rows}, args.json)


if __name__ == "__main__":
    main()

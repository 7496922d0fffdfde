"""A graph like a tenth of papers100M, cut for fifty clients, on Flower's simulation with Ray.

    python benchmarks/speed/papers_like.py --json benchmarks/results/papers_like.json
    python benchmarks/speed/papers_like.py --nodes 100000 --folder small     to try it
    python benchmarks/speed/papers_like.py --report               docs/speed.md, from that file

Three stages, each a process of its own: the graph is made from a seed and written, its features
block by block; the clients are cut by LDG and written, each into a folder of its own; the rounds
are played. What is done stays in the folder, and a command that was ended goes on from there. In
one round a client's process is killed with signal 9. Peaks of memory are those that the kernel has
noted of the processes (Linux only).
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from harness.flags import SUPPRESS, arguments, flag
from harness.machine import RESULTS, kept, machine, process_memory, write
from harness.report import publish

import fgl
from fgl.progress import shown

NODES, FEATURES, CLASSES = 11_000_000, 128, 172
DEGREE = 160 / 11  # entries of edge_index per node: each edge has two
LIKE: dict[str, Any] = {"num_classes": CLASSES, "community_size": 2000, "tail": 1.7}
SIGNAL = 0.16  # as `large_graph` has it
ROWS = 2**16  # whose features are drawn at a time, each block from a seed of its own
TRAIN, VAL = 0.04, 0.01  # of the nodes; the others test
CLIENT, SERVER = "peak of a client's process, MB", "peak of the server's process, MB"
ROUND, RISING = "seconds of a round", "test accuracy by round, %"
KILLED = "survives a kill -9 of a client's process"
ASKED = {CLIENT: "< 1,500", SERVER: "< 2,000", ROUND: "minutes", RISING: "rising", KILLED: "yes"}


def make_graph(folder: Path, nodes: int) -> dict[str, Any]:
    """Write the whole graph: edges and labels at once, features block by block."""
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    edges = round(nodes * DEGREE / 2)
    graph = fgl.data.large_graph(nodes, edges, num_features=1, **LIKE)
    np.save(folder / "edge_index.npy", graph.edge_index.numpy())
    np.save(folder / "y.npy", graph.y.numpy())
    y, entries = graph.y, graph.num_edges
    del graph
    kind: Any = {"mode": "w+", "dtype": np.float16, "shape": (nodes, FEATURES)}
    x = np.lib.format.open_memmap(folder / "x.npy", **kind)
    centre = SIGNAL * torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(1))
    with shown("features", nodes, unit="node") as advance:
        for start in range(0, nodes, ROWS):
            own = y[start : start + ROWS]
            generator = torch.Generator().manual_seed(2 + start)
            rows = torch.randn(len(own), FEATURES, generator=generator) + centre[own]
            x[start : start + ROWS] = rows.half().numpy()
            advance(len(own))
    x.flush()
    return {"nodes": nodes, "entries": entries}


def mapped(folder: Path, name: str) -> torch.Tensor:
    return torch.from_numpy(np.load(folder / f"{name}.npy", mmap_mode="c"))


def cut(folder: Path, clients: int) -> dict[str, Any]:
    """Cut the graph, and write each client's into a folder of its own."""
    torch.set_num_threads(1)
    x, y = mapped(folder / "graph", "x"), mapped(folder / "graph", "y")
    edges = mapped(folder / "graph", "edge_index")
    whole = fgl.Graph(torch.zeros(len(y), 1), edges, y=y, num_classes=CLASSES)
    start = time.process_time()
    parts = fgl.data.partitions.ldg_partition(whole, clients)
    seconds = time.process_time() - start
    whole = fgl.data.splits.random_split(whole, train=TRAIN, val=VAL)
    out: dict[str, Any] = {"cut_seconds": round(seconds, 1), "partition": "ldg"}
    out["cut_peak_mb"] = round(process_memory("VmHWM"))
    sizes, entries = [], 0
    cuts = fgl.data.partitions.partition_graph(whole, parts)
    with shown("folders", clients, unit="client") as advance:
        for number, own in enumerate(cuts):
            own = own.replace(x=x[own.node_id])
            fgl.data.save_client(own, folder / f"client-{number}")
            sizes.append(own.num_nodes)
            entries += own.num_edges
            advance(1)
    out |= {"smallest": min(sizes), "largest": max(sizes)}
    return out | {"edges_kept": round(entries / whole.num_edges, 4)}


def play(folder: Path, sizes: Any, workers: int) -> None:
    """The rounds, in this process and the workers of Ray."""
    from flwr.simulation import run_simulation
    from speed import papers_app

    # A worker that dies is started again, and what it was asked is asked again: Flower passes these
    # numbers on to Ray's actors.
    each = {"num_cpus": 1, "max_restarts": -1, "max_task_retries": -1}
    ray = {"num_cpus": workers, "object_store_memory": 2**28, "log_to_driver": False}
    run_simulation(
        papers_app.server(folder, sizes),
        papers_app.client(folder, sizes),
        num_supernodes=sizes.clients,
        backend_config={"client_resources": each, "init_args": ray},
    )


def workers_of(pid: int) -> dict[int, tuple[str, float, float]]:
    """Ray's workers below a process: title, peak and anonymous MB, by number."""
    found, below = {}, {pid}
    entries = sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    for number in entries:  # a parent has the smaller number, until numbers begin anew
        with suppress(OSError, StopIteration, ValueError):
            lines = Path(f"/proc/{number}/status").read_text().splitlines()
            of = {name: rest.strip() for name, _, rest in (line.partition(":") for line in lines)}
            if int(of["PPid"]) not in below:
                continue
            below.add(number)
            title = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")[0].decode()
            if title.startswith("ray::ClientAppActor"):
                peak, own = (int(of[name].split()[0]) / 1e3 for name in ("VmHWM", "RssAnon"))
                found[number] = title, peak, own
    return found


def watched(command: list[str], folder: Path, rounds: int, kill: int) -> dict[str, Any]:
    """Run the rounds, note what their processes take, and kill one in a round."""
    out: dict[str, Any] = kept(folder / "watched.json") or {"client_peak_mb": 0, "client_own_mb": 0}
    before = len(played(folder))
    if before >= rounds:
        return out
    with (folder / "run.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    with shown("rounds", rounds, unit="round", bar_after=0) as advance:
        advance(before)
        while process.poll() is None:
            time.sleep(0.5)
            note(out, workers_of(process.pid), kill if before == kill else None)
            done = len(played(folder))
            advance(done - before)
            before = done
            write(out, folder / "watched.json")
    if process.returncode:
        raise RuntimeError(f"Expected the rounds to end, but got {process.returncode}: {log.name}")
    return out


def note(out: dict[str, Any], workers: dict[int, Any], kill: int | None) -> None:
    """Note the workers' peaks, and who is new since one was killed; kill a busy one in a round."""
    for number, (title, peak, own) in workers.items():
        out["client_peak_mb"] = max(out["client_peak_mb"], round(peak))
        out["client_own_mb"] = max(out["client_own_mb"], round(own))
        if kill is not None and "killed" not in out and title.endswith(".run"):
            os.kill(number, signal.SIGKILL)
            out["killed"] = {"round": kill, "pid": number, "workers": sorted(workers)}
    killed = out.get("killed")
    if killed and "after" not in killed and set(workers) - set(killed["workers"]):
        killed["after"] = sorted(set(workers) - set(killed["workers"]))


def played(folder: Path) -> list[dict[str, Any]]:
    """The rounds so far; one that was played again after an interruption counts as it ended."""
    path = folder / "rounds.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return list({record["round"]: record for record in map(json.loads, lines)}.values())


def stage(name: str, folder: Path, *words: str) -> dict[str, Any]:
    """What a stage found, in a process of its own; one that is done is not done again."""
    path = folder / f"{name}.json"
    if not path.exists():
        command = [sys.executable, __file__, "--stage", name, "--folder", str(folder), *words]
        subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    found: dict[str, Any] = kept(path)
    print(name, found, flush=True)
    return found


def table(runs: list[dict[str, Any]]) -> str:
    """Figures asked and reached, a column for each size that was run."""
    of = runs[-1]["machine"]
    columns = [column(run) for run in runs]
    heads = [f"{run['graph']['nodes']:,} nodes, {run['num_clients']} clients" for run in runs]
    lines = [
        f"{of['cpu']}, {of['cores']} cores, commit {of['commit']}.\n",
        f"| | asked | {' | '.join(heads)} |",
        "|---" * (2 + len(runs)) + "|",
    ]
    for name in columns[0]:
        cells = [column[name] for column in columns]
        lines.append(f"| {name} | {ASKED.get(name, '')} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def column(report: dict[str, Any]) -> dict[str, str]:
    """What one size reached."""
    graph, clients, run = (report[name] for name in ("graph", "clients", "run"))
    rounds, killed = run["rounds"], run.get("killed")
    rate = [f"{100 * record['metrics']['test_accuracy']:.1f}" for record in rounds]
    seconds = [record["seconds"] for record in rounds]
    after = [record for record in rounds if killed and record["round"] >= killed["round"]]
    lost = sum(len(record["dropped"]) for record in after)
    return {
        "entries of `edge_index`": f"{graph['entries']:,}",
        "nodes of a client": f"{clients['smallest']:,} to {clients['largest']:,}",
        "participants of a round": str(report["participants"]),
        CLIENT: f"{run['client_peak_mb']:,}",
        "of it not mapped, MB": f"{run['client_own_mb']:,}",
        SERVER: f"{max(record['server_peak_mb'] for record in rounds):,}",
        ROUND: f"{seconds[0]:.0f}, then {min(seconds[1:]):.0f} to {max(seconds[1:]):.0f}",
        RISING: ", ".join(rate),
        KILLED: f"{lost} uploads lost since" if lost else "yes, no upload lost" if after else "",
        "edges kept by the cut": f"{100 * clients['edges_kept']:.1f} %",
        "the cut alone, processor seconds": f"{clients['cut_seconds']:.0f}",
        "make and write the graph, seconds": f"{graph['seconds']:.0f}",
        "its peak, MB": f"{graph['peak_mb']:,}",
        "cut and write the clients, seconds": f"{clients['seconds']:.0f}",
        "the peak of that, MB": f"{clients['peak_mb']:,}",
    }


def main() -> None:
    args = arguments(
        nodes=NODES,
        clients=50,
        participants=10,
        rounds=5,
        hidden=128,
        batch_size=256,
        workers=flag(2, "processes of clients"),
        kill=flag(2, "round in which a client's process is killed; -1 for none"),
        folder=flag(Path("papers-like"), "where graph, clients and rounds are kept"),
        stage=flag(str, SUPPRESS),
        report=False,
    )
    folder = args.folder.resolve()
    if args.report:
        publish("papers-like", table(kept(RESULTS / "papers_like.json")["runs"]))
        return
    words = ["--nodes", str(args.nodes), "--clients", str(args.clients)]
    if args.stage == "rounds":
        from speed.papers_app import Sizes

        sizes = (args.clients, args.participants, args.rounds, FEATURES, CLASSES, args.hidden)
        play(folder, Sizes(*sizes, args.batch_size), args.workers)
        return
    if args.stage:
        work = {"graph": lambda: make_graph(folder / "graph", args.nodes)}
        work["clients"] = lambda: cut(folder, args.clients)
        start = time.perf_counter()
        found = work[args.stage]()
        if args.stage == "clients":
            found |= {"num_clients": args.clients}
        found |= {"seconds": round(time.perf_counter() - start, 1)}
        write({**found, "peak_mb": round(process_memory("VmHWM"))}, folder / f"{args.stage}.json")
        return
    folder.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {"machine": machine()}
    report |= {"num_clients": args.clients, "participants": args.participants}
    report["graph"] = stage("graph", folder, *words)
    if report["graph"]["nodes"] != args.nodes:
        raise SystemExit(
            f"Expected {folder} to be of {args.nodes} nodes, but got {report['graph']}"
        )
    report["clients"] = stage("clients", folder, *words)
    if report["clients"].get("num_clients", args.clients) != args.clients:
        raise SystemExit(f"Expected {folder} to have {args.clients} clients, but got others")
    command = [sys.executable, __file__, "--stage", "rounds", "--folder", str(folder), *words]
    for name in ("participants", "rounds", "hidden", "batch_size", "workers"):
        command += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    run = watched(command, folder, args.rounds, args.kill)
    report["run"] = {**run, "rounds": played(folder)}
    others = [one for one in kept(args.json).get("runs", ()) if size(one) != size(report)]
    runs = sorted([*others, report], key=size)
    write({"benchmark": "papers_like", "runs": runs}, args.json)
    print(table([report]))


def size(report: dict[str, Any]) -> tuple[int, int]:
    return report["graph"]["nodes"], report["num_clients"]


if __name__ == "__main__":
    main()

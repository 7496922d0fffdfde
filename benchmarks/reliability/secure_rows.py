"""FedGCN's exchange before training, in the open and through a secure sum: bytes and seconds.

    python benchmarks/reliability/secure_rows.py --json benchmarks/results/secure_rows.json
    python benchmarks/reliability/secure_rows.py --report      docs/privacy.md, from that file

Cora, Louvain communities. All clients run in one process, and seconds are the processor's, of all
clients and the server together, on one thread.
"""

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments
from harness.machine import RESULTS, kept, machine, write
from harness.report import publish

import fgl
from fgl import data
from fgl.transforms import secure_rows


def case(clients: int, hops: int) -> dict[str, Any]:
    whole = data.load("cora")
    parts = data.partitions.louvain_partition(whole, clients, seed=0)
    rows: list[int] = []

    def counted(graphs: Any) -> Any:
        rows.append(sum(int(own.train_mask.sum()) for own in graphs))
        return secure_rows(threshold=2 * clients // 3 + 1)(graphs)

    found: dict[str, Any] = {"clients": clients, "hops": hops}
    for name, total in (("plain", None), ("secure", counted)):
        start = time.process_time()
        made = data.neighbour_sums(whole, parts, hops=hops, total=total)
        seconds = time.process_time() - start
        found[name] = {"bytes": made.num_bytes, "seconds": round(seconds, 3)}
        found[f"{name} x"] = [dense(own) for own in made.clients]
    pairs = zip(found.pop("plain x"), found.pop("secure x"), strict=True)
    found["farthest"] = max(float((one - two).abs().max()) for one, two in pairs)
    return {**found, "rows": rows[0]}


def dense(own: fgl.Graph) -> torch.Tensor:
    x: Any = own.x
    made: torch.Tensor = x.to_dense() if isinstance(x, fgl.SparseMatrix) else x
    return made


def text(found: dict[str, Any]) -> str:
    """The table of the page."""
    lines = [
        "| clients | hops | rows | MB plain | MB secure | s plain | s secure | farthest |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in found["cases"]:
        plain, secure = each["plain"], each["secure"]
        lines.append(
            f"| {each['clients']} | {each['hops']} | {each['rows']:,} | {plain['bytes'] / 1e6:.1f} "
            f"| {secure['bytes'] / 1e6:.0f} | {plain['seconds']:.2f} | {secure['seconds']:.1f} "
            f"| {each['farthest']:.0e} |"
        )
    return "\n".join([*lines, ""])


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv, clients=[5, 10], report=False)
    if args.report:
        publish("secure rows", text(kept(RESULTS / "secure_rows.json")))
        return 0
    torch.set_num_threads(1)
    cases = []
    for clients in args.clients:
        for hops in (1, 2):
            cases.append(case(clients, hops))
            print(cases[-1], flush=True)
    write({"benchmark": "FedGCN's exchange", "cases": cases, "machine": machine()}, args.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

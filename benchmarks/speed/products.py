"""Which sparse product is faster, by matrix and width: `embedding_bag` or `addmm` of a CSR matrix.

    python benchmarks/speed/products.py --json benchmarks/results/products.json
    python benchmarks/speed/products.py --report         the block of docs/speed.md

Both kernels are called in turn on one thread, in float32. Building the CSR matrix is excluded. An
entry is the median time of `addmm` divided by the median time of `embedding_bag`.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments
from harness.machine import RESULTS, alternated, kept, machine, seconds, write
from harness.report import publish
from speed.report import described

WIDTHS = (1, 4, 7, 8, 12, 16, 64)
MATRICES = {  # rows, columns and entries
    "27 nodes, 100 entries": (27, 27, 100),
    "like Cora's adjacency": (2_708, 2_708, 13_264),
    "30,000 nodes, 65,000 entries": (30_000, 30_000, 65_000),
    "10^5 nodes, 10^6 entries": (100_000, 100_000, 1_000_000),
    "like Cora's features": (2_708, 1_433, 49_216),
    "100 entries per row": (10_000, 10_000, 1_000_000),
}


def ratios(rows: int, columns: int, entries: int, repeats: int) -> dict[str, float]:
    """Time of the CSR product over that of the bag, by width."""
    pairs = torch.stack([torch.randint(size, (entries,)) for size in (rows, columns)])
    csr = torch.sparse_coo_tensor(pairs, torch.rand(entries), (rows, columns)).to_sparse_csr()
    crow, col, value = csr.crow_indices(), csr.col_indices(), csr.values()
    found = {}
    for width in WIDTHS:
        x, zeros = torch.rand(columns, width), torch.zeros(rows, width)
        calls: dict[str, Callable[[], Any]] = {
            "csr": partial(torch.addmm, zeros, csr, x, beta=0),
            "bag": partial(torch.embedding_bag, x, col, crow, False, 0, False, value, True),
        }
        torch.testing.assert_close(calls["bag"]()[0], calls["csr"]())
        took = alternated({name: partial(_time, call) for name, call in calls.items()}, repeats)
        found[str(width)] = round(took["csr"] / took["bag"], 2)
    return found


def _time(call: Callable[[], Any]) -> float:
    """Seconds of a call, from as many calls as take about 20 ms."""
    number = max(1, int(0.02 / max(seconds(call), 1e-7)))
    return seconds(lambda: [call() for _ in range(number)]) / number


def main() -> None:
    args = arguments(repeats=51, report=False)
    if args.report:
        found = kept(RESULTS / "products.json")
        rows = {"matrix": WIDTHS, **{name: each.values() for name, each in found["ratios"].items()}}
        lines = [f"| {name} | {' | '.join(map(str, row))} |" for name, row in rows.items()]
        lines.insert(1, "|---" * (len(WIDTHS) + 1) + "|")
        publish("products", "\n".join([f"{described(found)}.", "", *lines, ""]))
        return
    torch.set_num_threads(1)
    found = {name: ratios(*sizes, args.repeats) for name, sizes in MATRICES.items()}
    write({"benchmark": "products", "machine": machine(), "ratios": found}, args.json)


if __name__ == "__main__":
    main()

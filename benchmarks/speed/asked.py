"""Figures that were asked for, beside those reached: the first table of docs/speed.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.machine import RESULTS, kept

Reached = Callable[[dict[str, Any]], float]

# Of rounds.py, for each column: what it is called there, and what was asked.
OF_ROUNDS = {
    "gcn_fedavg/K=10/batch_over_pyg": ">= 4.5",
    "gcn_fedavg/K=30/batch_over_pyg": ">= 4.5",
    "gcn_fedavg/K=100/batch_over_pyg": ">= 4",
    "gcn_fedavg/K=10/loop_over_pyg": ">= 1.8",
    "gcn_fedavg/K=30/loop_over_pyg": ">= 1.8",
    "gcn_fedavg/K=100/loop_over_pyg": ">= 1.8",
    "fgssl/K=10/round_over_pyg_fedavg": "<= 1.5",
}
OF_A_GPU = {
    "FedAvg, K = 100: batch over the processor's PyG loop": ("rounds", ">= 30"),
    "FGSSL, K = 100: batch over the processor's PyG loop": ("rounds", ">= 20"),
    "sparse product: share of the copy bandwidth": ("kernels", ">= 0.6"),
}


def largest_choice(found: dict[str, Any]) -> float:
    """What `clients_at_once="auto"` takes over the best, where that is most."""
    return float(max(each["auto_over_best"] for each in found["cases"].values()))


def wide_choices(found: dict[str, Any]) -> float:
    """How many cases are more than a tenth above the best."""
    return sum(each["auto_over_best"] > 1.1 for each in found["cases"].values())


def differing(found: dict[str, Any]) -> float:
    """How many recipes score otherwise in a batch, before any correction for their number."""
    return sum(each["p"] < 0.05 for each in found["table"].values())


def fewest_trees(found: dict[str, Any]) -> float:
    """Trees a second over the loader's, where that is least."""
    return float(min(row["times_faster"]["trees"] for row in found["rows"]))


def tree_growth(found: dict[str, Any]) -> float:
    """Time of a tree at a million nodes over that at ten thousand, where that is most."""
    micros = {
        (row["nodes"], row["batch"], tuple(row["fanouts"])): row["microseconds_per_seed"]["trees"]
        for row in found["rows"]
    }
    grown = [time / micros[10_000, *how] for (n, *how), time in micros.items() if n == 1_000_000]
    return round(max(grown), 2)


def graphs_over_pyg(found: dict[str, Any]) -> float:
    """PyG's seconds of a round of NCI1 on one thread over the best batch's."""
    taken = {
        run["name"]: run["seconds"]
        for run in found["runs"]
        if run["dataset"] == "NCI1" and run["threads"] == 1
    }
    return round(taken["pyg"] / min(t for name, t in taken.items() if name != "pyg"), 2)


def slope(found: dict[str, Any]) -> float:
    """Of a round's seconds in the number of clients."""
    return float(found["growing"]["clients"]["batch"]["slopes"]["seconds"])


def largest_spmm(found: dict[str, Any]) -> float:
    """Our sparse product's time over the best of all, where that is most."""
    ratios = [v for k, v in found.items() if k.startswith("spmm/") and k.endswith("over_best")]
    return float(max(ratios))


def of_limit(case: str) -> Reached:
    """The share of the machine's limit that a local step reaches."""
    return lambda found: float(found["cases"][case]["fraction"])


def of_partition(value: str) -> Reached:
    """What Louvain by igraph takes on products-like."""
    return lambda found: float(found["products-like/louvain_igraph"][value])


def promised(pick: Callable[[Sequence[float]], float]) -> Reached:
    """The memory promised over that measured."""
    return lambda found: pick([each["ratio"] for each in found["cases"].values()])


# Of one thread: what it is, what was asked, the script and its file, and how it is read from there.
OF_FILES: list[tuple[str, str, str, Reached]] = [
    ("slope of seconds in clients, batch", "<= 1.05", "growth", slope),
    ("sparse product over the best", "<= 1.1", "kernels", largest_spmm),
    ("auto over the best, largest", "<= 1.1", "at_once", largest_choice),
    ("cases of 25 above that", "0", "at_once", wide_choices),
    ("recipes that score otherwise in a batch", "0", "loop_and_batch", differing),
    ("FedAvg, K = 10: share of the limit", ">= 0.5", "limits", of_limit("gcn_fedavg/K=10")),
    ("FedAvg, K = 100: share of the limit", ">= 0.5", "limits", of_limit("gcn_fedavg/K=100")),
    ("graphs of NCI1: best of ours over PyG", ">= 2", "graph_speed", graphs_over_pyg),
    ("memory promised over measured, least", ">= 0.8", "promise", promised(min)),
    ("memory promised over measured, most", "<= 1.2", "promise", promised(max)),
    ("products-like, Louvain: seconds", "<= 300", "partitions", of_partition("seconds")),
    ("products-like, Louvain: GB", "<= 16", "partitions", of_partition("peak_gb")),
    ("trees a second over the loader's, least", ">= 10", "sampled", fewest_trees),
    ("a tree at 10^6 nodes over 10^4, most", "<= 1.3", "sampled", tree_growth),
]


def of_rounds(speed: dict[str, Any]) -> dict[str, float]:
    """What `rounds.py` measured, and a ratio of two of its numbers."""
    if "fgssl/K=10/batch_ms" not in speed:
        return speed
    ratio = speed["fgssl/K=10/batch_ms"] / speed["fgssl/K=10/pyg_ms"]
    return {**speed, "fgssl/K=10/round_over_pyg_fedavg": round(ratio, 2)}


def table(columns: dict[str, dict[str, Any]]) -> list[str]:
    """A line for each figure; what misses is bold.

    Args:
        columns: what `rounds.py` measured: of one thread, of two, of a GPU.
    """
    out = [f"| figure | script | asked | {' | '.join(columns)} |"]
    out.append("|---|---|---" + "|---" * len(columns) + "|")
    for figure, asked in OF_ROUNDS.items():
        found = [of_rounds(speed).get(figure) for speed in columns.values()]
        out.append(_line(f"`{figure}`", "rounds", asked, found))
    for figure, asked, file, reached in OF_FILES:
        measured = kept(RESULTS / f"{file}.json")
        alone = reached(measured) if measured else None
        out.append(_line(figure, file, asked, [alone, None, None]))
    for figure, (script, asked) in OF_A_GPU.items():
        out.append(_line(figure, script, asked, [None, None, None]))
    return out


def met(asked: str, value: float) -> bool:
    """Whether a value is what was asked, such as ``">= 4"``, or at most that without a sign."""
    sign, _, bound = asked.rpartition(" ")
    return value >= float(bound) if sign == ">=" else value <= float(bound)


def _line(figure: str, script: str, asked: str, found: Sequence[float | None]) -> str:
    cells = ["" if v is None else f"{v:.4g}" if met(asked, v) else f"**{v:.4g}**" for v in found]
    return f"| {figure} | `{script}.py` | {asked} | {' | '.join(cells)} |"

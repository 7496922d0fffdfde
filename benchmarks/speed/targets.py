"""Figures that were asked for, beside those reached: the first table of docs/speed.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.machine import RESULTS, kept

Reached = Callable[[dict[str, Any]], float]


def faster(case: str, way: str) -> Callable[..., float]:
    """How many times as fast as a PyG loop a way is, by what `rounds.py` measured of both."""

    def ratio(ours: dict[str, Any], pyg: dict[str, Any]) -> float:
        if ours is pyg and f"{case}/pyg_ms" not in ours:  # where the ratio alone was kept
            return float(ours[f"{case}/{way}_over_pyg"])
        return float(pyg[f"{case}/pyg_ms"] / ours[f"{case}/{way}_ms"])

    return ratio


def fgssl_over_fedavg(ours: dict[str, Any], pyg: dict[str, Any]) -> float:
    """A batch's time of FGSSL over that of a PyG loop of FedAvg."""
    return 1 / faster("fgssl/K=10", "batch")(ours, pyg)


# Of rounds.py, in each column.
OF_ROUNDS: list[tuple[str, str, Callable[..., float]]] = [
    ("FedAvg, K = 10: batch over PyG", ">= 4.5", faster("gcn_fedavg/K=10", "batch")),
    ("FedAvg, K = 30: batch over PyG", ">= 4.5", faster("gcn_fedavg/K=30", "batch")),
    ("FedAvg, K = 100: batch over PyG", ">= 4", faster("gcn_fedavg/K=100", "batch")),
    ("FedAvg, K = 10: loop over PyG", ">= 1.8", faster("gcn_fedavg/K=10", "loop")),
    ("FedAvg, K = 30: loop over PyG", ">= 1.8", faster("gcn_fedavg/K=30", "loop")),
    ("FedAvg, K = 100: loop over PyG", ">= 1.8", faster("gcn_fedavg/K=100", "loop")),
    ("FGSSL, K = 10: time over PyG's FedAvg", "<= 1.5", fgssl_over_fedavg),
]
# Of a GPU, beside PyG on one thread of the processor.
OF_A_GPU = [
    ("FedAvg, K = 100: batch over PyG on the processor", ">= 30", OF_ROUNDS[2][2]),
    ("FGSSL, K = 100: batch over PyG on the processor", ">= 20", faster("fgssl/K=100", "batch")),
]


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


def than_before(case: str) -> Reached:
    """How many times as fast as the older checkout a round is."""
    return lambda found: float(found["cases"][case]["faster"])


def slowest(found: dict[str, Any]) -> float:
    """The same of the case that gained least."""
    return float(min(each["faster"] for each in found["cases"].values()))


def share_of_checks(found: dict[str, Any]) -> float:
    """Of a round of 100 clients."""
    return float(found["cases"]["gcn_fedavg/K=100 auto"]["checks"])


# Of one thread: what it is, what was asked, the script and its file, and how it is read from there.
OF_FILES: list[tuple[str, str, str, Reached]] = [
    ("round of K = 10, batch: over before", ">= 1.4", "versus", than_before("gcn_fedavg/K=10 all")),
    ("round of the case that gained least", ">= 1", "versus", slowest),
    ("checks' share of a round, K = 100", "<= 0.1", "versus", share_of_checks),
    ("sparse product over the best", "<= 1.1", "kernels", largest_spmm),
    ("FedAvg, K = 10: share of the limit", ">= 0.5", "limits", of_limit("gcn_fedavg/K=10")),
    ("FedAvg, K = 100: share of the limit", ">= 0.5", "limits", of_limit("gcn_fedavg/K=100")),
    ("graphs of NCI1: best of ours over PyG", ">= 2", "graph_speed", graphs_over_pyg),
    ("products-like, Louvain: seconds", "<= 300", "partitions", of_partition("seconds")),
    ("products-like, Louvain: GB", "<= 16", "partitions", of_partition("peak_gb")),
    ("trees a second over the loader's, least", ">= 10", "sampled", fewest_trees),
    ("a tree at 10^6 nodes over 10^4, most", "<= 1.3", "sampled", tree_growth),
]


def of_gpu_copy(found: dict[str, Any]) -> float:
    """The share of the copy bandwidth that the sparse product reaches, where that is least."""
    return float(min(v for k, v in found.items() if k.endswith("/share_of_copy_bandwidth")))


def table(columns: dict[str, dict[str, Any]]) -> list[str]:
    """A line for each figure; what misses is bold, what was not measured is empty.

    Args:
        columns: what `rounds.py` measured: of one thread, of two, of another processor, of a GPU.
    """
    one, two, other, gpu = columns.values()
    out = [f"| figure | script | asked | {' | '.join(columns)} |"]
    out.append("|---|---|---" + "|---" * len(columns) + "|")
    for figure, asked, reached in OF_ROUNDS:
        found = [_or_none(reached, each, each) for each in (one, two, other)]
        out.append(_line(figure, "rounds", asked, [*found, None]))
    for figure, asked, file, read in OF_FILES:
        alone = _or_none(read, kept(RESULTS / f"{file}.json"))
        out.append(_line(figure, file, asked, [alone, None, None, None]))
    for figure, asked, reached in OF_A_GPU:
        out.append(_line(figure, "rounds", asked, [None, None, None, _or_none(reached, gpu, one)]))
    share = _or_none(of_gpu_copy, kept(RESULTS / "kernels-gpu.json"))
    cells = [None, None, None, share]
    out.append(_line("sparse product: share of the copy", "kernels", ">= 0.6", cells))
    return out


def _or_none(reached: Callable[..., float], *found: dict[str, Any]) -> float | None:
    """A figure, or None where a file lacks what it is made of."""
    try:
        return reached(*found)
    except (KeyError, ValueError):
        return None


def met(asked: str, value: float) -> bool:
    """Whether a value is what was asked, such as ``">= 4"``, or at most that without a sign."""
    sign, _, bound = asked.rpartition(" ")
    return value >= float(bound) if sign == ">=" else value <= float(bound)


def _line(figure: str, script: str, asked: str, found: Sequence[float | None]) -> str:
    cells = ["" if v is None else f"{v:.4g}" if met(asked, v) else f"**{v:.4g}**" for v in found]
    return f"| {figure} | `{script}.py` | {asked} | {' | '.join(cells)} |"

"""The long tables of docs/speed.md, from what the scripts beside it measured; it takes no flags."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.machine import RESULTS, kept
from harness.report import publish


def described(found: dict[str, Any]) -> str:
    box = found["machine"]
    return (
        f"{box.get('gpu', box['cpu'])}, {box['cores']} cores, {box['threads']} thread(s), "
        f"torch {box['torch']}, commit {box['commit']}"
    )


def rounds_table(speed: dict[str, Any], method: str) -> list[str]:
    variants = ("pyg", "pyg_cached", "loop", "batch_10", "batch_20", "batch_all")
    out = [f"| K | {' | '.join(variants)} | loop / PyG | batch / PyG |", "|---" * 9 + "|"]
    for num_clients in (5, 10, 30, 100, 1000):
        key = f"{method}/K={num_clients}/"
        if f"{key}pyg_ms" not in speed:
            continue
        cells = [str(speed.get(f"{key}{v}_ms", "")) for v in variants]
        ratios = [_ratio(speed, f"{key}{variant}_over_pyg") for variant in ("loop", "batch")]
        out.append(f"| {num_clients} | {' | '.join(cells + ratios)} |")
    return out


def _ratio(speed: dict[str, Any], key: str) -> str:
    """A ratio of medians, and its range over the turns where it was kept."""
    if f"{key}_least" not in speed:
        return f"{speed[key]}x"
    return f"{speed[key]}x ({speed[f'{key}_least']} to {speed[f'{key}_most']})"


def kernels_table(kernels: dict[str, Any]) -> list[str]:
    out = []
    for kernel in ("spmm", "edge_softmax", "weighted_product"):
        keys = [k for k in kernels if k.startswith(f"{kernel}/") and k.endswith("_ms")]
        names = list(dict.fromkeys(k.split("/")[2].removesuffix("_ms") for k in keys))
        sizes = sorted({int(k.split("E=")[1].split("/")[0]) for k in keys})
        out += ["", f"{kernel}, milliseconds", "", f"| edges | {' | '.join(names)} | ours / best |"]
        out.append("|---" * (len(names) + 2) + "|")
        for size in sizes:
            key = f"{kernel}/E={size}/"
            cells = [str(kernels.get(f"{key}{name}_ms", "")) for name in names]
            out.append(f"| {size:,} | {' | '.join(cells)} | {kernels[f'{key}ours_over_best']} |")
    return out


def recipes_table(found: dict[str, Any]) -> list[str]:
    """Local training of the recipes beside PyG twins."""
    out = ["| recipe | clients | steps | twin | loop | batch of all | auto | auto / twin |"]
    out.append("|---" * 8 + "|")
    for name, each in found["cases"].items():
        ms, count = each["ms"], each["clients"]
        cells = [count, each["steps"], ms["twin"], ms["loop"], ms[f"batch_{count}"], each["auto"]]
        out.append(f"| {name} | {' | '.join(map(str, cells))} | {each['auto_over_twin']}x |")
    return out


def limits_table(found: dict[str, Any]) -> list[str]:
    """A local step beside what the machine could do."""
    names = {
        "clients_at_once": "at once",
        "megabytes": "MB",
        "million_products": "10^6 products",
        "copy_gb_per_s": "copy, GB/s",
        "giga_products_per_s": "10^9 products/s",
        "limit_ms": "limit, ms",
        "step_ms": "step, ms",
        "fraction": "reached (asked >= 0.5)",
    }
    out = [f"| case | {' | '.join(names.values())} |", "|---" * (len(names) + 1) + "|"]
    for case, each in found["cases"].items():
        out.append(f"| {case} | {' | '.join(str(each[name]) for name in names)} |")
    return out


MORE = {  # further tables, each from a file that may not have been measured yet
    "recipes.json": ("Recipes beside PyG, milliseconds of all clients' training", recipes_table),
    "limits.json": ("The limit", limits_table),
}


def write_speed() -> None:
    speed, kernels = kept(RESULTS / "speed.json"), kept(RESULTS / "kernels.json")
    lines = [f"Rounds: {described(speed)}."]
    columns = {"": speed, ", two threads": kept(RESULTS / "speed-2-threads.json")}
    columns |= {", GPU": kept(RESULTS / "speed-gpu.json")}
    for method in ("gcn_fedavg", "fgssl"):
        for where, numbers in columns.items():
            title = f"{method}{where}, milliseconds per round"
            lines += ["", title, "", *rounds_table(numbers, method)]
    lines += ["", "## Kernels", "", f"{described(kernels)}.", *kernels_table(kernels)]
    for file, (title, table) in MORE.items():
        found = kept(RESULTS / file)
        if found:
            lines += ["", f"## {title}", "", f"{described(found)}.", "", *table(found)]
    publish("speed", "\n".join(lines) + "\n")


if __name__ == "__main__":
    write_speed()

"""FedAvg beside FGSSL: a table and a picture (`make demo`).

It trains on Cora where Cora can be had: from the folder FGL_DATA, from
the cache, or by a download of a few seconds. Else it trains on a
synthetic graph of Cora's size, and says so.
"""

from contextlib import suppress
from pathlib import Path
from threading import Thread

import fgssl

from fgl import data, plot, tasks
from fgl.experiment import Run, cli


def cora_or_synthetic(seconds=10):
    """Cora if it is here, or arrives in time."""
    names = ["synthetic"]

    def look():
        with suppress(OSError, ValueError):
            data.load("cora")
            names.append("cora")

    thread = Thread(target=look, daemon=True)
    thread.start()
    thread.join(seconds)
    return names[-1]


def main(rounds: int = 60, picture: Path = Path("out/demo.png")):
    """FedAvg beside FGSSL, on Cora or on a synthetic graph.

    Args:
        rounds: How many rounds there are.
        picture: The file that the picture is written to.
    """
    dataset = cora_or_synthetic()
    note = " (Cora is not here, and no download answered)" * (dataset != "cora")
    print(f"Training on {dataset}{note}: 5 clients, {rounds} rounds.")
    task = tasks.Nodes(dataset=dataset).load(seed=0)
    preset = fgssl.PRESETS.get(dataset, {})
    weights = {name: value for name, value in preset.items() if name.startswith("lambda")}
    methods = {"FedAvg": task.fedavg, "FGSSL": fgssl.fgssl(task.fedavg, **weights)}
    table, results = ["method     last  best val  s/round  MB up"], {}
    for name, method in methods.items():
        report, results[name] = Run(rounds)(method, task, recipe=name, dataset=dataset)
        score, up = report["metrics"]["test_accuracy"], report["bytes_up"] / 1e6
        line = f"{score['last']:7.3f} {score['best_val']:9.3f}"
        table.append(f"{name:7} {line} {report['seconds_per_round']:8.3f} {up:6.1f}")
    title = f"{dataset}, 5 clients (dot: best validation round)"
    plot(results, metrics=["test_accuracy"], title=title, path=picture)
    print("", *table, "", f"wrote {picture}", sep="\n")


if __name__ == "__main__":
    cli(main)

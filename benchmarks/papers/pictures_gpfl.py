"""A picture of the client networks that GPFL learns, as the paper's Figure 5.

python benchmarks/pictures_gpfl.py        docs/images/gpfl-network.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

from machine import example
from pictures import ROOT

TITLES = {"0": "all clients' classes alike", "0.5": "clients 0 to 11: classes reversed"}


def networks(dataset: str, clients: int, rounds: int) -> Path:
    """The running network of the last round, with clients alike and in two groups."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    module = example("gpfl")
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.6), constrained_layout=True)
    for axis, (flip, title) in zip(axes, TITLES.items(), strict=True):
        flags = ["--dataset", dataset, "--clients", str(clients), "--rounds", str(rounds)]
        _, result = module.main([*flags, "--flip", flip])
        network = result.server_state["network"]
        shown = axis.imshow(network.cpu().numpy(), cmap="viridis", vmin=0)
        figure.colorbar(shown, ax=axis, shrink=0.8)
        group = round(float(flip) * clients)
        within = float(network[:group, :group].sum() + network[group:, group:].sum()) / clients
        axis.set(title=f"{title}\n{within:.0%} of a row within its group" if group else title)
        axis.set(xlabel="learns from", ylabel="client")
    figure.suptitle(f"GPFL's client network on {dataset}, round {rounds}")
    path = ROOT / "docs" / "images" / "gpfl-network.png"
    figure.savefig(path, dpi=110, bbox_inches="tight")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="PROTEINS")
    parser.add_argument("--clients", type=int, default=25)
    parser.add_argument("--rounds", type=int, default=100)
    args = parser.parse_args()
    print(networks(args.dataset, args.clients, args.rounds))


if __name__ == "__main__":
    main()

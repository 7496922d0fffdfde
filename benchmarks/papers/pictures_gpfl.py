"""A picture of the client networks that GPFL learns, as the paper's Figure 5.

python benchmarks/papers/pictures_gpfl.py        docs/images/gpfl-network.png
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.flags import arguments

from papers import TABLES
from papers.pictures import figure, saved

TITLES = {
    "gpfl-other-draw-table2": (0.0, "all clients' classes alike"),
    "gpfl-groups": (0.5, "clients 0 to 11: classes reversed"),
}


def networks(dataset: str, clients: int, rounds: int) -> Path:
    """The running network of the last round, with clients alike and in two groups."""
    picture, axes = figure(1, 2, (9, 4.6))
    for axis, (table, (flip, title)) in zip(axes, TITLES.items(), strict=True):
        _, result = TABLES[table].row("GPFL, alpha 5").at(dataset, clients, rounds=rounds)()
        network: Any = result.server_state["network"]
        shown = axis.imshow(network.cpu().numpy(), cmap="viridis", vmin=0)
        picture.colorbar(shown, ax=axis, shrink=0.8)
        group = round(flip * clients)
        within = float(network[:group, :group].sum() + network[group:, group:].sum()) / clients
        axis.set(title=f"{title}\n{within:.0%} of a row within its group" if group else title)
        axis.set(xlabel="learns from", ylabel="client")
    picture.suptitle(f"GPFL's client network on {dataset}, round {rounds}")
    return saved(picture, "gpfl-network.png", dpi=110, bbox_inches="tight")


def main() -> None:
    args = arguments(json=False, dataset="PROTEINS", clients=25, rounds=100)
    print(networks(args.dataset, args.clients, args.rounds))


if __name__ == "__main__":
    main()

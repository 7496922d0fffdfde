"""The picture of one round, for the home page: python docs/pictures/round.py"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

PATH = Path(__file__).parents[1] / "images" / "round.png"
SERVER, CLIENT, FUNCTION, GREY = "#eaf1f8", "#f6f4ee", "#1f5a94", "#666666"
FEDAVG = {
    "receive": "start from the\nserver's model",
    "loss": "cross-entropy on\nits own nodes",
    "send": "the trained model,\nhow many examples",
    "aggregate": "the mean of the models, weighted by their examples",
}


def panel(axes: Any, x: float, y: float, width: float, height: float, color: str) -> None:
    """The ground on which a party's functions stand."""
    axes.add_patch(
        FancyBboxPatch(
            (x, y), width, height, boxstyle="round,pad=0,rounding_size=0.18",
            facecolor=color, edgecolor="#b8b8b8", linewidth=1.1,
        )
    )  # fmt: skip


def function(axes: Any, name: str, x: float, y: float, width: float = 2.3) -> None:
    """One of the four functions, and what FedAvg says for it."""
    axes.add_patch(
        FancyBboxPatch(
            (x, y), width, 0.62, boxstyle="round,pad=0,rounding_size=0.12",
            facecolor=FUNCTION, edgecolor="none",
        )
    )  # fmt: skip
    middle = x + width / 2
    axes.text(middle, y + 0.31, name, color="white", ha="center", va="center", family="monospace",
              fontsize=13, fontweight="bold")  # fmt: skip
    axes.text(middle, y - 0.12, FEDAVG[name], color=GREY, ha="center", va="top", fontsize=9.5)


def arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], **how: Any) -> None:
    """An arrow from one point to another."""
    given = {"arrowstyle": "-|>", "mutation_scale": 15, "color": "#333333", "linewidth": 1.5}
    axes.add_patch(FancyArrowPatch(start, end, shrinkA=0, shrinkB=0, **{**given, **how}))


def draw() -> None:
    """Draw the server above, the clients below, and what travels between them."""
    figure, axes = plt.subplots(figsize=(9.6, 6.0))
    axes.set(xlim=(0, 12), ylim=(-0.15, 7.4))
    axes.axis("off")

    panel(axes, 1.2, 5.15, 9.6, 2.0, SERVER)
    axes.text(1.5, 6.83, "server", fontsize=13, fontweight="bold", va="center")
    function(axes, "aggregate", 4.7, 5.95, 2.6)
    axes.text(2.6, 6.26, "outbox", ha="center", va="center", fontsize=12)
    axes.text(
        2.6, 5.95, "one message\nfor each client", ha="center", va="top", fontsize=9.5, color=GREY
    )
    axes.text(9.4, 6.26, "inbox", ha="center", va="center", fontsize=12)
    axes.text(
        9.4, 5.95, "one message\nfrom each client", ha="center", va="top", fontsize=9.5, color=GREY
    )
    arrow(axes, (8.85, 6.26), (7.4, 6.26))
    arrow(axes, (4.6, 6.26), (3.25, 6.26))

    for shift in (0.36, 0.18, 0.0):
        panel(axes, 0.9 + shift, 0.75 + shift, 9.9, 2.75, CLIENT)
    axes.text(1.2, 3.2, "client", fontsize=13, fontweight="bold", va="center")
    said = "Each client has a graph of its own,\nand does what is below."
    axes.text(5.85, 4.5, said, fontsize=9.5, color=GREY, ha="center", va="center")
    function(axes, "receive", 1.45, 2.15)
    function(axes, "loss", 4.7, 2.15)
    function(axes, "send", 7.95, 2.15)
    arrow(axes, (3.8, 2.46), (4.65, 2.46))
    arrow(axes, (7.05, 2.46), (7.9, 2.46))
    axes.text(4.22, 2.64, "params\ncontext", ha="center", va="bottom", fontsize=8.5, color=GREY)
    axes.text(7.47, 2.64, "trained\nparams", ha="center", va="bottom", fontsize=8.5, color=GREY)
    arrow(axes, (6.35, 2.8), (5.35, 2.8), connectionstyle="arc3,rad=0.75", mutation_scale=11)
    axes.text(5.87, 3.27, "local steps", ha="center", va="center", fontsize=8.5, color=GREY)

    arrow(axes, (2.6, 5.1), (2.6, 2.83), linewidth=2.2, color=FUNCTION)
    arrow(axes, (9.1, 2.83), (9.1, 5.1), linewidth=2.2, color=FUNCTION)
    axes.text(2.75, 4.5, "message", fontsize=11, color=FUNCTION, va="center")
    axes.text(8.95, 4.5, "message", fontsize=11, color=FUNCTION, va="center", ha="right")
    arrow(axes, (9.1, 1.25), (2.6, 1.25), connectionstyle="arc3,rad=-0.0", linestyle="--",
          color="#8a6d3b")  # fmt: skip
    axes.text(5.85, 1.05, "state: what a client keeps for its next round", ha="center", va="center",
              fontsize=9.5, color="#8a6d3b")  # fmt: skip
    axes.text(6, 0.3, "Blue: the four functions of a method. Grey: what FedAvg says for each.",
              ha="center", va="center", fontsize=10.5)  # fmt: skip
    figure.subplots_adjust(0, 0, 1, 1)
    PATH.parent.mkdir(exist_ok=True)
    figure.savefig(PATH, dpi=120)


if __name__ == "__main__":
    draw()

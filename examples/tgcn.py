"""T-GCN: a forecast of a series by a recurrent network of graph convolutions.

    python examples/tgcn.py --dataset chickenpox
    python examples/tgcn.py --dataset metr-la-like --rounds 5
    python examples/tgcn.py --cell gru            no batch: see below

Zhao et al., IEEE T-ITS 2019: at each time of a window a graph convolution
enters a GRU, whose last state is decoded to all horizons. The cell is written
out, since torch's own GRU cannot run in a batch of clients.
"""

from typing import Literal

import torch
from torch import nn

from fgl import tasks
from fgl.experiment import Run, cli
from fgl.targets import FORECAST


class Cell(nn.Module):
    """A gated recurrent unit."""

    def __init__(self, hidden):
        super().__init__()
        self.gates = nn.Linear(2 * hidden, 2 * hidden)
        self.new = nn.Linear(2 * hidden, hidden)

    def forward(self, steps):
        state = torch.zeros_like(steps[0])
        for x in steps:
            gates = self.gates(torch.cat([x, state], -1)).sigmoid()
            keep, reset = gates.chunk(2, -1)
            new = self.new(torch.cat([x, reset * state], -1)).tanh()
            state = keep * state + (1 - keep) * new
        return state


class GRU(nn.GRU):
    """Torch's own; nodes of all windows are its examples."""

    def __init__(self, hidden):
        super().__init__(hidden, hidden)

    def forward(self, steps):
        windows, nodes, _ = steps[0].shape
        rows = torch.stack(list(steps)).flatten(1, 2)
        return super().forward(rows)[1].view(windows, nodes, -1)


class TGCN(nn.Module):
    """``[windows, steps, nodes, features]`` to ``[windows, nodes, horizons]``."""

    def __init__(self, num_features, hidden, num_horizons, cell):
        super().__init__()
        self.conv = nn.Linear(2 * num_features, hidden)
        self.cell = {"cell": Cell, "gru": GRU}[cell](hidden)
        self.out = nn.Linear(hidden, num_horizons)

    def forward(self, x, edge_index, edge_weight=None):
        source, target = edge_index
        weight = x.new_ones(len(source)) if edge_weight is None else edge_weight
        degree = x.new_ones(x.shape[2]).index_add(0, target, weight)
        messages = x.index_select(2, source) * weight[:, None]
        mean = x.index_add(2, target, messages) / degree[:, None]
        h = self.conv(torch.cat([x, mean], -1)).relu()
        return self.out(self.cell(h.unbind(1)))


def last_value(graph):
    """The error of the last value as a forecast, at each horizon."""
    reads, asks = graph.window_index, graph.horizon_index
    last = graph.x[:, reads[graph.test_mask, -1], :1]
    error = last - graph.y[:, asks[graph.test_mask]]
    return error.abs().nanmean((0, 1))


def main(
    task: tasks.Forecast = tasks.Forecast(clients=4, hidden=32),
    run: Run = Run(rounds=20),
    cell: Literal["cell", "gru"] = "cell",
):
    """FedAvg of a T-GCN.

    Args:
        cell: The recurrent unit: written out, or torch's own.
    """
    loaded = task.load(run.seed)
    sizes = loaded.clients[0].num_features, task.hidden, len(task.horizons)
    model = task.seeded(run.seed, TGCN, *sizes, cell)
    train = loaded.fedavg.train
    own = tasks.node_task(None, loaded.clients, model, train, target=FORECAST)
    errors = torch.stack([last_value(graph) for graph in own.clients]).mean(0)
    print("last value: mae", [f"{error:.3f}" for error in errors.tolist()])
    return run(own.fedavg, own)


if __name__ == "__main__":
    cli(main)

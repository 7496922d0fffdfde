"""T-GCN: a forecast of a series by a recurrent network of graph convolutions.

    python examples/tgcn.py --dataset chickenpox

Zhao et al., IEEE T-ITS 2019: at each time of a window a graph convolution enters
a GRU, which is written out, since `nn.GRU` cannot train in a batch of clients.
"""

import torch
from torch import nn

from fgl import tasks
from fgl.experiment import Run, cli
from fgl.targets import FORECAST


class TGCN(nn.Module):
    """``[windows, steps, nodes, features]`` to ``[windows, nodes, horizons]``."""

    def __init__(self, num_features, hidden, num_horizons):
        super().__init__()
        self.conv = nn.Linear(2 * num_features, hidden)
        self.gates = nn.Linear(2 * hidden, 2 * hidden)
        self.new = nn.Linear(2 * hidden, hidden)
        self.out = nn.Linear(hidden, num_horizons)

    def forward(self, x, edge_index, edge_weight=None):
        source, target = edge_index
        weight = x.new_ones(len(source)) if edge_weight is None else edge_weight
        degree = x.new_ones(x.shape[2]).index_add(0, target, weight)
        messages = x.index_select(2, source) * weight[:, None]
        mean = x.index_add(2, target, messages) / degree[:, None]
        steps = self.conv(torch.cat([x, mean], -1)).relu().unbind(1)
        state = torch.zeros_like(steps[0])
        for h in steps:
            keep, reset = self.gates(torch.cat([h, state], -1)).sigmoid().chunk(2, -1)
            new = self.new(torch.cat([h, reset * state], -1)).tanh()
            state = keep * state + (1 - keep) * new
        return self.out(state)


def last_value(graph):
    """The error of the last value as a forecast, at each horizon."""
    last = graph.x[:, graph.window_index[graph.test_mask, -1], :1]
    return (last - graph.y[:, graph.horizon_index[graph.test_mask]]).abs().nanmean((0, 1))


def main(task: tasks.Forecast = tasks.Forecast(clients=4, hidden=32), run: Run = Run(rounds=20)):
    """FedAvg of a T-GCN."""
    loaded = task.load(run.seed)
    sizes = loaded.clients[0].num_features, task.hidden, len(task.horizons)
    model = task.seeded(run.seed, TGCN, *sizes)
    own = tasks.node_task(None, loaded.clients, model, loaded.fedavg.train, target=FORECAST)
    errors = torch.stack([last_value(graph) for graph in own.clients]).mean(0)
    print("last value: mae", [f"{error:.3f}" for error in errors.tolist()])
    return run(own.fedavg, own)


if __name__ == "__main__":
    cli(main)

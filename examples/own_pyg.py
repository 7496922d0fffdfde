"""Your own PyG graphs, model and target, as they are.

    python examples/own_pyg.py

The molecules are made up: bonds have features, an answer is a number.
The model is a module of PyG, and nothing in it knows of clients. Over
Flower, `method` goes into `task.py` of `examples/flower_app`.
"""

from functools import partial

import torch
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATv2Conv, global_mean_pool

import fgl


class Net(torch.nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.one = GATv2Conv(4, width, edge_dim=2)
        self.two = GATv2Conv(width, width, edge_dim=2)
        self.out = torch.nn.Linear(width, 1)

    def forward(self, x, edge_index, edge_attr, batch):
        x = self.one(x, edge_index, edge_attr).relu()
        x = self.two(x, edge_index, edge_attr).relu()
        return self.out(global_mean_pool(x, batch))


def molecule():
    """A ring of atoms; the answer needs atoms and bonds."""
    atoms = int(torch.randint(3, 9, ()))
    x, bonds = torch.rand(atoms, 4), torch.rand(atoms, 2)
    ends = torch.arange(atoms)
    ring = torch.stack([ends, (ends + 1) % atoms])
    edges = torch.cat([ring, ring.flip(0)], dim=1)
    y = 2 * x[:, 0].mean() + (bonds[:, 1] * x[:, 1]).mean()
    attr = bonds.repeat(2, 1)
    return Data(x, edges, edge_attr=attr, y=y.view(1, 1))


def method():
    """FedAvg of the model; the same at server and clients."""
    torch.manual_seed(0)  # the initial model's
    optimizer = partial(torch.optim.Adam, lr=0.01)
    train = fgl.Training(optimizer, num_steps=5)
    target = fgl.targets.REGRESSION
    return fgl.fedavg(Net(), train=train, target=target)


def main(rounds=20):
    torch.manual_seed(1)
    data = Batch.from_data_list([molecule() for _ in range(300)])
    graphs = fgl.Graph.from_pyg(data)
    parts = fgl.data.partitions.random_partition(graphs, 5)
    clients = fgl.data.partitions.partition_graph(graphs, parts)
    clients = [fgl.data.splits.random_split(own) for own in clients]
    fedavg = method()
    task = fgl.tasks.graph_task(
        clients, clients, fedavg.model, fedavg.train, target=fgl.targets.REGRESSION
    )
    for each in (
        fedavg,
        fgl.methods.fedprox(fedavg, mu=0.1),
        fgl.methods.scaffold(fedavg),
        fgl.methods.local(fedavg),
    ):
        result = fgl.run(each, task, num_rounds=rounds)
        scores = result.history[-1].metrics
        rmse = scores["pooled_test_rmse"]
        print(f"{each.layers[-1].name:10} RMSE {rmse:.3f}")


if __name__ == "__main__":
    main()

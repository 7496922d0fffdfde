"""FedAvg of a GCN of a given size, and a client's small random graph."""

import torch

import fgl


def method(features, hidden):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return fgl.fedavg(fgl.nn.GCN(features, hidden, 10, dropout=0.5))


def graph(features, client):
    generator = torch.Generator().manual_seed(client)
    return fgl.Graph(
        torch.randn(50, features, generator=generator),
        torch.randint(50, (2, 200), generator=generator),
        y=torch.randint(10, (50,), generator=generator),
        num_classes=10,
    )

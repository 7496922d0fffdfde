"""Task that server and clients share, and each client's own graph."""

from functools import partial
from pathlib import Path

import torch

import fgl
from fgl.metrics import hit_rows


def method(config):
    """FedProx, the same everywhere: it needs sizes, and no data."""
    torch.set_num_threads(1)  # the bits depend on their number
    torch.manual_seed(config["seed"])
    model = fgl.nn.GCN(config["num-features"], config["hidden"], config["num-classes"])
    optimizer = partial(torch.optim.SGD, lr=config["learning-rate"])
    steps = config["num-steps"]
    train = fgl.Training(optimizer, num_steps=steps)
    fedavg = fgl.fedavg(model, train=train)
    return fgl.methods.fedprox(fedavg, mu=config["mu"])


def graph(folder, dataset, client):
    """The client's graph, in a folder that only it has."""
    path = Path(folder) / dataset / f"client-{client}"
    return fgl.data.open_client(path)


def score(method):
    """Right answers on the client's test nodes, and their number."""

    @torch.no_grad()
    def accuracy(params, graph):
        logits = fgl.predict(method.model, params, graph)
        tested = graph.test_mask
        hits = hit_rows(logits, graph.y)[tested].sum()
        return {"test_accuracy": (int(hits), int(tested.sum()))}

    return accuracy

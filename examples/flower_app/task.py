"""What the server and its clients have in common, and a client's graph, which is its own."""

from functools import partial
from pathlib import Path

import torch

import fgl
from fgl.metrics import hit_rows


def method(config):
    """FedProx, the same at the server and at every client: it needs sizes, and no data."""
    torch.set_num_threads(1)  # as many everywhere: the bits depend on it
    torch.manual_seed(config["seed"])
    model = fgl.nn.GCN(config["num-features"], config["hidden"], config["num-classes"])
    optimizer = partial(torch.optim.SGD, lr=config["learning-rate"])
    train = fgl.Training(optimizer, num_steps=config["num-steps"])
    return fgl.methods.fedprox(fgl.fedavg(model, train=train), mu=config["mu"])


def graph(folder, dataset, client):
    """The client's graph: the one file that only this client has."""
    saved = torch.load(Path(folder) / dataset / f"client-{client}.pt", weights_only=True)
    return fgl.Graph(**saved)


def score(method):
    """Right answers on the client's own test nodes, and how many there are."""

    @torch.no_grad()
    def accuracy(params, graph):
        hit = hit_rows(fgl.predict(method.model, params, graph), graph.y)
        return {"test_accuracy": (int(hit[graph.test_mask].sum()), int(graph.test_mask.sum()))}

    return accuracy

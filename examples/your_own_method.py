"""A method of your own: what differs from FedAvg, and nothing else.

    python examples/your_own_method.py

A federated method is four small functions: what a client receives, the
loss that it minimises, what it sends, what the server aggregates. Say
which of them differ from FedAvg's. FedAvg says the rest.

Here it is the loss. Clients stay near the parameters that they start from,
which the loss finds in its context (this is FedProx, `fgl.methods.fedprox`).
"""

from dataclasses import replace
from functools import partial

import torch

import fgl


@fgl.layer
def near_the_server(fedavg, *, mu):
    """FedAvg that pays for every step away from the received model."""

    def loss(params, graph, context):
        penalty = fgl.losses.proximal(params, context["start"])
        return fedavg.loss(params, graph, context) + mu * penalty

    return replace(fedavg, loss=loss)


def federation(num_clients):
    """Load a graph and split it into clients by its communities."""
    graph = fgl.data.load("synthetic")
    graph = fgl.data.splits.split(graph, "class_capped")
    parts = fgl.data.partitions.louvain_partition(graph, num_clients)
    return graph, fgl.data.partitions.partition_graph(graph, parts)


def accuracy(method, graph, clients):
    """The accuracy on the test nodes after five rounds."""
    score = fgl.evaluate_on(method, graph, clients)
    result = fgl.run(
        method,
        clients,
        num_rounds=5,
        clients_at_once="all",  # as one batch; 1: one by one
        evaluate=score,
    )
    return result.history[-1].metrics["test_accuracy"]


def main():
    torch.manual_seed(0)  # the initial model's; a run has its own
    graph, clients = federation(num_clients=5)
    sizes = graph.num_features, 64, graph.num_classes
    train = fgl.Training(partial(torch.optim.Adam, lr=0.01), num_steps=4)
    fedavg = fgl.fedavg(fgl.nn.GCN(*sizes), train=train)
    own = near_the_server(fedavg, mu=0.1)
    print(f"FedAvg    {accuracy(fedavg, graph, clients):.3f}")
    print(f"your own  {accuracy(own, graph, clients):.3f}")


if __name__ == "__main__":
    main()

"""A method of your own: FedProx, written out, beside FedAvg.

    python examples/your_own_method.py

A federated method is four small functions. Say what differs from FedAvg,
and FedAvg says the rest. Here it is the loss: it stays near the model that
the client received, which is in the context.
"""

from dataclasses import replace

import torch

import fgl


def near_the_server(fedavg, *, mu):
    """FedAvg that pays for every step away from the received model."""

    def loss(params, graph, context):
        penalty = fgl.losses.proximal(params, context["model"])
        return fedavg.loss(params, graph, context) + mu * penalty

    return replace(fedavg, loss=loss)


def accuracy(method, graph, clients):
    """The accuracy on the test nodes after five rounds."""
    score = fgl.evaluate_on(method, graph, clients)
    result = fgl.run(method, clients, num_rounds=5, evaluate=score)
    return result.history[-1].metrics["test_accuracy"]


def main():
    torch.manual_seed(0)  # of the initial model; a run has a seed of its own
    graph = fgl.data.split(fgl.data.load("synthetic"), "class_capped")
    parts = fgl.data.louvain_partition(graph, 5)
    clients = fgl.data.partition_graph(graph, parts)
    model = fgl.nn.GCN(graph.num_features, 64, graph.num_classes)
    fedavg = fgl.fedavg(model, train=fgl.Training(num_steps=4))
    own = near_the_server(fedavg, mu=0.1)
    print(f"FedAvg   {accuracy(fedavg, graph, clients):.3f}")
    print(f"your own {accuracy(own, graph, clients):.3f}")


if __name__ == "__main__":
    main()

"""GPFL: the server learns a network of clients and uses it to mix their updates.

    python examples/gpfl.py --dataset PROTEINS --alpha 5
    python examples/gpfl.py --rho 0.95      as the paper's Equation 4

Graph Personalized Federated Learning, TMLR 2025. Clients classify graphs.
Besides their models they upload what those answer to the same random
graphs, and numbers that describe their own graphs. A network of clients
starts from the descriptions, follows the answers, and an auto-encoder
reads it together with the models; each client gets a mix of all updates.
"""

import copy
from dataclasses import replace

import torch

from fgl import Graph, client_network, layer, predict, tasks
from fgl.checks import check_share
from fgl.experiment import Run, cli
from fgl.methods import mix_updates
from fgl.properties import mean_properties


def property_start(properties, similarity):
    """The first network: clients whose graphs are alike."""
    columns = client_network.select_properties(properties, similarity)
    return client_network.property_network(properties[:, columns])


def learned(network, models):
    """The matrix to mix by: an auto-encoder of the network and the models."""
    flat = client_network.flat_parameters(models)
    features = client_network.pooled_features(flat)
    z = client_network.reconstruct(network, features)
    return client_network.discretise(z)


@layer
def gpfl(fedavg, probes, *, rho=0.05, beta=0.95, start=property_start, learn=learned):
    """GPFL; `rho` is the share of a client's own update."""
    check_share(rho=rho, beta=beta)
    reader = copy.deepcopy(fedavg.model).eval()

    @torch.no_grad()
    def send(params, context, state, graph):
        message, state = fedavg.send(params, context, state, graph)
        if "properties" not in state:
            state = {**state, "properties": mean_properties(graph)}
        logits = predict(reader, params, probes)
        message["answers"] = logits.log_softmax(1)
        return {**message, "properties": state["properties"]}, state

    def network(inbox, previous):
        """The matrix to mix by, and the network to remember; -1 where two never met."""
        answers = client_network.functional_embedding(inbox.stack("answers"))
        similarity = client_network.similarity(answers)
        unmet = previous < 0
        if unmet.any():
            first = start(inbox.stack("properties"), similarity)
            first = client_network.normalize_rows(first)
            previous = torch.where(unmet, first, previous)
        if learn is None:
            return previous, previous
        if not unmet.all():
            previous = client_network.running_network(previous, similarity, beta=beta)
        return learn(previous, inbox.stack("model")), previous

    return mix_updates(replace(fedavg, send=send), network, self_weight=rho)


def random_graphs(num_features, seed, **how):
    """The graphs that all models are asked about."""
    generator = torch.Generator().manual_seed(seed)
    how |= {"num_features": num_features, "generator": generator}
    x, edge_index, batch = client_network.probe_graphs(**how)
    return Graph(x, edge_index, batch=batch)


def main(task=tasks.Graphs(), run=Run(), rho=0.05, beta=0.95):
    """FedAvg of updates that are mixed by a learned network of clients.

    Args:
        rho: Weight of a client's own update: 0.05 in the public code, 0.95 in the paper.
        beta: How much of the network stays from round to round.
    """
    setting = task.load(run.seed)
    num_features = setting.clients[0].num_features
    probes = random_graphs(num_features, run.seed).to(task.device)
    method = gpfl(setting.fedavg, probes, rho=rho, beta=beta)
    return run(method, setting)


if __name__ == "__main__":
    cli(main)

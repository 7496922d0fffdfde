"""Knowledge graphs: hospitals that each know some relations share what they know of entities.

    python examples/triples.py FOLDER

FOLDER has train.txt, valid.txt and test.txt, a triple on each line.
Every client has all triples of some relations, as in FedE. A model has
a vector for each entity and one for each relation:

    FedE   the entities' travel, the relations' stay (Chen et al. 2021)
    FedR   the relations' travel, the entities' stay (Zhang et al. 2022)

"FedE" here sends the whole table of entities: its mean is weighted by
the numbers of triples, and a client returns unchanged what it lacks. As
published, "FedE, rows by id" (`fede`) sends and gets only the rows of a
client's own entities, by id, and averages a row over the clients that
have it. So the server learns which entities a client has. Beside them
FedAvg, which shares both, each client alone, and one client with all
triples. MRR is filtered, over heads and tails of a client's own triples
among its own entities.
"""

import sys
from dataclasses import replace
from functools import partial

import torch

import fgl
from fgl.methods import fedper, local

ADAM = partial(torch.optim.Adam, lr=0.01)


class Embeddings(torch.nn.Module):
    """A vector for each entity, another for each relation; `compare` scores a triple."""

    def __init__(self, entities, relations, width=64):
        super().__init__()
        self.ent = torch.nn.Embedding(entities, width)
        self.rel = torch.nn.Embedding(relations, width)
        torch.nn.init.xavier_uniform_(self.ent.weight)
        torch.nn.init.xavier_uniform_(self.rel.weight)

    def forward(self, x, adj, *, edge_label_index, edge_label_type):
        head, tail = self.ent(x[:, 0].long())[edge_label_index]
        return self.compare(head, self.rel(edge_label_type), tail)


class DistMult(Embeddings):
    def compare(self, head, relation, tail):
        return (head * relation * tail).sum(1)


class TransE(Embeddings):
    def compare(self, head, relation, tail, margin=6.0):
        return margin - (head + relation - tail).abs().sum(1)


class RotatE(Embeddings):
    def compare(self, head, relation, tail, margin=6.0):
        (a, b), (c, d) = head.chunk(2, 1), tail.chunk(2, 1)
        angle = relation.chunk(2, 1)[0] * 8  # half of the numbers turn nothing
        sin, cos = angle.sin(), angle.cos()
        real, imaginary = a * cos - b * sin - c, a * sin + b * cos - d
        return margin - (real.square() + imaginary.square() + 1e-9).sqrt().sum(1)


def own_ids(graph):
    """A client's entities: the feature of a node is its id."""
    return graph.x[:, 0].long()


@fgl.layer(checks=[fgl.federation.check_averages])
def fede(fedavg, *, table="ent", ids=own_ids):
    """Clients share the rows of one embedding that they have, and keep all else.

    ``row_e <- mean over the clients k with e in ids_k of row_e^k``; a row that
    nobody has stays. Clients without a training triple do not count. A client gets
    the whole table once, before the server knows its ids.

    Args:
        fedavg: FedAvg of a task.
        table: name of the `torch.nn.Embedding` in the model.
        ids: ``graph -> int64 [n]``, the rows that a client has, each once.

    Source: Chen et al. 2021, FedE, https://arxiv.org/abs/2010.12882
    """
    whole, name = fedper(fedavg, shared=[table]), f"{table}.weight"
    initial = fedavg.initial()[name]

    def filled(message, state, graph):
        if "rows" not in message:
            return message
        own = state.get("model", {name: initial})[name]
        return {"model": {name: own.index_copy(0, ids(graph), message["rows"])}}

    def receive(message, state, graph):
        return whole.receive(filled(message, state, graph), state, graph)

    def deploy(message, state, graph):
        return whole.deploy(filled(message, state, graph), state, graph)

    def send(params, context, state, graph):
        message, state = whole.send(params, context, state, graph)
        own = ids(graph)
        rows = {"ids": own, "rows": message["model"][name][own]}
        return {**fgl.federation.drop(message, ["model"]), **rows}, state

    def accept(message, client, state):
        own, rows = message["ids"], message["rows"]
        if own.dtype != torch.int64 or own.dim() != 1 or len(own.unique()) < len(own):
            raise ValueError(f"Expected ids to be int64, each once, but got {own}")
        if len(own) and not (own.min() >= 0 and own.max() < len(initial)):
            raise ValueError(f"Expected ids in [0, {len(initial)}), but got {own}")
        if rows.dtype != initial.dtype or rows.shape != (len(own), initial.shape[1]):
            raise ValueError(f"Expected a row for each of {len(own)} ids, but got {rows}")

    def aggregate(inbox, state):
        old = state["model"][name]
        total = torch.zeros_like(old, dtype=torch.float64)
        count = torch.zeros_like(total[:, :1])
        for message in inbox.values():
            weight = (message["num_examples"] > 0).double()
            total.index_add_(0, message["ids"], weight * message["rows"].double())
            count.index_add_(0, message["ids"], weight.expand(len(message["ids"]), 1))
        new = torch.where(count > 0, (total / count).to(old.dtype), old)
        known = {str(client): message["ids"] for client, message in inbox.items()}
        known = {**state.get("ids", {}), **known}
        outbox = {client: {"model": {name: new}} for client in range(inbox.num_clients)}
        outbox |= {int(client): {"rows": new[own]} for client, own in known.items()}
        return outbox, {"model": {**state["model"], name: new}, "ids": known}

    rules = replace(whole.rules, ragged={*whole.rules.ragged, "ids", "rows"})
    own = {"receive": receive, "send": send, "deploy": deploy, "accept": accept}
    return replace(whole, **own, aggregate=aggregate, rules=rules)


METHODS = {
    "FedE": partial(fedper, shared=["ent"]),
    "FedE, rows by id": fede,
    "FedR": partial(fedper, shared=["rel"]),
    "FedAvg": lambda fedavg: fedavg,
    "alone": local,
    "all data": fgl.tasks.centralized,
}


def task_of(seed, *, folder, kind=DistMult, clients=3, negatives=8):
    """The triples of a folder, dealt to clients by their relations."""
    whole, entities, relations = fgl.data.load_triples(folder)
    parts = fgl.data.partitions.relation_partition(whole, clients, seed=seed)
    torch.manual_seed(seed)
    model = kind(len(entities), len(relations))
    train = fgl.Training(ADAM, num_steps=3, keep_optimizer=True)
    how = {"negatives": negatives, "ranking": fgl.tasks.ranking()}
    return replace(fgl.tasks.pair_task(parts, model, train, **how), whole=whole)


def main(folder, num_rounds=100, seeds=range(3)):
    for kind in (DistMult, TransE, RotatE):
        load = partial(task_of, folder=folder, kind=kind)
        print(kind.__name__)
        print(fgl.compare(METHODS, load, num_rounds=num_rounds, seeds=seeds).to_markdown())


if __name__ == "__main__":
    main(sys.argv[1])

"""Knowledge graphs: hospitals that each know some relations share what they know of entities.

    python examples/triples.py FOLDER

FOLDER has train.txt, valid.txt and test.txt, a triple on each line.
Every client has all triples of some relations, as in FedE. A model has
a vector for each entity and one for each relation:

    FedE   the entities' travel, the relations' stay (Chen et al. 2021)
    FedR   the relations' travel, the entities' stay (Zhang et al. 2022)

"FedE" here sends the whole table of entities; `examples/fede.py` sends
rows by id. Beside them FedAvg, which shares both, each client alone, and
one client with all triples. MRR is filtered, over heads and tails of a
client's own triples among its own entities.
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


METHODS = {
    "FedE": partial(fedper, shared=["ent"]),
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

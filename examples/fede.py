"""FedE: clients of a knowledge graph share the vectors of the entities that they have, by id.

    python examples/fede.py FOLDER

FOLDER has train.txt, valid.txt and test.txt, a triple on each line. The
models and clients are those of `examples/triples.py`, where clients send the
whole table. Here, as published, a client sends and gets only the rows of its
entities. A row is averaged over the clients that have it. So the server
learns which entities a client has.
"""

import sys
from dataclasses import replace
from functools import partial

import torch

import fgl
from fgl.methods import fedper


def own_ids(graph):
    """A client's entities: the feature of a node is its id."""
    return graph.x[:, 0].long()


@fgl.layer(checks=[fgl.federation.check_averages])
def fede(fedavg, *, table="ent", ids=own_ids):
    """Clients share the rows of one embedding that they have, and keep all else.

    ``row_e <- mean over the clients k with e in ids_k of row_e^k``; other rows stay. Clients
    without a training triple do not count. A client's first message is the whole table.

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
        rows = {"ids": own, "rows": message.pop("model")[name][own]}
        return message | rows, state

    def accept(message, client, state):
        own, rows = message["ids"], message["rows"]
        if own.dtype != torch.int64 or own.dim() != 1 or len(own.unique()) < len(own):
            raise ValueError(f"Expected ids to be int64, each once, but got {own}")
        known = state.get("ids", {}).get(str(client), own)
        if not (known.equal(own) and ((own >= 0) & (own < len(initial))).all()):
            raise ValueError(f"Expected ids in [0, {len(initial)}), as before, but got {own}")
        if rows.dtype != initial.dtype or rows.shape != (len(own), initial.shape[1]):
            raise ValueError(f"Expected a row for each of {len(own)} ids, but got {rows}")

    def aggregate(inbox, state):
        old = state["model"][name]
        total = torch.zeros_like(old, dtype=torch.float64)
        count = torch.zeros_like(total[:, :1])
        for message in inbox.values():
            weight = (message["num_examples"] > 0).double()
            total[message["ids"]] += weight * message["rows"].double()
            count[message["ids"]] += weight
        new = torch.where(count > 0, (total / count).to(old.dtype), old)
        known = state.get("ids", {}) | {str(k): message["ids"] for k, message in inbox.items()}
        outbox = {client: {"model": {name: new}} for client in range(inbox.num_clients)}
        outbox |= {int(client): {"rows": new[own]} for client, own in known.items()}
        return outbox, {"model": {**state["model"], name: new}, "ids": known}

    rules = replace(whole.rules, ragged={*whole.rules.ragged, "ids", "rows"})
    own = {"receive": receive, "send": send, "deploy": deploy, "accept": accept}
    return replace(whole, **own, aggregate=aggregate, rules=rules)


def main(folder, num_rounds=100, seeds=range(3)):
    from triples import task_of

    methods = {"whole table": partial(fedper, shared=["ent"]), "rows by id": fede}
    load = partial(task_of, folder=folder)
    print(fgl.compare(methods, load, num_rounds=num_rounds, seeds=seeds).to_markdown())


if __name__ == "__main__":
    main(sys.argv[1])

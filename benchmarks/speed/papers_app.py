"""The server and the clients of the graph like a tenth of papers100M, as Flower apps."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from harness.machine import process_memory

import fgl
from fgl import Training
from fgl.federation import Flower, Steps, client_app
from fgl.metrics import hit_rows
from fgl.sampler import NeighbourSampler
from fgl.tasks.sampled_nodes import sampled_steps

FANOUTS = (10, 10)
SCORED = 1000  # test nodes that a client scores itself with, at most
SEED = 0


class Sizes(NamedTuple):
    """What server and clients must agree on."""

    clients: int
    participants: int
    rounds: int
    features: int
    classes: int
    hidden: int
    batch_size: int


def method(sizes: Sizes) -> fgl.Method:
    """FedAvg of a SAGE network; a step is a minibatch with sampled neighbours."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    model = fgl.nn.SAGE(sizes.features, sizes.hidden, sizes.classes, num_layers=len(FANOUTS))
    adam, batch_size = partial(torch.optim.Adam, lr=0.01), sizes.batch_size

    def batches(graph: fgl.Graph, context: Any) -> Steps:
        steps = sampled_steps(sampler(graph), context, batch_size=batch_size)
        return Steps(len(steps), lambda number: (widened(steps[number][0]), context))

    return fgl.fedavg(model, train=Training(adam, batches=batches, epochs=1))


def sampler(graph: fgl.Graph) -> NeighbourSampler:
    return NeighbourSampler(graph, FANOUTS)


def widened(batch: fgl.Graph) -> fgl.Graph:
    """The batch with its features in the model's type; the client's stay in half of the bytes."""
    return batch.with_adj(batch.adj, x=batch.x.float())


def score(made: fgl.Method) -> Any:
    """Right answers on some of the client's test nodes, with sampled neighbours."""

    @torch.no_grad()
    def accuracy(params: Any, graph: fgl.Graph) -> dict[str, tuple[int, int]]:
        seeds = graph.test_mask.nonzero().squeeze(1)[:SCORED]  # type: ignore[union-attr]
        generator = torch.Generator().manual_seed(SEED)
        batch = widened(sampler(graph)(seeds, generator=generator))
        logits = fgl.predict(made.model, params, batch)[: len(seeds)]
        hits = hit_rows(logits, batch.y[: len(seeds)])  # type: ignore[index]
        return {"test_accuracy": (int(hits.sum()), len(seeds))}

    return accuracy


def client(folder: Path, sizes: Sizes) -> ClientApp:
    """A client opens its own folder; its features stay in their file."""

    def build(context: Any) -> tuple[fgl.Method, fgl.Graph, int]:
        number = int(context.node_config["partition-id"])
        graph = fgl.data.open_client(folder / f"client-{number}", mapped=True, check=False)
        return method(sizes), graph, number

    return client_app(build, score=score)


def server(folder: Path, sizes: Sizes) -> ServerApp:
    """The server writes a line for each round, and saves the round."""
    app = ServerApp()

    def tell(record: Any, result: Any) -> None:
        line = {name: getattr(record, name) for name in ("round", "seconds", "loss", "metrics")}
        line |= {"participants": record.participants, "dropped": record.dropped}
        line |= {"bytes_down": record.bytes_down, "bytes_up": record.bytes_up}
        line |= {"server_peak_mb": round(process_memory("VmHWM")), "server_pid": os.getpid()}
        with (folder / "rounds.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    @app.main()
    def main(grid: Any, context: Any) -> None:
        fgl.run(
            method(sizes),
            Flower(grid, num_clients=sizes.clients, timeout=3600),
            num_rounds=sizes.rounds,
            seed=SEED,
            participation=sizes.participants / sizes.clients,
            checkpoint=folder / "checkpoint",
            callbacks=[tell],
        )

    return app

"""The server: it has no graph, and asks the clients for their scores."""

from dataclasses import asdict

import task
import torch
from flwr.serverapp import ServerApp

import fgl
from fgl.federation import Flower

app = ServerApp()


def tell(record, result):
    print(f"round {record.round}: {record.metrics}, without {record.dropped}", flush=True)


@app.main()
def main(grid, context):
    config = context.run_config
    result = fgl.run(
        task.method(config),
        Flower(grid, num_clients=config["num-clients"], timeout=config["timeout"]),
        num_rounds=config["rounds"],
        seed=config["seed"],
        checkpoint=config["checkpoint"] or None,
        callbacks=[tell],
    )
    if config["result"]:  # a file of the server's machine
        history = [asdict(record) for record in result.history]
        torch.save({"model": result.outbox[0]["model"], "history": history}, config["result"])

"""The server of a conformance case."""

import time
from pathlib import Path

import torch
from conformance import case
from flwr.serverapp import ServerApp

import fgl
from fgl.federation import Flower

app = ServerApp()


@app.main()
def main(grid, context):
    torch.set_num_threads(1)
    how = context.run_config
    method, task = case(how["method"], how["task"])
    on = Flower(grid, num_clients=how["clients"] or len(task.clients), timeout=how["timeout"])
    options = {"num_rounds": how["rounds"], "seed": how["seed"], "checkpoint": how["checkpoint"]}

    def tell(record, result):
        print(record, flush=True)
        while how["hold"] and Path(how["hold"]).exists():
            time.sleep(0.1)

    fgl.run(method, on, **options, callbacks=[tell])

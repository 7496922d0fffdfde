"""The server of the measurement: it writes a line for each round."""

import json

from flwr.serverapp import ServerApp
from sized import method

import fgl
from fgl.federation import Flower

app = ServerApp()


@app.main()
def main(grid, context):
    how = context.run_config
    on = Flower(
        grid, num_clients=how["clients"], timeout=how["timeout"], per_tensor=how["per-tensor"]
    )

    def tell(record, result):
        told = {**vars(record), "zero_weight": None, "participants": len(record.participants)}
        with open(how["out"], "a") as file:
            file.write(json.dumps(told) + "\n")

    made = method(how["features"], how["hidden"])
    fgl.run(made, on, num_rounds=how["rounds"], callbacks=[tell])

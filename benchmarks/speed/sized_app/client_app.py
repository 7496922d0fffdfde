"""A client of the measurement."""

from sized import graph, method

from fgl.federation import client_app


def build(context):
    how, client = context.run_config, context.node_config["partition-id"]
    return method(how["features"], how["hidden"]), graph(how["features"], client), client


app = client_app(build)

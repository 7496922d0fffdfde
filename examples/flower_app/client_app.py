"""A client: Flower starts it on the client's machine for every message."""

import task

from fgl.federation import client_app


def build(context):
    """The method, this client's graph, and who it is: its SuperNode's config says so."""
    node = context.node_config
    client, folder = node["partition-id"], node.get("graphs", context.run_config["graphs"])
    return task.method(context.run_config), task.graph(folder, client), client


app = client_app(build, score=task.score)

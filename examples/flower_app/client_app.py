"""A client: Flower starts it on its machine."""

import task

from fgl.federation import client_app


def build(context):
    """The method, the client's graph, its number.

    The config of its SuperNode says which.
    """
    node = context.node_config
    run = context.run_config
    client = node["partition-id"]
    folder = node.get("graphs", run["graphs"])
    graph = task.graph(folder, client)
    return task.method(run), graph, client


app = client_app(build, score=task.score)

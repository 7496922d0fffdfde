"""A client: Flower starts it on its machine."""

import task

from fgl.federation import client_app


def build(context):
    """The method, the client's graph, its number.

    The config of its SuperNode says who it is, the run's config which of its graphs is meant.
    """
    node, run = context.node_config, context.run_config
    client = node["partition-id"]
    folder = node.get("graphs", run["graphs"])
    return task.method(run), task.graph(folder, run["dataset"], client), client


app = client_app(build, score=task.score)

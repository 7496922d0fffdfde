"""FedGL: FedAvg with pseudo labels and pseudo edges from fused predictions and embeddings.

    python examples/fedgl.py --dataset cora

FedGL, Information Sciences 2024. Overlapping clients upload, besides the
model, predictions and embeddings of their nodes. The server fuses them,
labels nodes of which it is sure, joins those alike, and sends each its part.
"""

from dataclasses import replace

from fgl import Ragged, layer, predict, pseudo, tasks
from fgl.checks import check_number, check_share, check_weight
from fgl.experiment import Run, cli, takes_options_of
from fgl.federation import after, together
from fgl.nn import observed

PRESETS = {"wiki": {"threshold": 0.1, "alpha": 0.1}}


@layer
def fedgl(
    fedavg,
    num_nodes,
    *,
    alpha=0.2,
    beta=0.1,
    threshold=0.5,
    neighbours=100,
    symmetric=True,
    alike=lambda embeddings, predictions: embeddings,
    fuse=pseudo.fuse_uploads,
):
    """FedAvg with global pseudo labels and a global pseudo graph.

    Args:
        alpha: Weight of the pseudo-label loss; 0 leaves the labels out.
        beta: Weight of the pseudo graph; the paper prints 1.
        threshold: A node whose best score is above it gets a pseudo label.
        neighbours: Neighbours of a node in the pseudo graph; 0 leaves the graph out.
        symmetric: Use (P + P^T) / 2 in place of the pseudo graph P.
    """
    check_weight(alpha=alpha, beta=beta)
    check_share(threshold=threshold)
    check_number("neighbours", neighbours, at_least=0, integer=True)

    def receive(message, state, graph):
        plain, labels, edges = pseudo.unpacked(message, graph)
        params, context = fedavg.receive(plain, state, graph)
        context = {**context, "labels": Ragged(labels)}
        if neighbours:
            wide = pseudo.augmented_operator(graph.adj, edges, beta=beta, symmetric=symmetric)
            context["operator"] = Ragged(wide.as_operator())
        return params, context

    def widened(graph, context):
        return graph.with_adj(context["operator"].values) if neighbours else graph

    def loss(params, graph, context):
        with observed(fedavg.model) as passes:
            total = fedavg.loss(params, widened(graph, context), context)
        labels = context["labels"]
        free = ~graph.train_mask & labels.mask
        return total + alpha * pseudo.label_loss(passes[-1].output, labels.values, free)

    def send(params, context, state, graph):
        message, state = fedavg.send(params, context, state, graph)
        logits = predict(fedavg.model, params, widened(graph, context))
        message |= {"node_id": graph.node_id, "embeddings": logits}
        return {**message, "predictions": logits.softmax(1)}, state

    def with_labels(outbox, new, means, state):
        inbox = means.inbox
        p, h = fuse(inbox.values(), num_nodes)
        labels = pseudo.pseudo_labels(p, threshold=threshold) if alpha else None
        similar = pseudo.pseudo_graph(alike(h, p), s=neighbours) if neighbours else None
        parts = dict(inbox.sent)  # the absent have their last one
        parts |= {k: pseudo.part_of(m["node_id"], labels, similar) for k, m in inbox.items()}
        outbox = {k: {**parts[k], **message} for k, message in outbox.items()}
        return outbox, {**new, **pseudo.nodes_of(inbox, state)}

    accept = pseudo.upload_check(num_nodes, fedavg.model.convs[-1].bias, base=fedavg.accept)
    changed = {"send": send, "accept": accept}
    reads = (*pseudo.ROWS, "num_examples")
    changed["aggregate"] = after(fedavg.aggregate, with_labels, reads=reads)
    rules = replace(fedavg.rules, ragged=pseudo.ROWS)
    return replace(fedavg, receive=receive, loss=loss, rules=rules, **changed)


@takes_options_of(fedgl)
def main(task=tasks.OverlappingNodes(), run=Run(rounds=300, patience=30), **options):
    """FedAvg with global pseudo labels and a global pseudo graph."""
    setting = task.load(run.seed)
    num_nodes = int(setting.whole.node_id.max()) + 1
    method = fedgl(setting.fedavg, num_nodes, **options)
    quality = pseudo.quality_of(setting.clients)
    return run(method, setting, evaluate=together(setting.evaluate(method), quality))


if __name__ == "__main__":
    cli(main, presets=PRESETS)

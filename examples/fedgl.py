"""FedGL: FedAvg + global pseudo labels + a global pseudo graph, fused from overlapping clients.

    python examples/fedgl.py --dataset cora --rounds 300 --json out.json
    python examples/fedgl.py --no-graph            pseudo labels alone; --no-labels: the graph alone
    python examples/fedgl.py --no-graph --no-labels        "Federated"; --local; --centralized
    python examples/fedgl.py --beta 1 --no-symmetric       the pseudo graph as printed: collapses

FedGL, Information Sciences 2024. Clients upload predictions and embeddings of their nodes besides
the model; the server fuses them node by node, and sends each client its part of what it made.
"""

import copy
from dataclasses import replace

import torch
from torch.func import functional_call

import fgl
from fgl import Method, SparseMatrix, aggregate, data, pseudo
from fgl.federation import Broadcast, adopt_model, evaluate, keep_own, recipe
from fgl.losses import cross_entropy, proximal, unit_rows

EDGES = ("row", "col", "weight")


def fedgl(model, train, num_nodes, args):
    """FedGL as a method; without its labels and its graph this is FedAvg weighted by nodes."""
    student = copy.deepcopy(model)  # multiplies with the operator that it is given
    for conv in student.convs:
        conv.normalize = False
    reader = copy.deepcopy(student).eval()
    adopt = adopt_model(model)

    def receive(message, state, graph):
        params, _ = adopt(message, state, graph)
        context = {"model": params, "operator": graph.adj.gcn_norm}
        if args.labels:
            unknown = torch.full((graph.num_nodes,), -1, device=graph.device)
            context["labels"] = message.get("labels", unknown)
        if args.graph:
            none = torch.zeros(0, dtype=torch.int64, device=graph.device)
            empty = (none, none, none.to(graph.x.dtype))
            row, col, weight = (message.get(k, e) for k, e in zip(EDGES, empty, strict=True))
            block = SparseMatrix.from_edge_index(torch.stack([col, row]), graph.num_nodes, weight)
            context["operator"] = pseudo.augmented_operator(
                graph.adj, block, beta=args.beta, symmetric=args.symmetric
            )
        return params, context

    def loss(params, graph, context):
        logits = functional_call(student, params, (graph.x, context["operator"]))
        total = cross_entropy(logits, graph.y, graph.train_mask)
        total = total + args.l2 / 2 * params["convs.0.lin.weight"].square().sum()
        if args.labels:
            known = (context["labels"] >= 0) & ~graph.train_mask & graph.node_mask
            total = total + args.alpha * cross_entropy(
                logits, context["labels"].clamp(min=0), known
            )
        if args.fedprox:
            total = total + args.fedprox * proximal(params, context["model"])
        return total

    @torch.no_grad()
    def send(params, context, state, graph):
        message = {"model": params, "num_nodes": torch.tensor(graph.num_nodes)}
        if args.labels or args.graph:
            logits = functional_call(reader, params, (graph.x, context["operator"]))
            message |= {"node_id": graph.node_id, "embeddings": logits}
            message["predictions"] = logits.softmax(1)
        return message, state

    def accept(message):
        if "predictions" in message:
            pseudo.check_upload(message, num_nodes, model.convs[-1].bias.numel())

    def fuse(inbox, state):
        weight = inbox.stack("num_nodes")
        shared = {"model": aggregate.mean(inbox.each("model"), weight)}
        outbox = dict(Broadcast(shared, inbox.num_clients))
        if not (args.labels or args.graph):
            return outbox, shared
        ids = [message["node_id"] for message in inbox.values()]
        each = {key: [m[key] for m in inbox.values()] for key in ("predictions", "embeddings")}
        scores, h = (pseudo.fuse(each[k], ids, weight, num_nodes, fill=args.fill) for k in each)
        labels = pseudo.pseudo_labels(scores, threshold=args.threshold)
        alike = {"embeddings": h, "cosine": unit_rows(h), "predictions": scores}[args.similarity]
        similar = pseudo.pseudo_graph(alike, s=args.neighbours) if args.graph else None
        last = {key: dict(state.get(key, {})) for key in ("labels", *EDGES)}  # an absent client's
        for client, own in zip(map(str, inbox), ids, strict=True):
            if args.labels:
                last["labels"][client] = labels[own]
            if similar is not None:
                block = pseudo.project(similar, own)
                for key, part in zip(
                    EDGES, (block.pattern.row, block.pattern.col, block.value), strict=True
                ):
                    last[key][client] = part
        parts = {k: {key: p[str(k)] for key, p in last.items() if str(k) in p} for k in outbox}
        outbox = {client: {**shared, **part} for client, part in parts.items()}
        return outbox, {**shared, **{key: kept for key, kept in last.items() if kept}}

    return Method(model, loss, receive, send, fuse, train, accept)


def main(argv=None):
    parser = recipe.arguments("fedgl", __doc__.splitlines()[0], without=("model", "split"))
    add = parser.add_argument
    for part in ("labels", "graph", "symmetric"):
        add(f"--no-{part}", dest=part, action="store_false", help=f"without the pseudo {part}")
    add("--alpha", type=float, default=0.2, help="weight of the pseudo-label loss")
    add("--beta", type=float, default=0.1, help="weight of the pseudo graph; the paper prints 1")
    add("--threshold", type=float, default=0.5, help="a fused score above it makes a label")
    add("--neighbours", type=int, default=100, help="of a node in the pseudo graph")
    add("--similarity", choices=("embeddings", "cosine", "predictions"), default="embeddings")
    add("--fill", choices=pseudo.FILLS, default="renormalised")
    add("--proportions", default="D4", help="D1 to D4, or shares of the nodes as 0.3,0.5")
    add("--overlap", type=float, help="share of nodes that all clients hold")
    add("--per-class", type=int, help="training nodes per class, drawn; default the public split")
    add("--l2", type=float, default=5e-4, help="on the first layer")
    add("--fedprox", type=float, default=0.0, metavar="MU")
    add("--patience", type=int, default=30)
    baseline = parser.add_mutually_exclusive_group()
    baseline.add_argument("--local", action="store_true")
    baseline.add_argument("--centralized", action="store_true")
    parser.set_defaults(
        clients=None, rounds=300, hidden=16, optimizer="adam", lr=0.01, weight_decay=0.0, steps=10
    )
    args = parser.parse_args(argv)
    shares = data.PROPORTIONS.get(args.proportions) or map(float, args.proportions.split(","))
    union, clients = recipe.overlapping_federation(args, shares, args.overlap, args.per_class)
    if args.local or args.centralized:
        args.labels = args.graph = False
    torch.manual_seed(args.seed)
    model = fgl.nn.GCN(
        union.num_features, args.hidden, union.num_classes, dropout=args.dropout, drop_input=True
    )
    model = model.to(args.device)
    method = fedgl(model, recipe.training(args), int(union.node_id.max()) + 1, args)
    method = replace(method, aggregate=keep_own) if args.local else method
    trained = [union] if args.centralized else clients
    if args.clients not in (None, len(clients)):
        parser.error(f"{len(clients)} proportions make as many clients, not {args.clients}")
    args.clients = len(trained)
    scores = evaluate.evaluate_on(model, union), evaluate.evaluate_clients(model, clients)
    score = evaluate.together(*scores, evaluate.evaluate_pseudo(clients))
    return recipe.run_recipe(args, method, union, trained, evaluate=score, patience=args.patience)


if __name__ == "__main__":
    main()

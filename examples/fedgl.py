"""FedGL: FedAvg + global pseudo labels + a global pseudo graph, fused from overlapping clients.

    python examples/fedgl.py --dataset cora --rounds 300 --json out.json
    python examples/fedgl.py --no-graph            pseudo labels alone; --no-labels: the graph alone
    python examples/fedgl.py --no-graph --no-labels        "Federated"; --local; --centralized
    python examples/fedgl.py --literal      the pseudo graph as printed: collapses

FedGL, Information Sciences 2024. Clients upload predictions and embeddings of their nodes besides
the model; the server fuses them node by node, and sends each client its part of what it made.
"""

import copy
from dataclasses import replace

import torch
from torch.func import functional_call

import fgl
from fgl import Method, aggregate, data, pseudo
from fgl.federation import Broadcast, Ragged, adopt_model, evaluate, keep_own, recipe
from fgl.losses import cross_entropy, proximal, unit_rows


def fedgl(model, train, num_nodes, args):
    """FedGL as a method; without its labels and its graph this is FedAvg weighted by nodes."""
    student = copy.deepcopy(model)  # multiplies with the operator that it is given
    for conv in student.convs:
        conv.normalize = False
    reader = copy.deepcopy(student).eval()
    adopt = adopt_model(model)

    def receive(message, state, graph):
        params, _ = adopt(message, state, graph)
        context = {"model": params, "operator": Ragged(graph.adj.gcn_norm)}
        if args.labels:
            unknown = torch.full((graph.num_nodes,), -1, device=graph.device)
            context["labels"] = Ragged(message.get("labels", unknown))
        if args.graph:
            block = pseudo.from_edge_tensors(message, like=graph.adj)
            context["operator"] = Ragged(
                pseudo.augmented_operator(
                    graph.adj, block, beta=args.beta, symmetric=args.symmetric
                )
            )
        return params, context

    def loss(params, graph, context):
        logits = functional_call(student, params, (graph.x, context["operator"].values))
        total = cross_entropy(logits, graph.y, graph.train_mask)
        total = total + args.l2 / 2 * params["convs.0.lin.weight"].square().sum()
        if args.labels:
            labels = context["labels"]
            known = (labels.values >= 0) & ~graph.train_mask & labels.mask
            total = total + args.alpha * cross_entropy(logits, labels.values.clamp(min=0), known)
        if args.fedprox:
            total = total + args.fedprox * proximal(params, context["model"])
        return total

    @torch.no_grad()
    def send(params, context, state, graph):
        message = {"model": params, "num_nodes": torch.tensor(graph.num_nodes)}
        if args.labels or args.graph:
            logits = functional_call(reader, params, (graph.x, context["operator"].values))
            message |= {"node_id": graph.node_id, "embeddings": logits}
            message["predictions"] = logits.softmax(1)
        return message, state

    def accept(message):
        if "predictions" in message:
            pseudo.check_upload(message, num_nodes, model.convs[-1].bias.numel())

    def combine(inbox, state):
        weight = inbox.stack("num_nodes")
        shared = {"model": aggregate.mean(inbox.each("model"), weight)}
        if not (args.labels or args.graph):
            return Broadcast(shared, inbox.num_clients), shared
        ids = [message["node_id"] for message in inbox.values()]
        first, after = (args.threshold, 0) if args.threshold_first else (0, args.threshold)
        p, h = ([m[key] for m in inbox.values()] for key in ("predictions", "embeddings"))
        scores = pseudo.fuse(p, ids, weight, num_nodes, fill=args.fill, threshold=first)
        h = pseudo.fuse(h, ids, weight, num_nodes, fill=args.fill)
        labels = pseudo.pseudo_labels(scores, threshold=after)
        alike = {"embeddings": h, "cosine": unit_rows(h), "predictions": scores}[args.similarity]
        similar = pseudo.pseudo_graph(alike, s=args.neighbours) if args.graph else None
        last = {key: dict(kept) for key, kept in state.items() if key != "model"}  # of the absent
        for client, own in zip(map(str, inbox), ids, strict=True):
            part = {"labels": labels[own]} if args.labels else {}
            if args.graph:
                part |= pseudo.edge_tensors(pseudo.project(similar, own))
            for key, value in part.items():
                last.setdefault(key, {})[client] = value
        outbox = {client: dict(shared) for client in range(inbox.num_clients)}
        for key, kept in last.items():
            for client, value in kept.items():
                outbox[int(client)][key] = value
        return outbox, {**shared, **last}

    return Method(model, loss, receive, send, combine, train, accept)


def main(argv=None):
    parser = recipe.arguments("fedgl", __doc__.splitlines()[0], without=("model", "split"))
    add = parser.add_argument
    parts = {"labels": "pseudo labels", "graph": "pseudo graph", "symmetric": "(P + P^T) / 2"}
    for part, what in parts.items():
        add(f"--no-{part}", dest=part, action="store_false", help=f"without {what}")
    weight, count = recipe.number(0), recipe.integer(1)
    add("--alpha", type=weight, default=0.2, help="weight of the pseudo-label loss")
    add("--beta", type=weight, default=0.1, help="weight of the pseudo graph; the paper prints 1")
    add("--literal", action="store_true", help="the paper's graph: beta 1, not symmetric")
    add("--threshold", type=recipe.number(0, 1), default=0.5, help="a score above it is a label")
    add("--threshold-first", action="store_true", help="before the fusion, as in public code")
    add("--neighbours", type=count, default=100, help="of a node in the pseudo graph")
    similar = ("embeddings", "cosine", "predictions")
    add("--similarity", choices=similar, default="embeddings", help="of what, in the pseudo graph")
    add("--fill", choices=pseudo.FILLS, default="renormalised", help="of clients without the node")
    add("--proportions", default="D4", help="D1 to D4, or shares of the nodes as 0.3,0.5")
    add("--overlap", type=recipe.number(0, 1), help="share of nodes that all clients hold")
    add("--per-class", type=count, help="training nodes a class, drawn; default the public ones")
    add("--l2", type=weight, default=5e-4, help="on the first layer")
    add("--fedprox", type=weight, default=0.0, metavar="MU", help="weight of the proximal term")
    add("--patience", type=count, default=30, help="rounds without a better validation")
    baseline = parser.add_mutually_exclusive_group()
    baseline.add_argument("--local", action="store_true", help="every client trains alone")
    baseline.add_argument("--centralized", action="store_true", help="one client has all nodes")
    parser.set_defaults(
        clients=None, rounds=300, hidden=16, optimizer="adam", lr=0.01, weight_decay=0.0, steps=10
    )
    args = recipe.parsed(parser, argv, {"literal": ["beta"], "graph": ["neighbours", "similarity"]})
    if args.literal:
        args.beta, args.symmetric = 1.0, False
    shares = data.PROPORTIONS.get(args.proportions) or map(float, args.proportions.split(","))
    union, clients = recipe.overlapping_federation(args, shares, args.overlap, args.per_class)
    if args.local or args.centralized:
        args.labels = args.graph = False
    torch.manual_seed(args.seed)
    sizes = union.num_features, args.hidden, union.num_classes
    model = fgl.nn.GCN(*sizes, dropout=args.dropout, drop_input=True).to(args.device)
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

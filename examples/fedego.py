"""FedEgo: a shared reduction layer, mashed ego-graphs that train a global head, adaptive mixing.

    python examples/fedego.py --dataset cora --rounds 200 --json out.json
    python examples/fedego.py --no-mixup           or --no-ego, --no-rl, --no-pl, --linear
    python examples/fedego.py --fixed-lambda 0.5   or --gamma 0.25: how much of the global head
    python examples/fedego.py --baseline fedavg    or local, fedprox, dfedgnn

Zhang et al., FedEgo, arXiv 2208.13685. Clients overlap and have models of their own from the start;
they are scored after their local training, on their own test nodes and on a graph held out.
"""

from dataclasses import replace
from functools import cache, partial

import torch
from torch.func import functional_call

from fgl import Method, aggregate, data, ego
from fgl.federation import Broadcast, personal, recipe, trees
from fgl.losses import distance_per_entry, soft_cross_entropy
from fgl.nn import EgoSAGE
from fgl.personalize import interpolate, label_distribution, mixing_coefficient, split_layers

WITHOUT = {"mixup": "raw ego-graphs", "ego": "average heads", "rl": "no average", "pl": "lambda 1"}
MIXING, UPLOAD = ("gamma", "fixed_lambda", "own_labels"), ("mixup", "noise", "global_labels")
IDLE = {"baseline": (*WITHOUT, *MIXING, *UPLOAD), "pl": MIXING, "ego": UPLOAD}


def fedego(model, train, args):
    """FedEgo, or a baseline; and what is scored: what a client makes of the message sent next."""
    federated, prox = args.baseline is None, args.baseline == "fedprox"
    sampler = cache(partial(ego.EgoSampler, fanouts=model.fanouts))

    def head_of(params):
        return split_layers(params, ["reduction"])[1]

    def labels_of(graph):
        mask = graph.train_mask if args.own_labels == "train" else None
        return label_distribution(graph.y, model.head.out_features, mask)

    def mixed(own, message, graph):
        if "head" not in message:
            return own
        weight = 1.0 if not args.pl else args.fixed_lambda or 0.0
        if args.pl and args.fixed_lambda is None:
            weight = mixing_coefficient(labels_of(graph), message["distribution"], gamma=args.gamma)
        return {**own, **interpolate(head_of(own), message["head"], weight)}

    def adopted(own, message, graph):
        first = "num_clients" not in message  # nothing is global yet
        return own if first else mixed({**own, **message.get("model", {})}, message, graph)

    def receive(message, state, graph):
        trees.check_batch_size(args.batch_size, graph)
        params = adopted(personal.own_model(model, state), message, graph)
        mu = state.get("mu", torch.tensor(1.0, device=graph.device))
        return params, {"received": params, "mu": mu} if prox else {}

    def batches(graph, context):
        how = {"epochs": args.steps, "batch_size": args.batch_size}
        for seen, step in trees.ego_steps(sampler(graph), graph, **how):
            yield seen, {**context, **step}

    def loss(params, graph, context):
        x, drawn, labels = (context[key] for key in ("x", "trees", "labels"))
        logits = functional_call(model, params, (x.values,), {"trees": drawn.values})
        total = soft_cross_entropy(logits, labels.values, labels.mask)
        if prox:
            total = total + context["mu"] * distance_per_entry(params, context["received"])
        return total

    @torch.no_grad()
    def send(params, context, state, graph):
        state = {"model": params}
        if prox:
            logits = functional_call(model, params, (graph.x, graph.adj))
            fit = soft_cross_entropy(logits, trees.one_hot(graph), graph.train_mask)
            penalty = distance_per_entry(params, context["received"])
            state["mu"] = personal.adapted(context["mu"], fit, penalty)
        if not federated:
            return {} if args.baseline == "local" else {"model": params}, state
        message = {"model": split_layers(params, ["reduction"])[0]} if args.rl else {}
        if not args.ego:
            return message | {"head": head_of(params), "distribution": labels_of(graph)}, state
        r = functional_call(model, params, (graph.x,), {"reduce": True})
        how = {"batch_size": args.batch_size, "mixup": args.mixup, "noise": args.noise}
        return message | trees.upload_trees(sampler(graph), graph, r, **how), state

    def accept(message):
        if federated:
            trees.check_upload(message, model, ego=args.ego)

    def fuse(inbox, state):
        if args.baseline in ("local", "dfedgnn"):
            return personal.ring_average(inbox) if args.baseline == "dfedgnn" else {}, state
        sent, kept = {"num_clients": torch.tensor(len(inbox))}, {}
        if args.rl or not federated:
            sent["model"] = aggregate.mean(inbox.each("model"), torch.ones(len(inbox)))
        if federated and args.ego:
            x, y = (torch.cat([m[key] for m in inbox.values()]) for key in ("embeddings", "labels"))
            how = {"epochs": args.steps, "batch_size": args.batch_size}
            how |= {"optimizer": train.optimizer, "state": state.get("optimizer", {})}
            old = state.get("head") or head_of(state["model"])
            sent["head"], kept["optimizer"] = trees.train_on_trees(model, old, x, y[:, 0], **how)
            sent["distribution"] = (y if args.global_labels == "all" else y[:, :1]).mean((0, 1))
        elif federated:
            sent["head"] = aggregate.mean(inbox.each("head"), torch.ones(len(inbox)))
            sent["distribution"] = inbox.stack("distribution").mean(0)
        return Broadcast(sent, inbox.num_clients), {**sent, **kept}

    train = replace(train, batches=batches, keep_optimizer=True)
    scored = adopted if args.eval_after_average else mixed
    return Method(model, loss, receive, send, fuse, train, accept), scored


def main(argv=None):
    parser = recipe.arguments("fedego", __doc__.splitlines()[0], without=("model", "split"))
    add, share = parser.add_argument, recipe.number(0, 1)
    add("--baseline", choices=("local", "fedavg", "fedprox", "dfedgnn"), help="their dropout is 0")
    for part, so in WITHOUT.items():
        add(f"--no-{part}", dest=part, action="store_false", help=so)
    add("--linear", action="store_true", help="no ReLU between the SAGE layers")
    add("--gamma", type=recipe.number(1e-9), default=0.5, help="lambda = (EMD / 2)^gamma")
    add("--fixed-lambda", type=share, help="of the global head, for all clients")
    add("--own-labels", choices=("train", "all"), default="train", help="nodes in a client's P")
    add("--global-labels", choices=("all", "centres"), default="all", help="positions in P_g")
    add("--eval-after-average", action="store_true", help="score with the averaged layers too")
    add("--noise", type=recipe.number(0), default=0.0, help="standard deviation, on embeddings")
    add("--fanouts", type=int, nargs="+", default=[6, 6], help="neighbours drawn at each depth")
    add("--batch-size", type=int, default=32, help="centres per step and per mashed ego-graph")
    add("--share", type=share, default=0.5, help="of the nodes in a client")
    add("--major-rate", type=share, default=0.8, help="of a client's nodes, of major labels")
    add("--num-test", type=int, default=200, help="test nodes of a client")
    parser.set_defaults(hidden=512, optimizer="adam", lr=3e-4, weight_decay=0.0, steps=5)
    parser.set_defaults(dropout=None)
    args = recipe.parsed(parser, argv, IDLE)
    if args.dropout is None:  # as in the authors' code: of FedEgo alone
        args.dropout = 0.0 if args.baseline else 0.5
    graph = data.load(args.dataset).replace(backend=args.sparse).to(args.device)
    where = {name: getattr(args, name) for name in ("share", "major_rate", "num_test", "seed")}
    test, clients = data.major_label_partition(graph, args.clients, **where)
    torch.manual_seed(args.seed)
    how = {"fanouts": args.fanouts, "dropout": args.dropout, "linear": args.linear}
    model = EgoSAGE(graph.num_features, args.hidden, graph.num_classes, **how).to(args.device)
    method, scored = fedego(model, recipe.training(args), args)
    score = personal.evaluate_personal(model, clients, test, scored)
    return recipe.run_recipe(args, method, test, clients, evaluate=score, select="val_f1")


if __name__ == "__main__":
    main()

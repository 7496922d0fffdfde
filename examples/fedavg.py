"""FedAvg of node classifiers, and the baselines next to it.

python examples/fedavg.py --dataset cora --clients 5 --rounds 200 --json out.json
python examples/fedavg.py --local          every client trains alone
python examples/fedavg.py --centralized    one client holds the whole graph
python examples/fedavg.py --fedprox 0.1    stay near the received model
python examples/fedavg.py --fedopt sgd --server-lr 0.5
"""

from dataclasses import replace

from fgl import Method, aggregate
from fgl.federation import Broadcast, average, keep_own, recipe
from fgl.losses import proximal


def local(method):
    """No communication: every client gets its own model back."""
    return replace(method, aggregate=keep_own)


def fedprox(method, *, mu):
    """FedProx: mu / 2 times the squared distance to the received model joins the loss."""

    def loss(params, graph, context):
        return method.loss(params, graph, context) + mu * proximal(params, context["model"])

    return replace(method, loss=loss)


def fedopt(method, *, rule, lr):
    """FedOpt: the server takes an optimiser's step towards the mean (sgd: damped FedAvg)."""
    momentum = 0.0 if rule == "sgd" else 0.9

    def optimize(inbox, state):
        outbox, _ = average(inbox, state)
        if not outbox:
            return outbox, state
        target = next(iter(outbox.values()))["model"]
        moments = {key: state[key] for key in ("m", "v") if key in state}
        model, moments = aggregate.server_step(
            state["model"], target, moments, rule=rule, lr=lr, beta1=momentum
        )
        return Broadcast({"model": model}, inbox.num_clients), {"model": model, **moments}

    return replace(method, aggregate=optimize)


def build(args, graph):
    method = Method(recipe.build_model(args, graph), train=recipe.training(args))
    if args.local:
        return local(method)
    if args.fedprox is not None:
        return fedprox(method, mu=args.fedprox)
    if args.fedopt is not None:
        return fedopt(method, rule=args.fedopt, lr=args.server_lr)
    return method


def main(argv=None):
    parser = recipe.arguments("fedavg", __doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--local", action="store_true", help="every client trains alone")
    which.add_argument("--centralized", action="store_true", help="one client has all nodes")
    which.add_argument(
        "--fedprox", type=recipe.number(0), metavar="MU", help="proximal term's weight"
    )
    which.add_argument("--fedopt", choices=("sgd", "adam", "yogi", "adagrad"), help="server step")
    parser.add_argument("--server-lr", type=recipe.number(0), default=0.5, help="of --fedopt")
    alone = dict.fromkeys(("local", "centralized", "fedprox"), ("server_lr",))
    args = recipe.parsed(parser, argv, alone)
    if args.centralized:
        args.clients = 1
    graph, clients = recipe.federation(args)
    return recipe.run_recipe(args, build(args, graph), graph, clients)


if __name__ == "__main__":
    main()

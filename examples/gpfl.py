"""GPFL: graph classification; the server learns who should learn from whom, and mixes updates.

    python examples/gpfl.py --dataset PROTEINS --clients 25 --alpha 5 --fold 0 --json out.json
    python examples/gpfl.py --rho 0.95          as the paper's Equation 4; default the code's 0.05
    python examples/gpfl.py --local             self-train; also --fedavg, --fedprox MU
    python examples/gpfl.py --uniform           everybody learns from everybody, same rho
    python examples/gpfl.py --no-learn --start random     the ablations

Graph Personalized Federated Learning. Every client keeps a model of its own, and its optimiser;
scores are those of the mixed model on the client's own test fold.
"""

import copy
from functools import partial

import torch
from torch.func import functional_call

import fgl
from fgl import Graph, Method, Training, aggregate, client_network, data
from fgl.federation import average, evaluate_graphs, graph_minibatches, keep_own, recipe, supervised
from fgl.losses import proximal
from fgl.properties import graph_properties

LEARNED = ("beta", "start", "learn", "standardize", "replicate")
IDLE = {name: ("rho", *LEARNED) for name in ("local", "fedavg", "fedprox")} | {"uniform": LEARNED}


def gpfl(model, train, probes, args):
    """GPFL as a method; `probes` are the random graphs that all models are asked about."""
    reader = copy.deepcopy(model).eval()
    plain = args.local or args.fedavg or args.fedprox or args.uniform

    def receive(message, state, graph):
        return message["model"], {"model": message["model"]} if args.fedprox else {}

    def loss(params, graph, context):
        total = supervised(model)(params, graph, context)
        return total + args.fedprox * proximal(params, context["model"]) if args.fedprox else total

    @torch.no_grad()
    def send(params, context, state, graph):
        if not plain and "properties" not in state:
            own = graph_properties(graph.edge_index, graph.batch, graph.num_graphs)
            own = own if graph.train_mask is None else own[graph.train_mask]
            state = {**state, "properties": own.mean(0)}
        message = {"model": params, "num_examples": torch.tensor(graph.num_train)}
        if not plain:
            said = functional_call(reader, params, probes.inputs).log_softmax(1)
            message |= {"answers": said, "properties": state["properties"]}
        return message, state

    def first_network(properties, alike):
        if args.start == "random":
            return client_network.normalize_rows(torch.rand_like(alike))
        kept = client_network.select_properties(properties, alike, standardize=args.standardize)
        similar = client_network.property_network(properties[:, kept], standardize=args.standardize)
        return client_network.normalize_rows(similar)

    def learned(network, models):
        flat = torch.cat([value.flatten(1) for value in models.values()], dim=1)
        z = client_network.reconstruct(network, client_network.pooled_features(flat))
        return client_network.discretise(z)

    @torch.no_grad()
    def mix(inbox, state):
        models, size = inbox.stack("model"), inbox.num_clients
        who = torch.tensor(list(inbox), device=probes.device)
        old = state.get("models") or {  # every client's model before its training
            name: value.expand(size, *value.shape) for name, value in state["model"].items()
        }
        network = state.get("network", torch.full((size, size), -1.0, device=probes.device))
        own = network[who][:, who]
        unmet = own < 0  # pairs that took part together for the first time
        if not args.uniform:
            said = client_network.functional_embedding(inbox.stack("answers"))
            alike = client_network.similarity(said)
        if args.uniform:
            own = torch.full_like(own, 1 / len(who))
        elif unmet.any():
            own = torch.where(unmet, first_network(inbox.stack("properties"), alike), own)
        if args.learn and not args.uniform and not unmet.all():
            own = client_network.running_network(own, alike, beta=args.beta)
        matrix = learned(own, models) if args.learn and not args.uniform else own
        if len(who) < size:  # shares of those who are there
            matrix = client_network.normalize_rows(matrix)
        matrix = matrix + torch.diag((matrix.sum(1) == 0).to(matrix))  # who is like nobody
        network = network.index_put((who[:, None], who), own)
        updates = {name: models[name] - old[name][who] for name in models}
        mixed = aggregate.mix(updates, matrix, self_weight=args.rho)
        new = {name: models[name] + (mixed[name] - updates[name]) for name in models}
        each = {name: value.unbind() for name, value in new.items()}
        outbox = {k: {"model": {n: v[i] for n, v in each.items()}} for i, k in enumerate(inbox)}
        last = {name: old[name].index_copy(0, who, new[name]) for name in new}
        return outbox, {"models": last, "network": network, "matrix": matrix}

    server = keep_own if args.local else average if args.fedavg or args.fedprox else mix
    return Method(model, loss, receive, send, server, train)


def federation(args):
    """All graphs, the clients' training and test graphs; ``--flip`` reverses classes of some."""
    graph = Graph.join(*data.load_graphs(args.dataset, attributes=False)).to(args.device)
    parts = data.dirichlet_partition(graph.y, args.clients, alpha=args.alpha, seed=args.seed)
    folds = data.fold_clients(graph, parts, fold=args.fold, num_folds=args.folds, seed=args.seed)
    for clients in folds:
        for k in range(round(args.flip * args.clients)):
            clients[k] = clients[k].replace(y=graph.num_classes - 1 - clients[k].y)
    return graph, *folds


def main(argv=None):
    without = ("model", "split", "momentum", "optimizer", "sparse")
    parser = recipe.arguments("gpfl", __doc__.splitlines()[0], without=without)
    add = parser.add_argument
    add("--alpha", type=float, default=5.0, help="small: clients of one class; large: alike")
    add("--fold", type=int, default=0, help="the test fold")
    add("--folds", type=int, default=5, help="how many")
    add("--batch-size", type=int, default=128, help="graphs per step; --steps counts epochs")
    add("--rho", type=recipe.number(0, 1), default=0.05, help="weight of a client's own update")
    add("--beta", type=recipe.number(0, 1), default=0.95, help="how much of the network stays")
    add("--start", choices=("property", "random"), default="property", help="the first network")
    add("--no-learn", dest="learn", action="store_false", help="keep the first network")
    add("--standardize", action="store_true", help="properties to unit variance")
    add("--replicate", action="store_true", help="one probe graph, 20 times, as the public code")
    add("--flip", type=recipe.number(0, 1), default=0.0, help="share of clients, classes reversed")
    which = parser.add_mutually_exclusive_group()
    for name in ("local", "fedavg", "uniform"):
        which.add_argument(f"--{name}", action="store_true")
    which.add_argument("--fedprox", type=recipe.number(0), metavar="MU", help="0 is FedAvg")
    parser.set_defaults(clients=25, hidden=64, lr=1e-3, steps=1, clients_at_once=8)
    args = recipe.parsed(parser, argv, IDLE)
    args.fedavg |= args.fedprox == 0
    graph, clients, tests = federation(args)
    torch.manual_seed(args.seed)
    model = fgl.nn.GIN(graph.num_features, args.hidden, graph.num_classes, dropout=args.dropout)
    adam = partial(torch.optim.Adam, lr=args.lr, weight_decay=args.weight_decay)
    draw = partial(graph_minibatches, batch_size=args.batch_size, num_epochs=args.steps)
    train = Training(adam, batches=draw, keep_optimizer=True)
    how = {"generator": torch.Generator().manual_seed(args.seed), "replicate": args.replicate}
    x, edge_index, batch = client_network.probe_graphs(num_features=graph.num_features, **how)
    probes = Graph(x, edge_index, batch=batch).to(args.device)
    method = gpfl(model.to(args.device), train, probes, args)
    score = evaluate_graphs(model, tests, clients)
    return recipe.run_recipe(args, method, graph, clients, evaluate=score)


if __name__ == "__main__":
    main()

"""FedVGAE: FedAvg of a variational graph encoder + model contrast + adaptive local aggregation.

    python examples/fedvgae.py --task link --dataset cora --json out.json
    python examples/fedvgae.py --task node --contrast 0      w/o contrast
    python examples/fedvgae.py --max-adjust 0                w/o fine-tuning; --share all: of all
    python examples/fedvgae.py --method local                or fedavg, fedprox, moon, fedper

Each client is scored with its own model on its own test set, after its local training and (names
that end in ``_before``) before it. IEEE Transactions on Big Data 2024.
"""

import copy
import math
from dataclasses import replace

import torch
from torch.func import functional_call

from fgl import Method, data, federation, losses, nn
from fgl.federation import Ragged, recipe
from fgl.personalize import adaptive_aggregation, part

ENCODER = ("conv1", "conv_mu", "conv_logstd")
PLAIN = {"contrast": 0.0, "max_adjust": 0, "fedprox": 0.0, "share": "all"}
METHODS = {"fedvgae": PLAIN | {"contrast": 0.8, "max_adjust": 1, "share": "encoder"}}
METHODS |= {"local": PLAIN, "fedavg": PLAIN, "fedprox": PLAIN | {"fedprox": 0.01}}
METHODS |= {"moon": PLAIN | {"contrast": 1.0}, "fedper": PLAIN | {"share": "encoder"}}
METRIC = {"link": "val_auc", "node": "val_accuracy"}
WEAK, STRONG = {"dropout": 0.0, "weight_decay": 0.0}, {"dropout": 0.5, "weight_decay": 5e-4}


def fedvgae(model, train, validate, edges, args):
    """FedVGAE: `validate` scores (params, graph); `edges`: of each graph, None to classify."""
    frozen = copy.deepcopy(model).eval()
    initial = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    travels = ENCODER if args.share == "encoder" else ()
    metric, latent = METRIC[args.task], model.conv_mu.bias.numel()

    @torch.no_grad()
    def embed(params, graph):
        return functional_call(frozen, params, (graph.x, graph.adj), {"return_embedding": True})[1]

    def receive(message, state, graph):
        own, received = state.get("model", initial), part(message["model"], *travels)
        start, reached, count = received, math.nan, 0
        if args.max_adjust:
            start, reached, count = adaptive_aggregation(
                received,
                part(own, *travels),
                lambda chosen: validate({**own, **chosen}, graph).get(metric, math.nan),
                float(state.get("validation", math.nan)),
                **{name: vars(args)[name] for name in ("phi", "delta", "max_adjust")},
                strict=args.delta > 0,  # with 0: Algorithm 1 as printed
            )
        context = {"received": received, "adopted": {**own, **start}}
        context["validation"] = torch.tensor(reached, dtype=torch.float64)
        context["adjusted"] = torch.tensor(count > 0)
        if args.contrast:
            near = embed({**own, **received}, graph)
            far = state.get("queue", near.new_zeros(len(near), args.queue, latent))
            context["near"], context["far"] = Ragged(near), Ragged(far)
            context["taken"] = torch.arange(args.queue, device=near.device) < state.get("rounds", 0)
        return context["adopted"], context

    def batches(graph, context):
        kept = {k: v for k, v in context.items() if k in ("received", "near", "far", "taken")}
        if edges is not None:
            own, n = edges[graph], graph.num_nodes
            kept["edges"] = Ragged(own.t())
            count = own.shape[1] if own.shape[1] < n * (n - 1) // 2 else 0  # all joined: no pair
        for _ in range(train.num_steps):
            fresh = {"noise": Ragged(torch.randn(graph.num_nodes, latent, device=graph.device))}
            if edges is not None:
                negatives = data.negative_edges(own, n, count, replacement=True).t()
                fresh["negatives"] = Ragged(negatives)
            yield graph, kept | fresh

    def loss(params, graph, context):
        options = {"noise": context["noise"].values, "return_embedding": True}
        out, mu, log_sigma = functional_call(model, params, (graph.x, graph.adj), options)
        nodes, n = graph.node_mask, graph.node_mask.sum().clamp(min=1)
        total = args.kl / n * losses.kl_divergence(mu, log_sigma, mask=nodes)
        if edges is None:
            total = total + losses.cross_entropy(out, graph.y, graph.train_mask)
        else:
            there, absent = context["edges"], context["negatives"]
            edge, none = there.values.mT, absent.values.mT
            told = absent.mask & (none[0] != none[1])
            masks = {"mask": there.mask, "negative_mask": told, "node_mask": nodes}
            total = total + losses.reconstruction_loss(out, edge, none, kind=args.recon, **masks)
        if args.contrast:
            queue = {"previous": context["far"].values.transpose(0, 1), "queue_mask": context["taken"]}
            queue |= {"temperature": args.tau, "mask": nodes}
            total = total + args.contrast * losses.model_contrast(mu, context["near"].values, **queue)
        if args.fedprox:
            distance = losses.proximal(part(params, *travels), context["received"])
            total = total + args.fedprox * distance
        return total

    def send(params, context, state, graph):
        kept = {k: context[k] for k in ("adopted", "validation")} | {"model": params}
        kept["rounds"] = state.get("rounds", 0) + torch.tensor(1)
        kept["adjusted"] = state.get("adjusted", 0) + context["adjusted"].long()
        if args.contrast:
            queue = torch.cat([embed(params, graph)[:, None], context["far"].values], 1)
            kept["queue"] = queue[:, : args.queue].clone()
        upload = {"model": part(params, *travels), "num_examples": torch.tensor(graph.num_nodes)}
        return upload, kept

    return Method(model, loss, receive, send, train=replace(train, batches=batches))


def main(argv=None):
    parser = recipe.arguments("fedvgae", __doc__.splitlines()[0], without=("model", "split"))
    add, weight, count = parser.add_argument, recipe.number(0), recipe.integer(1)
    add("--task", choices=tuple(METRIC), default="link", help="predict links, or classes of nodes")
    add("--method", choices=tuple(METHODS), default="fedvgae", help="sets what is not given")
    add("--contrast", type=weight, metavar="LAMBDA", help="weight of the model contrast")
    add("--max-adjust", type=recipe.integer(0), help="mixes of one's own encoder in a round")
    add("--fedprox", type=weight, metavar="MU", help="weight of the proximal term")
    add("--share", choices=("encoder", "all"), help="what travels")
    add("--phi", type=recipe.number(0, 1), default=0.5, help="share of one's own in that mix")
    add("--delta", type=weight, default=0.01, help="drop of the validation that triggers it")
    add("--tau", type=recipe.number(1e-9), default=0.5, help="temperature of the contrast")
    add("--queue", type=count, default=1, help="earlier models in the contrast")
    add("--kl", type=weight, default=1.0, help="weight of the divergence / num_nodes")
    add("--recon", choices=("sampled", "dense", "dense_weighted"), default="sampled", help="pairs")
    add("--latent", type=count, default=32, help="dimensions of z")
    add("--features", choices=("raw", "normalized", "degree"), default="raw", help="of the nodes")
    add("--partition", choices=("louvain", "random"), default="louvain", help="into clients")
    add("--patience", type=recipe.integer(0), default=20, help="rounds without a better; 0: all")
    parser.set_defaults(clients=10, rounds=100, hidden=64, optimizer="adam", lr=0.01, steps=5)
    parser.set_defaults(dropout=None, weight_decay=None)
    args = parser.parse_args(argv)
    preset = METHODS[args.method] | (STRONG if args.task == "node" else WEAK)
    vars(args).update({k: v for k, v in preset.items() if vars(args)[k] is None})
    clients, splits = federation.own_clients(args)
    edges = splits and {own.graph: own.edges(both=args.recon != "sampled") for own in splits}
    torch.manual_seed(args.seed)
    sizes, classes = (clients[0].num_features, args.hidden, args.latent), clients[0].num_classes
    head = {"num_classes": classes if args.task == "node" else None, "dropout": args.dropout}
    model = nn.VGAE(*sizes, **head).to(args.device)
    validate = federation.own_scores(model, splits, test=False)
    method = fedvgae(model, recipe.training(args), validate, edges, args)
    if args.method == "local":
        method = replace(method, aggregate=federation.keep_own)
    score = federation.evaluate_own(federation.own_scores(model, splits), model, clients)
    options = {"evaluate": federation.together(score, federation.trigger_rate)}
    options |= {"patience": args.patience, "select": METRIC[args.task]}
    return recipe.run_recipe(args, method, clients[0], clients, **options)


if __name__ == "__main__":
    main()

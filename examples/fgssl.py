"""FGSSL: FedAvg + node-semantic contrast + structure distillation from the received model.

    python examples/fgssl.py --dataset cora --clients 5 --rounds 200 --json out.json
    python examples/fgssl.py --fnsc-only       the contrast alone
    python examples/fgssl.py --fgsd-only       the distillation alone
    python examples/fgssl.py --local-view weak --global-view strong

Huang et al., IJCAI 2023. Against FedAvg only the loss differs:
``L = CE + lambda_c * L_FNSC + lambda_d * L_FGSD``, the received model (frozen) on a weakly
augmented view being the teacher of the local model on a strongly augmented one.
"""

import copy

import torch
from torch.func import functional_call

from fgl import Method, augment
from fgl.federation import recipe, supervised
from fgl.losses import node_contrast, structure_distillation

VIEWS = {"weak": augment.weak, "strong": augment.strong}
IDLE = {"fgsd_only": ("tau", "keys", "denominator", "direction"), "fnsc_only": ("omega",)}


def fgssl(
    model,
    train,
    *,
    lambda_c=1.5,
    lambda_d=25.0,
    tau=0.1,
    omega=5.0,
    local_view="strong",
    global_view="weak",
    keys="global",
    denominator="negatives",
    direction="anchor",
):
    """FGSSL as a method; a weight of 0 leaves its term out. Flags have their own defaults."""
    teacher = copy.deepcopy(model).eval()  # the architecture in eval mode; weights come in context
    cross_entropy = supervised(model)

    def embed(model, params, view, graph):
        x, adj = VIEWS[view](graph.x, graph.adj)
        return functional_call(model, params, (x, adj), {"return_embedding": True})

    def loss(params, graph, context):
        total = cross_entropy(params, graph, context)
        with torch.no_grad():
            z_global, h_global = embed(teacher, context["model"], global_view, graph)
        z_local, h_local = embed(model, params, local_view, graph)
        if lambda_c:
            if keys == "local":
                _, h_global = embed(model, params, global_view, graph)
            total = total + lambda_c * node_contrast(
                h_local,
                h_global,
                graph.y,
                mask=graph.train_mask,
                temperature=tau,
                denominator=denominator,
                direction=direction,
            )
        if lambda_d:
            total = total + lambda_d * structure_distillation(
                z_local, z_global, graph.adj, temperature=omega
            )
        return total

    return Method(model, loss=loss, train=train)


def build(args, graph):
    return fgssl(
        recipe.build_model(args, graph),
        recipe.training(args),
        lambda_c=0.0 if args.fgsd_only else args.lambda_c,
        lambda_d=0.0 if args.fnsc_only else args.lambda_d,
        tau=args.tau,
        omega=args.omega,
        local_view=args.local_view,
        global_view=args.global_view,
        keys=args.keys,
        denominator=args.denominator,
        direction=args.direction,
    )


def main(argv=None):
    parser = recipe.arguments("fgssl", __doc__.splitlines()[0])
    add = parser.add_argument
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--fnsc-only", action="store_true", help="without the distillation")
    only.add_argument("--fgsd-only", action="store_true", help="without the contrast")
    add("--lambda-c", type=recipe.number(0), default=1.5, help="weight of the contrast")
    add("--lambda-d", type=recipe.number(0), default=25.0, help="weight of the distillation")
    add("--tau", type=recipe.number(1e-9), default=0.1, help="temperature of the contrast")
    add("--omega", type=recipe.number(1e-9), default=5.0, help="temperature of the distillation")
    add("--local-view", choices=tuple(VIEWS), default="strong", help="of the model in training")
    add("--global-view", choices=tuple(VIEWS), default="weak", help="of the received model")
    add("--keys", choices=("global", "local"), default="global", help="whose embeddings are keys")
    add("--denominator", choices=("negatives", "all"), default="negatives", help="with a positive")
    add("--direction", choices=("anchor", "symmetric"), default="anchor", help="or both ways")
    args = recipe.parsed(parser, argv, IDLE)
    graph, clients = recipe.federation(args)
    return recipe.run_recipe(args, build(args, graph), graph, clients)


if __name__ == "__main__":
    main()

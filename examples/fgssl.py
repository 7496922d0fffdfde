"""FGSSL: FedAvg with two loss terms that compare the model with the received model.

    python examples/fgssl.py --dataset cora
    python examples/fgssl.py --lambda-d 0     the contrast alone
    python examples/fgssl.py --lambda-c 0     the distillation

Huang et al., IJCAI 2023: ``L = CE + lambda_c L_FNSC + lambda_d L_FGSD``.
The received model, frozen, sees a weakly augmented view of the client's
graph; the model in training a strongly augmented one. Its nodes are pulled to
the received model's of their class (FNSC), its similarities along edges to the
received model's (FGSD).
"""

import copy
from dataclasses import replace

import torch

from fgl import augment, layer, predict, tasks
from fgl.checks import check_choice, check_number, check_weight
from fgl.experiment import Run, cli
from fgl.federation import pair
from fgl.losses import node_contrast, structure_distillation

PRESETS = {
    "cora": {"lr": 0.25, "lambda_c": 0.5, "lambda_d": 5.0},
    "citeseer": {"lr": 0.5, "lambda_c": 0.5},
}


@layer
def fgssl(
    fedavg,
    *,
    lambda_c=1.5,
    lambda_d=25.0,
    tau=0.1,
    omega=5.0,
    local_view=augment.strong,
    global_view=augment.weak,
    keys="global",
    denominator="negatives",
    direction="anchor",
):
    """FGSSL; a weight of 0 leaves its term out."""
    check_weight(lambda_c=lambda_c, lambda_d=lambda_d)
    check_number("tau", tau, above=0)
    check_number("omega", omega, above=0)
    check_choice("keys", keys, ("global", "local"))
    teacher = copy.deepcopy(fedavg.model).eval()

    def embed(model, params, view, graph):
        x, adj = view(graph.x, graph.adj)
        augmented = graph.with_adj(adj, x=x)
        out = predict(model, params, augmented, return_embedding=True)
        return pair(out, f"{type(model).__name__}'s forward", "logits, embedding")

    def loss(params, graph, context):
        total = fedavg.loss(params, graph, context)
        with torch.no_grad():
            z_global, h_global = embed(teacher, context["model"], global_view, graph)
        z_local, h_local = embed(fedavg.model, params, local_view, graph)
        if lambda_c:
            if keys == "local":
                _, h_global = embed(fedavg.model, params, global_view, graph)
            how = {"denominator": denominator, "direction": direction}
            how |= {"mask": graph.train_mask, "temperature": tau}
            contrast = node_contrast(h_local, h_global, graph.labels, **how)
            total = total + lambda_c * contrast
        if lambda_d:
            total = total + lambda_d * structure_distillation(
                z_local, z_global, graph.adj, temperature=omega
            )
        return total

    return replace(fedavg, loss=loss)


def main(
    task: tasks.Nodes = tasks.Nodes(),
    run: Run = Run(),
    lambda_c: float = 1.5,
    lambda_d: float = 25.0,
    tau: float = 0.1,
    omega: float = 5.0,
):
    """FedAvg with node-semantic contrast and structure distillation.

    Args:
        lambda_c: Weight of the contrast; 0 leaves it out.
        lambda_d: Weight of the distillation; 0 leaves it out.
        tau: Temperature of the contrast.
        omega: Temperature of the distillation.
    """
    setting = task.load(run.seed)
    weights = {"lambda_c": lambda_c, "lambda_d": lambda_d}
    method = fgssl(setting.fedavg, **weights, tau=tau, omega=omega)
    return run(method, setting)


if __name__ == "__main__":
    cli(main, presets=PRESETS)

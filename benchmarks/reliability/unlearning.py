"""Approximate unlearning beside exact retraining: a client, or 30 % of its training nodes, of Cora.

    python benchmarks/reliability/unlearning.py --json benchmarks/results/unlearning.json

Five clients train 50 rounds. Then one is forgotten, or a part of its nodes; each way is followed by
ten rounds without what was forgotten. "ascent" and "adversarial" are the ideas of ReGEnUnlearn and
PAGE after their abstracts: ascent held to a reference, and prototypes with adversarial copies.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments
from harness.machine import machine, write
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy, kl_div, one_hot

import fgl
from fgl.methods import unlearned

Params = dict[str, Tensor]
quiet = partial(fgl.run, evaluate=lambda outbox, states: {})


def steps(params: Params, loss: Callable[[Params], Tensor]) -> Params:
    """Twenty steps of Adam."""
    params = {name: value.clone().requires_grad_() for name, value in params.items()}
    adam = torch.optim.Adam(params.values(), lr=0.01)
    for _ in range(20):
        adam.zero_grad()
        loss(params).backward()  # type: ignore[no-untyped-call]
        adam.step()
    return {name: value.detach() for name, value in params.items()}


def ascent(out: Any, start: Params, reference: Params, own: Any, gone: Tensor) -> Params:
    """The loss of forgotten nodes up to the reference's; other nodes keep its predictions."""
    wanted = out(reference, own).detach().log_softmax(1)
    most = float(cross_entropy(wanted[gone], own.y[gone]))

    def loss(params: Params) -> Tensor:
        logits = out(params, own)
        apart = kl_div(logits.log_softmax(1), wanted, log_target=True, reduction="none").sum(1)
        return apart[~gone].mean() - cross_entropy(logits[gone], own.y[gone]).clamp(max=most)

    return steps(start, loss)


def adversarial(out: Any, start: Params, own: Any, gone: Tensor, others: list[Any]) -> Params:
    """Away from the prototypes of kept nodes, then to a wrong label of copies that look wrong."""
    rest = own.train_mask & ~gone
    if rest.any():
        share = out(start, own).detach().softmax(1)[rest]
        of_class = one_hot(own.y[rest], own.num_classes).float()
        prototype = of_class.T @ share / of_class.sum(0).clamp(min=1)[:, None]

        def away(params: Params) -> Tensor:
            logits = out(params, own)
            near = cosine_similarity(logits.softmax(1)[gone], prototype[own.y[gone]]).mean()
            return near + 4 * cross_entropy(logits[rest], own.y[rest])

        start = steps(start, away)
    copy = own.replace(x=own.x.to_dense())
    for _ in range(5):
        x = copy.x.detach().requires_grad_()
        lost = cross_entropy(out(start, own, x)[gone], own.y[gone])
        (slope,) = torch.autograd.grad(lost, x)
        copy = own.replace(x=(x + 0.02 * slope.sign() * gone[:, None]).detach())
    wrong = out(start, copy).detach().scatter(1, own.y[:, None], -1e9).argmax(1)

    def loss(params: Params) -> Tensor:
        known = [cross_entropy(out(params, g)[g.train_mask], g.y[g.train_mask]) for g in others]
        return 0.5 * cross_entropy(out(params, copy)[gone], wrong[gone]) + sum(known) / len(known)

    return steps(start, loss)


def forgotten(task: Any, gone: Tensor, seed: int) -> dict[str, tuple[Params, float]]:
    """Models that should not know the nodes `gone` of client 0, and the seconds that each took."""
    own, *others = task.clients
    clean = replace(task, clients=[own.replace(train_mask=own.train_mask & ~gone), *others])
    full = quiet(task.fedavg, task, num_rounds=50, seed=seed)
    start = full.outbox[0]["model"]

    def out(params: Params, graph: Any, x: Any = None) -> Any:
        inputs = (graph.x if x is None else x, graph.adj)
        return torch.func.functional_call(task.fedavg.model, params, inputs)

    def rounds(params: Params, number: int, method: Any = task.fedavg, task: Any = clean) -> Any:
        sent = fgl.federation.Broadcast({"model": params}, len(task.clients))
        first = replace(full, outbox=sent, server_state={"model": params}, client_states={})
        return quiet(method, task, num_rounds=number, seed=seed + 1, start=first).outbox[0]["model"]

    def exact(seed: int) -> Any:
        return quiet(task.fedavg, clean, num_rounds=50, seed=seed).outbox[0]["model"]

    ways: dict[str, Callable[[], Any]] = {
        "nothing": lambda: start,
        "exact": lambda: exact(seed),
        "exact, another seed": lambda: exact(seed + 1000),
        "ascent": lambda: rounds(ascent(out, start, rounds(start, 1), own, gone), 10),
        "adversarial": lambda: rounds(adversarial(out, start, own, gone, others), 10),
    }
    if gone.equal(own.train_mask):
        method = unlearned(task.fedavg, client=0, at=1)
        ways["unlearned"] = lambda: rounds(rounds(start, 2, method, task), 10)
    found = {}
    for name, way in ways.items():
        began = time.perf_counter()
        found[name] = way(), time.perf_counter() - began
    return found


def measures(task: Any, found: dict[str, tuple[Params, float]], gone: Tensor) -> dict[str, Any]:
    """Of each way: how far its predictions for the nodes are from the exact model's, and more."""
    own, whole, model = task.clients[0], task.whole, task.fedavg.model
    exact = fgl.predict(model, found["exact"][0], own)[gone].softmax(1)
    rows = {}
    for name, (params, seconds) in found.items():
        share = fgl.predict(model, params, own)[gone].softmax(1)
        right = fgl.predict(model, params, whole).argmax(1) == whole.y
        rows[name] = {
            "distance": float((share - exact).abs().sum(1).mean() / 2),
            "agreement": float((share.argmax(1) == exact.argmax(1)).float().mean()),
            "test_accuracy": float(right[whole.test_mask].float().mean()),
            "seconds": seconds,
        }
    return rows


def main() -> None:
    args = arguments(seeds=5)
    rows: dict[str, list[dict[str, float]]] = defaultdict(list)
    for seed in range(args.seeds):
        task = fgl.tasks.Nodes(dataset="cora", clients=5).load(seed)
        mask = task.clients[0].train_mask
        task.fedavg.model.eval()
        share = torch.rand(len(mask), generator=torch.Generator().manual_seed(seed))
        for kind, gone in (("client", mask), ("nodes", mask & (share < 0.3))):
            for name, row in measures(task, forgotten(task, gone, seed), gone).items():
                rows[f"{kind}: {name}"].append(row)
    table: dict[str, Any] = {}
    for name, own in rows.items():
        columns = {measure: [row[measure] for row in own] for measure in own[0]}
        table[name] = {k: {"mean": fmean(v), "values": v} for k, v in columns.items()}
        print(name, {measure: f"{own['mean']:.3f}" for measure, own in table[name].items()})
    write({"table": table, "machine": machine()}, args.json)


if __name__ == "__main__":
    main()

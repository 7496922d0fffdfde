"""Leaks of uploads: attacks on what a server receives, before and after clipping and noise.

    python benchmarks/reliability/leaks.py --json benchmarks/results/leaks.json
    python benchmarks/reliability/leaks.py --report      docs/privacy.md, from the published file

Every attack is that of a curious server that follows the protocol. It knows the method, what it
sent, the learning rate and how noise is made, and nothing of a client's data. Epsilon is for all
rounds together, at client level, delta is 1e-5.
"""

import json
import statistics
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import scipy.optimize
import torch
from harness.flags import arguments
from harness.machine import RESULTS, example, kept, machine, write
from harness.report import publish
from torch import Tensor

import fgl
from fgl import Graph, Method, ego, privacy, tasks, transforms
from fgl.federation import fold_in, train

EPSILONS = (8.0, 64.0, 512.0)
DELTA, LENGTH, ROUNDS, FEDGL_ROUNDS = 1e-5, 0.5, 20, 10
NODES = tasks.Nodes(dataset="cora", clients=10, model="gcn", hidden=64)
ONE_EPOCH = tasks.Local("adam", lr=3e-4, weight_decay=0.0, steps=1)
Uploads = list[dict[str, Any]]


def first_uploads(method: Method, clients: Any, seed: int = 0) -> tuple[Uploads, Any]:
    """What every client sends in the first round, and what it was sent."""
    first: Any = {"model": method.initial()}
    found = []
    for client, own in enumerate(clients):
        torch.manual_seed(fold_in(seed, 0, client, "receive"))
        params, context = method.receive(first, {}, own)
        done = train(method, params, own, context, seed=fold_in(seed, 0, client))
        torch.manual_seed(fold_in(seed, 0, client, "send"))
        found.append(method.send(done.params, context, {}, own)[0])
    return found, first["model"]


def multiplier(epsilon: float, rounds: int = ROUNDS) -> float:
    """The noise over the sensitivity, for an epsilon after so many rounds."""
    return privacy.noise_for(epsilon=epsilon, rounds=rounds, delta=DELTA)


def held_features(update: Tensor, sent: Tensor, sigma: float) -> Tensor:
    """Which features a client holds: those whose weights moved other than by weight decay.

    The gradient of a feature's weights is 0 where no node has it, and weight decay moves them
    along themselves; so what moved across them tells of a feature. Noise moves all.
    """
    along = (update * sent).sum(0) / sent.square().sum(0)
    across = (update - along * sent).square().sum(0)
    count = len(sent) - 1
    expected = sigma**2 * (count + 1.65 * (2 * count) ** 0.5)  # of 20 untouched ones, one is above
    return across > max(expected, count * 1e-14)


def features(task: Any, method: Method, sigma: float) -> float:
    """The share of features that the attack gets right, as a mean over clients."""
    found, sent = first_uploads(method, task.clients)
    name, right = "convs.0.lin.weight", []
    for message, own in zip(found, task.clients, strict=True):
        guess = held_features(message["model"][name] - sent[name], sent[name], sigma)
        right.append(float((guess == held(own)).double().mean()))
    return statistics.mean(right)


def held(own: Graph) -> Tensor:
    """Which features some node of a client has."""
    x: Any = own.x
    return (x.to_dense() if isinstance(x, fgl.SparseMatrix) else x).ne(0).any(0)


def first_update(epsilons: tuple[float, ...]) -> dict[str, Any]:
    """Features from the first FedAvg update, and the accuracy that clipping and noise cost."""
    task = NODES.load(0)
    plain, noise = task.fedavg, {"length": LENGTH, "delta": DELTA}
    told: dict[str, Any] = {"plain": features(task, plain, 0.0)}
    always = [float(held(own).double().mean()) for own in task.clients]
    told["always yes"] = statistics.mean(always)
    told["clip"] = features(task, transforms.clipped(plain, length=LENGTH), 0.0)
    scores = {"plain": accuracy(task, plain)}
    scores["clip"] = accuracy(task, transforms.clipped(plain, length=LENGTH))
    for epsilon in epsilons:
        z = multiplier(epsilon)
        local = transforms.local_gaussian(plain, noise_multiplier=z, **noise)
        told[f"local noise, epsilon {epsilon:g}"] = features(task, local, 2 * LENGTH * z)
        scores[f"local noise, epsilon {epsilon:g}"] = accuracy(task, local)
        central = transforms.central_gaussian(plain, noise_multiplier=z, **noise)
        told[f"central noise, epsilon {epsilon:g}"] = features(task, central, 0.0)
        scores[f"central noise, epsilon {epsilon:g}"] = accuracy(task, central)
    return {"features right": told, "test accuracy": scores}


def accuracy(task: Any, method: Method, rounds: int = ROUNDS) -> float:
    """Test accuracy after the last round."""
    result = fgl.run(method, task, num_rounds=rounds, clients_at_once="all")
    return result.history[-1].metrics["test_accuracy"]


def blurred(method: Method, change: Callable[[Any], Any]) -> Method:
    """The method whose messages are changed before they leave a client."""

    def send(*given: Any) -> Any:
        message, state = method.send(*given)
        return change(message), state

    return replace(method, send=send)


def hidden_predictions(z: float, message: dict[str, Any]) -> dict[str, Any]:
    """FedGL's message with noise on predictions and embeddings, which the transforms refuse.

    Two clients' predictions of n nodes differ by ``sqrt(2 n)`` at most.
    """
    n = len(message["predictions"])
    length = (2 * n) ** 0.5 / 2
    embeddings = privacy.clip({"e": message["embeddings"]}, length=length)
    noisy = privacy.gaussian(embeddings, sigma=2 * length * z)["e"]
    shares = privacy.noisy_shares(message["predictions"], sigma=2 * length * z)
    return {**message, "embeddings": noisy, "predictions": shares}


def predicted_labels(epsilons: tuple[float, ...]) -> dict[str, Any]:
    """Labels of training nodes from the predictions that FedGL's clients upload."""
    recipe = example("fedgl")
    task = tasks.OverlappingNodes(dataset="cora").load(0)
    num_nodes = int(task.whole.node_id.max()) + 1
    told, scores = {}, {}
    cases: dict[str, Any] = {"plain": None}
    cases |= {f"noise, epsilon {e:g}": multiplier(e, FEDGL_ROUNDS) for e in epsilons}
    for name, z in cases.items():
        method = recipe.fedgl(task.fedavg, num_nodes)
        if z is not None:
            method = blurred(method, partial(hidden_predictions, z))
        seen: list[Any] = []

        def aggregate(inbox: Any, state: Any, seen: Any = seen, method: Any = method) -> Any:
            seen[:] = inbox.values()
            return method.aggregate(inbox, state)

        watched = replace(method, aggregate=aggregate)
        scores[name] = accuracy(task, watched, FEDGL_ROUNDS)
        right = [
            float((m["predictions"].argmax(1) == own.y)[own.train_mask].double().mean())
            for m, own in zip(seen, task.clients, strict=True)
        ]
        told[name] = {"mean": statistics.mean(right), "min": min(right), "max": max(right)}
    counts = [own.y[own.train_mask].bincount() for own in task.clients]
    told["the most frequent class"] = max(float(n.max() / n.sum()) for n in counts)
    return {"labels right": told, "test accuracy": scores}


def bag_of_words(r: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The 0 and 1 features under ``r = ReLU(W x + b)``: the x >= 0 that fits."""
    on = r > 0
    matrix, target = weight[on].double(), (r - bias)[on].double()
    # Few words: the x >= 0 that fits is the only one, though there are more words than equations.
    x = torch.from_numpy(scipy.optimize.nnls(matrix.numpy(), target.numpy())[0])
    return x > 0.5 * x.max()


def mashed_ego_graphs() -> dict[str, Any]:
    """FedEgo: the class histogram of position 0, and the bags of words of a last batch of one."""
    recipe, batch = example("fedego"), 32
    task = tasks.EgoNodes(dataset="cora", clients=5, local=ONE_EPOCH).load(0)
    own = task.clients[0]
    nodes = own.train_mask.nonzero().squeeze(1)
    keep = nodes[: (len(nodes) - 1) // batch * batch + 1]  # they leave a last batch of one
    mask = torch.zeros_like(own.train_mask).index_fill(0, keep, True)
    own = own.replace(train_mask=mask)
    count = own.y[mask].bincount(minlength=own.num_classes).double()
    told: dict[str, Any] = {"histogram, mean error in nodes": {}, "bags of words": {}}
    blurs = {f"labels with noise {s:g}": partial(privacy.noisy_shares, sigma=s)
             for s in (0.02, 0.1, 0.5)}  # fmt: skip
    short = {"mash": partial(ego.mash, least=1), "shuffle": False}
    kinds: dict[str, Any] = {"short last batch": short, "as it is now": {}}
    kinds |= {name: {"blur": blur} for name, blur in blurs.items()}
    for name, options in kinds.items():
        method = recipe.fedego(task.fedavg, batch_size=batch, **options)
        (message,), _ = first_uploads(method, [own])
        sizes = torch.full((len(message["labels"]),), float(batch), dtype=torch.float64)
        sizes[-1] = len(keep) - batch * (len(sizes) - 1)
        guess = (sizes[:, None] * message["labels"][:, 0].double()).sum(0)
        error = float((guess - count).abs().mean())
        told["histogram, mean error in nodes"][name] = round(error, 4)
        if "labels" not in name:
            told["bags of words"][name] = recovered(message, own)
    told["training nodes"] = len(keep)
    return told


def recovered(message: Any, own: Graph) -> dict[str, int]:
    """How many positions of the last upload are a node of the client, word for word."""
    x: Any = own.x
    rows = {tuple(row.nonzero().squeeze(1).tolist()) for row in x.to_dense()}
    weight, bias = (message["model"][f"reduction.{name}"] for name in ("weight", "bias"))
    found = [bag_of_words(r, weight, bias) for r in message["embeddings"][-1]]
    exact = [tuple(bag.nonzero().squeeze(1).tolist()) in rows for bag in found]
    return {"exact": sum(exact), "positions": len(exact)}


def properties(epsilons: tuple[float, ...]) -> dict[str, Any]:
    """GPFL: the mean properties of a client's graphs, which it uploads as they are."""
    recipe = example("gpfl")
    task = tasks.Graphs(dataset="PROTEINS", clients=10).load(0)
    probes = recipe.random_graphs(task.clients[0].num_features, 0)
    plain = recipe.gpfl(task.fedavg, probes)
    (message, *_), _ = first_uploads(plain, task.clients[:1])
    truth = fgl.properties.mean_properties(task.clients[0])
    length = float(truth.norm())  # a bound that this client does not exceed
    told = {"plain": error_of(message["properties"], truth)}
    for epsilon in epsilons:
        z = multiplier(epsilon, 1)  # they are the same in every round, so sent once
        noisy = [
            privacy.gaussian({"p": message["properties"]}, sigma=2 * length * z)["p"]
            for _ in range(200)
        ]
        each = [error_of(one, truth) for one in noisy]
        told[f"noise, epsilon {epsilon:g}"] = statistics.median(each)
    read = dict(zip(NAMES, message["properties"].tolist(), strict=True))
    return {"relative error": told, "read": read}


NAMES = list(fgl.properties.measures.PROPERTIES)


def error_of(said: Tensor, truth: Tensor) -> float:
    return float(((said - truth).abs() / truth.abs().clamp(min=1e-9)).median())


def text(found: dict[str, Any]) -> str:
    """The tables of the page."""
    first, labels = found["first update"], found["predictions"]
    lines = ["| uploads of FedAvg, Cora | features right | test accuracy |", "|---|---|---|"]
    for name, right in first["features right"].items():
        score = _percent(first["test accuracy"].get(name))
        lines.append(f"| {name} | {100 * right:.1f} % | {score} |")
    lines += ["", "| FedGL's predictions, Cora | labels right | test accuracy |", "|---|---|---|"]
    for name, right in labels["labels right"].items():
        if isinstance(right, dict):
            said = f"{100 * right['min']:.1f} to {100 * right['max']:.1f} %"
            lines.append(f"| {name} | {said} | {_percent(labels['test accuracy'][name])} |")
        else:
            lines.append(f"| always {name} | {100 * right:.1f} % |  |")
    egos = found["ego-graphs"]
    head = f"FedEgo, {egos['training nodes']} training nodes, Cora"
    lines += ["", f"| {head} | histogram's mean error | bags of words read |", "|---|---|---|"]
    for name, error in egos["histogram, mean error in nodes"].items():
        bags = egos["bags of words"].get(name)
        read = f"{bags['exact']} of {bags['positions']}" if bags else ""
        lines.append(f"| {name} | {error:.2f} nodes | {read} |")
    lines += ["", "| GPFL's properties, PROTEINS | median relative error |", "|---|---|"]
    errors = found["properties"]["relative error"].items()
    lines += [f"| {name} | {100 * error:.3g} % |" for name, error in errors]
    return "\n".join(lines) + "\n"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv, report=False)
    if args.report:
        publish("leaks", text(kept(RESULTS / "leaks.json")))
        return 0
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", RuntimeWarning)
    report: dict[str, Any] = {"benchmark": "leaks", "epsilons": EPSILONS, "delta": DELTA}
    parts: dict[str, Callable[[], Any]] = {
        "ego-graphs": mashed_ego_graphs,
        "properties": partial(properties, EPSILONS),
        "first update": partial(first_update, EPSILONS),
        "predictions": partial(predicted_labels, EPSILONS),
    }
    for name, part in parts.items():
        report[name] = part()
        print(name, json.dumps(report[name], indent=1), flush=True)
        write({**report, "machine": machine()}, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())

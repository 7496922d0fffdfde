"""The wire table: what every method sends, how large it is, and what can be read from it.

    python benchmarks/reliability/wire.py      writes the long table

Two rounds of every method on a small task: synthetic graphs of Cora's and PROTEINS' kind.
"""

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments
from harness.machine import example
from harness.report import publish

import fgl
from fgl import Method, methods, tasks, transforms
from fgl.federation.method.compose import unsealed
from fgl.federation.method.message import num_bytes
from fgl.tasks import Local, Task

UP, DOWN, BEFORE = "up", "down", "before"
BASELINES = example("baseline")
ONE = Local(steps=1)
SMALL: dict[str, Any] = {  # a setting of each kind of task
    "louvain-nodes": tasks.Nodes(model="gcn", hidden=64, local=ONE),
    "star nodes": tasks.Nodes(model="star", hidden=64, local=ONE),
    "summed nodes": tasks.Nodes(model="gcn", hops=2, hidden=64, local=ONE),
    "sage nodes": tasks.Nodes(model="sage", hidden=64, local=ONE),
    "aux nodes": tasks.Nodes(model="aux", hidden=64, local=ONE),
    "deep nodes": tasks.Nodes(model="deep", hidden=64, local=ONE),
    "spa nodes": tasks.Nodes(model="spa", hidden=64, local=ONE),
    "overlapping-nodes": tasks.OverlappingNodes(local=ONE),
    "ego-nodes": tasks.EgoNodes(hidden=64, local=ONE),
    "links": tasks.Links(local=ONE),
    "typed nodes": tasks.TypedNodes(bases=4, local=ONE),
    "graphs": tasks.Graphs(clients=5, local=ONE),
    "spectral graphs": tasks.Graphs(clients=5, model="ssp", local=ONE),
}
KINDS = {"fedstar": "star nodes", "fedgcn": "summed nodes", "fedsage": "sage nodes"}
KINDS |= {"fedsage-plus": "sage nodes", "fedhgn": "typed nodes", "fedaux": "aux nodes"}
KINDS |= {"fedspa": "spa nodes", "feddep": "deep nodes"}
KINDS |= {"fedssp": "spectral graphs"}
NAMES = {  # as they are written, where not as they are called
    "fedavg": "FedAvg", "local": "Local", "fedprox": "FedProx", "fedopt": "FedOpt",
    "moon": "MOON", "fedper": "FedPer", "scaffold": "SCAFFOLD", "fedselect": "FedSelect",
    "graphfl": "GraphFL", "gcfl": "GCFL", "gcfl-plus": "GCFL+", "fedstar": "FedStar",
    "ring": "D-FedGNN (ring)", "fedgcn": "FedGCN", "fedsage": "FedSage",
    "fedsage-plus": "FedSage+", "fedamp": "FedAMP", "heurfedamp": "HeurFedAMP",
    "fedhgn": "FedHGN", "fedproto": "FedProto", "fedtgp": "FedTGP", "feddyn": "FedDyn",
    "feddc": "FedDC", "ditto": "Ditto", "fedgta": "FedGTA",
    "fedtad": "FedTAD", "fedaux": "FedAux", "fggp": "FGGP",
    "retrained": "retrained without a client", "unlearned": "unlearning (ascent)",
    "adafgl": "AdaFGL", "fedgm": "FedGM", "opfgl": "O-pFGL", "fedssp": "FedSSP", "fedspa": "FedSPA",
    "s2fgl": "S2FGL", "feddep": "FedDEP",
    "pfedgraph": "pFedGraph", "fedpub": "FED-PUB", "fgssl": "FGSSL", "fedgl": "FedGL",
    "fede": "FedE", "fedego": "FedEgo", "fedvgae": "FedVGAE", "gpfl": "GPFL",
    "own-models": "own models",
    "mix-updates": "mixed updates", "local-gaussian": "local noise",
    "central-gaussian": "central noise", "per-example-gaussian": "DP-SGD",
    "fedsage-plus-generators": "FedSage+ (generators)",
    "gcfl-plus-gradients": "GCFL+ (gradients)",
    "rounded-downloads": "rounded downloads",
}  # fmt: skip


Make = Callable[[Task], Any]  # a method, or a method and the task that it runs on


def cases() -> dict[str, tuple[Make, str]]:
    """Every method: how it is made of a task, and of which."""

    def baseline(name: str, build: Any) -> Make:
        return lambda task: BASELINES.built(build, task, 0, OPTIONS.get(name, {}))

    found: dict[str, tuple[Make, str]] = {
        name: (baseline(name, build), KINDS.get(name, "louvain-nodes"))
        for name, build in BASELINES.METHODS.items()
        if name != "centralized"
    }
    noise: dict[str, Any] = {"length": 1.0, "noise_multiplier": 1.0}
    return found | {
        "own-models": (lambda t: methods.own_models(t.fedavg, draw=True), "ego-nodes"),
        "gcfl-plus-gradients": (
            lambda t: methods.gcfl_plus(t.fedavg, sequence="gradients"), "louvain-nodes"
        ),
        "mix-updates": (lambda t: methods.mix_updates(t.fedavg, methods.uniform), "louvain-nodes"),
        "fedsage-plus-generators": (generators, "sage nodes"),
        "fgssl": (lambda t: example("fgssl").fgssl(t.fedavg), "louvain-nodes"),
        "fedgl": (fedgl, "overlapping-nodes"),
        "fede": (fede, "louvain-nodes"),
        "fedego": (lambda t: example("fedego").fedego(t.fedavg), "ego-nodes"),
        "fedvgae": (lambda t: example("fedvgae").fedvgae(t.fedavg, t.validate), "links"),
        "gpfl": (gpfl, "graphs"),
        "clipped": (lambda t: transforms.clipped(t.fedavg, length=1.0), "louvain-nodes"),
        "local-gaussian": (lambda t: transforms.local_gaussian(t.fedavg, **noise), "louvain-nodes"),
        "central-gaussian": (
            lambda t: transforms.central_gaussian(t.fedavg, **noise), "louvain-nodes"
        ),
        "quantised": (lambda t: transforms.quantised(t.fedavg), "louvain-nodes"),
        "sparsified": (lambda t: transforms.sparsified(t.fedavg), "louvain-nodes"),
        "rounded-downloads": (lambda t: transforms.rounded_downloads(t.fedavg), "louvain-nodes"),
        "per-example-gaussian": (
            lambda t: transforms.per_example_gaussian(t.fedavg, **noise, **STEPS), "graphs"
        ),
    }  # fmt: skip


STEPS: dict[str, Any] = {"sample_rate": 0.1, "expected_batch_size": 16, "num_steps": 1}
OPTIONS: dict[str, dict[str, Any]] = {  # what has no default, or takes long
    "fedprox": {"mu": 0.1},
    "fedper": {"shared": ["convs.0"]},
    "retrained": {"client": 1},
    "unlearned": {"client": 1, "at": 1},
    "fedgm": {"reduction": 0.05, "condense_steps": 1, "condense_width": 4, "fit_steps": 2},
    "opfgl": {"condense_steps": 1, "condense_width": 4, "fit_steps": 2},
    "adafgl": {"first_rounds": 2, "own_hidden": 4},
    "feddep": {"encoder_epochs": 2, "gen_epochs": 1},
    "fedsage-plus": {"gen_epochs": 1, "gen_local_epochs": 1, "gen_wide": 8, "gen_hidden": 8},
}


def generators(task: Task) -> Any:
    """FedSage+'s generators, smaller than the paper's."""
    width = task.clients[0].num_features
    model = fgl.nn.NeighbourGenerator(width, 64, 7, latent=16, widths=(64, 64))
    made = tasks.generator_task(task.clients, model, fgl.Training())
    return methods.fedsage_plus(made.fedavg), made


def fedgl(task: Task) -> Method:
    whole: Any = task.whole
    method: Method = example("fedgl").fedgl(task.fedavg, int(whole.node_id.max()) + 1)
    return method


def fede(task: Task) -> Any:
    """FedE's rows by id, on made-up triples of 500 entities and ten relations."""
    recipe, draw = example("triples"), torch.Generator().manual_seed(0)
    head, tail, kind = torch.randint(5000, (3, 1000), generator=draw).unique(dim=1) % 500
    pairs, kind, x = torch.stack([head, tail]), kind % 10, torch.arange(500.0)[:, None]
    asked = {"edge_label_index": pairs, "edge_label_type": kind, "y": torch.ones(len(kind))}
    clients = fgl.data.partitions.relation_partition(
        fgl.Graph(x, pairs, edge_type=kind, **asked), 5
    )
    how = {"negatives": 1, "ranking": tasks.ranking()}
    made = tasks.pair_task(clients, recipe.DistMult(500, 10), fgl.Training(), **how)
    return example("fede").fede(made.fedavg), made


def gpfl(task: Task) -> Method:
    recipe = example("gpfl")
    method: Method = recipe.gpfl(task.fedavg, recipe.random_graphs(task.clients[0].num_features, 0))
    return method


EXACT = "read as it is"
ONE_OF_ALL = "nothing, it is 1; the true number stands beside the message"
READS: dict[str, str] = {  # by direction and key, or by method, direction and key
    "up model": "which features the client's nodes have (`leaks.py`); of few examples the labels",
    "local-gaussian up model": "little, by as much as epsilon says",
    "per-example-gaussian up model": "of one graph little, by as much as epsilon says",
    "central-gaussian up model": "by the server as much as without noise: it is trusted here",
    "clipped up model": "as much as without clipping",
    "fedego up model": "the reduction layer alone: which features the client's nodes have",
    "fedstar up model": "the channel of structure alone: of features nothing, of degrees something",
    "fedssp up model": "the encoders of spectra alone: of features nothing, of structure something",
    "up mean_embedding": "the mean embedding of the last step's graphs; of a single one its own",
    "fedvgae up model": "the encoder: which features the client's nodes have",
    "up model_scales": "how large the parts of the client's update are",
    "up model_codes": "as the model: the update in steps of these",
    "up model_values": "the largest entries of the client's update",
    "up model_places": "which entries moved most: in the first layer they name features",
    "down rounded": "as the model, in half of the bytes",
    "up num_examples": "how many training examples the client has, exactly",
    "fedego up num_examples": ONE_OF_ALL,
    "own-models up num_examples": ONE_OF_ALL,
    "scaffold up num_examples": "whether the client has a training example: 1 or 0; the true "
    "number stands beside the message",
    "graphfl up num_examples": "whether the client has a training example: 1 or 0; the true "
    "number stands beside the message",
    "clipped up num_examples": ONE_OF_ALL,
    "local-gaussian up num_examples": "nothing, it is 1",
    "per-example-gaussian up num_examples": "nothing, it is 1",
    "central-gaussian up num_examples": ONE_OF_ALL,
    **dict.fromkeys(
        ("feddyn up num_examples", "feddc up num_examples"),
        "how many training examples the client has, exactly; said before the first round too",
    ),
    **dict.fromkeys(
        ("feddyn down num_clients", "feddc down num_clients"),
        "how many clients have a training example",
    ),
    "up gradient_norm": "how far the client is from done",
    "up shift": "a gradient at a model that the server knows: as much as the model tells",
    "up own": "which weights moved most: in the first layer they name features",
    "up embedding": "the mean embedding of a known graph: a fingerprint of the model",
    "up answers": "the answers to known graphs: a fingerprint of the model",
    "fedhgn up coefficients": "how the client's relations mix the shared matrices",
    "fedhgn down others": "how the relations of every other client mix the shared matrices",
    "up prototypes": "the mean embedding of each class's training nodes; of a single node its own",
    "feddep up model": "the classifier: which features the client's nodes have (`leaks.py`)",
    "feddep up prototypes": "means of embeddings of its nodes, in five groups; of a group with one "
    "node that node's embedding",
    "feddep up counts": "how many nodes each group has, so how many nodes the client has, " + EXACT,
    "feddep down prototypes": "what the others sent as prototypes",
    "feddep down counts": "what the others sent as counts",
    "s2fgl up counts": "how many training nodes of each class are among a third of its nodes, "
    + EXACT,
    "down books": "what the clients' embeddings of each class have in common, in drawn groups",
    "up classes": "which classes the client has, " + EXACT,
    "up augmentor": "as the model: which features the client's nodes have",
    "up moments": "shares of the classes among the client's nodes, up to what the model believes",
    "up confidence": "about how many edges the client has, and how sure the model is of its nodes",
    "fedgm up x": "features of made-up nodes, which begin as those of the client's own nodes: "
    "where no step of the features was better, exactly these",
    "fedgm up y": "the shares of the client's classes, as near as whole nodes allow",
    "fedgm up adjacency": "how the made-up nodes are joined",
    "fedgm up gradient": "class by class a gradient at a model that the server knows: of a class "
    "with few nodes their features",
    "fedgm up count": "how many made-up nodes each class has, so the shares of the classes",
    "fedgm down probe": "nothing, it is drawn",
    "opfgl up sums": "how many labelled nodes each class has, " + EXACT + ", and means and "
    "deviations of their features and of their neighbours': of two nodes both values of each "
    "feature. The sums of one node are its features, so they are left out",
    "down fitted": "whether the sums have been made",
    "up energy": "how much some features differ along the client's edges, a mean, " + EXACT,
    "up fisher": "how the client's likelihood depends on a few scores, but for the sign",
    "up reliability": "how many training nodes of each class it has, weighed by how alike they are",
    "up properties": "six means over the client's graphs (density, degrees, ...), " + EXACT,
    "fede up ids": "which entities the client has, " + EXACT,
    "fede up rows": "how the client changed the vector of each of its entities",
    "fede down rows": "what the clients that have an entity know of it together",
    "up node_id": "which nodes the client holds, and which two clients share, " + EXACT,
    "up predictions": "the labels of the training nodes (`leaks.py`)",
    "up embeddings": "the logits, so the labels, as from the predictions",
    "fedego up embeddings": "means over at least a batch of ego-graphs; of a single one every "
    "word of its nodes (`leaks.py`)",
    "fedego up labels": "position 0 is the client's class histogram, exactly (`leaks.py`)",
    "up made": "what its generator makes for its training nodes: what it learned of their features",
    "up count": "how many neighbours its generator misses at each training node",
    "up missing": "how many hidden neighbours the client's training nodes have, " + EXACT,
    "up gradients": "features of random neighbours, exactly (Eq. 6's gradient solved for them)",
    "down model": "what all clients know together; any of them may ask it about a node or graph",
    "local down model": "nothing, it is the initial one",
    **{
        f"{name} down model": "a mix of some clients' models, made for this one"
        for name in (
            *("ring", "fedamp", "heurfedamp", "pfedgraph", "fedpub", "mix-updates", "gpfl"),
            *("fedgta", "fedaux"),
        )
    },
    "gcfl down model": "what the clients of one cluster know together",
    "gcfl-plus down model": "what the clients of one cluster know together",
    "gcfl-plus-gradients down model": "what the clients of one cluster know together",
    "down prototypes": "what the clients' embeddings of each class have in common",
    "down classes": "which classes somebody has",
    "down consensus": "what the embeddings of all clients' graphs have in common",
    "fedssp down model": "how all clients together read spectra",
    "down num_examples": "how many training examples the clients have together",
    "down gradient": "the mean gradient of all clients, by their examples",
    "down augmentor": "what all clients know together of edges",
    "down forget": "whether it is this client that is to be forgotten",
    "down radius": "how far the common model is from random ones, or a setting",
    "down num_clients": "how many clients took part",
    "down control": "the mean gradient of all clients",
    "down direction": "where the other clients' models differ from the own one",
    "down labels": "what the server believes of the client's nodes, from others' predictions",
    "down row": "which nodes the server joins: alike in others' embeddings",
    "down col": "see row",
    "down weight": "how alike they are",
    "down head": "what the server learned from all uploads",
    "down distribution": "the class shares of all clients together",
    "down stage": "which part of the exchange this is",
    "down pull": "the sum of what others sent as gradients",
    "down made": "what the others sent as made",
    "down missing": "what the others sent as missing",
    "down count": "what the others sent as count",
    "down owners": "how many clients took part",
    "adafgl down model": "nothing, it is what FedAvg left everybody with",
    "adafgl before all messages": "what FedAvg's messages tell, of two rounds here",
    "fedgcn before all messages": "of a border node with one neighbour that neighbour's features, "
    "scaled",
}


def flow(name: str, rounds: int = 2) -> Iterator[tuple[str, str, str, int]]:
    """Direction, key, shape and bytes of all that the first client sends and is sent."""
    make, kind = cases()[name]
    loaded = SMALL[kind].load(0)
    made = make(loaded)
    method, task = made if isinstance(made, tuple) else (made, loaded)
    yield from exchanged(method, task, 3 if method.rules.exchange > 1 else rounds)
    if task.bytes_before and name != "fedsage-plus":  # its generators are a row of their own
        yield BEFORE, "all messages", "", task.bytes_before


def exchanged(method: Method, task: Any, rounds: int = 2) -> list[tuple[str, str, str, int]]:
    """What one client sends and is sent in so many rounds, each key once."""
    found: dict[tuple[str, str], tuple[str, int]] = {}

    def note(direction: str, message: Mapping[str, Any]) -> None:
        for key, value in message.items():
            found[direction, key] = shape_of(value), num_bytes({key: value})

    def receive(message: Any, state: Any, graph: Any) -> Any:
        if graph is task.clients[0]:
            note(DOWN, message)
        return method.receive(message, state, graph)

    def send(params: Any, context: Any, state: Any, graph: Any) -> Any:
        message, new = method.send(params, context, state, graph)
        if graph is task.clients[0]:
            note(UP, message)
        return message, new

    watched = replace(unsealed(method), receive=receive, send=send)
    result = fgl.run(watched, list(task.clients), num_rounds=rounds)
    note(DOWN, result.outbox[0])
    return [(way, key, *said) for (way, key), said in sorted(found.items(), reverse=True)]


def shape_of(value: Any) -> str:
    if isinstance(value, Mapping):
        total = sum(tensor.numel() for tensor in value.values())
        return f"{len(value)} tensors, {total:,} numbers"
    return str(list(value.shape)) if value.dim() else "a number"


def reading(name: str, way: str, key: str) -> str:
    """What can be read from a part of a message."""
    for known in (f"{name} {way} {key}", f"{way} {key}"):
        if known in READS:
            return READS[known]
    raise ValueError(f"Expected READS to say what can be read from {way} {key} of {name}")


def rows(found: Mapping[str, list[tuple[str, str, str, int]]]) -> list[str]:
    """The lines of the table; methods whose messages are alike share them."""
    alike: dict[tuple[Any, ...], list[str]] = {}
    for name, parts in found.items():
        said = tuple((*part, reading(name, *part[:2])) for part in parts)
        alike.setdefault(said, []).append(NAMES.get(name, name))
    lines = []
    for said, names in alike.items():
        for way, key, shape, size, text in said:
            lines.append(f"| {', '.join(names)} | {way} | `{key}` | {shape} | {size:,} | {text} |")
            names = [""]
    return lines


def main(argv: list[str] | None = None) -> int:
    arguments(argv, json=False)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = {}
    for name in cases():
        found[name] = list(flow(name))
        print(name, flush=True)
    head = "| method | way | key | shape | bytes | what can be read from it |"
    publish("wire", "\n".join([head, "|---" * 6 + "|", *rows(found)]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

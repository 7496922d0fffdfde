"""What all recipes share: flags, a federation of one dataset, a progress bar, the report."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from .. import data
from ..graph import Graph
from ..nn import GAT, GCN
from .evaluate import Evaluate, evaluate_on
from .method import Method, Training
from .report import DESCRIBED, VALIDATION, configuration, early_stop, progress, report, to_json
from .result import Result
from .run import run

OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


def arguments(
    recipe: str, description: str, *, without: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """A parser with the flags of every recipe; a recipe adds its own.

    Args:
        recipe: the recipe's name, for the report.
        description: one line for ``--help``.
        without: flags that mean nothing for the recipe and are refused.

    Example:
        >>> arguments("fedavg", "FedAvg").parse_args(["--clients", "7"]).clients
        7
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=_Help)
    parser.set_defaults(recipe=recipe)

    def add(flag: str, **options: Any) -> None:
        if flag.removeprefix("--") not in without:
            parser.add_argument(flag, **options)

    add("--dataset", default="synthetic", help="a known name, or a folder's under FGL_DATA")
    add("--split", choices=("class_capped", "random", "public"), default="class_capped")
    add("--clients", type=integer(1), default=5, help="how many")
    add("--rounds", type=integer(0), default=200, help="how many")
    add("--seed", type=integer(0), default=0, help="of split, partition, first model, training")
    add("--participation", type=number(0, 1), default=1.0, help="share of the clients in a round")
    add("--model", choices=("gcn", "gat"), default="gat", help="of the clients")
    add("--hidden", type=integer(1), default=128, help="width of a hidden layer")
    add("--dropout", type=number(0, 1), default=0.5, help="share of units set to zero")
    add("--optimizer", choices=tuple(OPTIMIZERS), default="sgd", help="of the clients")
    add("--lr", type=number(0), default=0.25, help="its learning rate")
    add("--momentum", type=number(0), default=0.0, help="of sgd")
    add("--weight-decay", type=number(0), default=5e-4, help="of the optimizer")
    add("--steps", type=integer(0), default=4, help="local steps per round; epochs of minibatches")
    add("--clients-at-once", type=_at_once, default=1, help="a number, or all: train as one batch")
    add("--device", default="cpu", help="as torch names it")
    add("--sparse", choices=("torch", "torch_sparse"), default="torch", help="whose kernels")
    add("--threads", type=integer(1), default=1, help="of torch; small graphs are fastest on one")
    add("--checkpoint", metavar="DIR", help="save every round there, and go on from it")
    add("--json", metavar="PATH", help="write the report there")
    return parser


def parsed(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None, idle: Mapping[str, Iterable[str]]
) -> argparse.Namespace:
    """The flags, unless one is given that would change nothing beside another.

    Args:
        parser: of the recipe.
        argv: the flags, default the command's.
        idle: name of a flag to names of those that do nothing once it is given.

    Example:
        >>> parsed(arguments("fedavg", ""), ["--momentum", "0.9"], {"lr": ["momentum"]}).momentum
        0.9
    """
    args = parser.parse_args(argv)
    given = {k: v for k, v in vars(args).items() if v != parser.get_default(k)}
    for pair in ((b, a) for a in idle for b in idle[a] if a in given and b in given):
        one, two = (f"--{'no-' * (given[k] is False)}{k.replace('_', '-')}" for k in pair)
        parser.error(
            f"Expected {one} to be left out where it changes nothing, but got it with {two}"
        )
    return args


def federation(args: argparse.Namespace) -> tuple[Graph, list[Graph]]:
    """The whole graph with its split, and the clients that Louvain cuts it into.

    Args:
        args: with ``dataset, split, clients, seed, device, sparse``.

    Returns:
        The graph and one graph per client; one client gets the whole graph.

    Example:
        >>> graph, clients = federation(arguments("fedavg", "").parse_args(["--clients", "3"]))
        >>> len(clients), sum(c.num_nodes for c in clients) == graph.num_nodes
        (3, True)
    """
    graph = data.split(data.load(args.dataset), args.split, dataset=args.dataset, seed=args.seed)
    graph = graph.replace(backend=args.sparse).to(args.device)
    if args.clients == 1:
        return graph, [graph]
    parts = data.louvain_partition(graph, args.clients, seed=args.seed)
    return graph, data.partition_graph(graph, parts)


def overlapping_federation(
    args: argparse.Namespace,
    proportions: Iterable[float],
    common: float | None = None,
    per_class: int | None = None,
) -> tuple[Graph, list[Graph]]:
    """The setting of FedGL: clients that draw their nodes from one graph, and overlap.

    Features are row-normalised; the split is the public one, or drawn: `per_class` training nodes
    (20 where there is no public split), 500 for validation, 1000 for the test.

    Args:
        args: with ``dataset, seed, device, sparse``.
        proportions, common: see `fgl.data.overlapping_partition`.
        per_class: training nodes per class.

    Returns:
        The union of the clients' graphs, and one graph per client.

    Example:
        >>> args = arguments("fedgl", "").parse_args([])
        >>> union, clients = overlapping_federation(args, [0.3, 0.5], per_class=20)
        >>> len(clients), union.num_nodes < 2708
        (2, True)
    """
    graph = data.normalize_features(data.load(args.dataset))
    if per_class is not None or graph.train_mask is None:
        count = 20 if per_class is None else per_class
        graph = data.class_capped_split(
            graph, train_per_class=count, num_val=500, num_test=1000, seed=args.seed
        )
    graph = graph.replace(backend=args.sparse).to(args.device)
    parts = data.overlapping_partition(graph, proportions, common=common, seed=args.seed)
    return data.union_graph(graph, parts), data.partition_graph(graph, parts)


def build_model(args: argparse.Namespace, graph: Graph) -> GCN | GAT:
    """The model that the flags name, initialised from the seed.

    Example:
        >>> graph = fgl.Graph(torch.ones(2, 3), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> args = arguments("fedavg", "").parse_args(["--model", "gcn"])
        >>> type(build_model(args, graph)).__name__
        'GCN'
    """
    if graph.num_classes is None:
        raise ValueError("Expected graph to have labels, but got none")
    kind: type[GCN] | type[GAT] = {"gcn": GCN, "gat": GAT}[args.model]
    with torch.random.fork_rng([]):
        torch.manual_seed(args.seed)
        model = kind(graph.num_features, args.hidden, graph.num_classes, dropout=args.dropout)
    return model.to(args.device)


def training(args: argparse.Namespace) -> Training:
    """Optimiser and local steps that the flags name.

    Example:
        >>> training(arguments("fedavg", "").parse_args([])).num_steps
        4
    """
    options = {"lr": args.lr, "weight_decay": args.weight_decay}
    if args.optimizer == "sgd":
        options["momentum"] = args.momentum
    elif args.momentum:
        raise ValueError(f"Expected --momentum to be left out beside adam, but got {args.momentum}")
    return Training(partial(OPTIMIZERS[args.optimizer], **options), num_steps=args.steps)


def run_recipe(
    args: argparse.Namespace,
    method: Method,
    graph: Graph,
    clients: Sequence[Graph],
    *,
    evaluate: Evaluate | None = None,
    patience: int | None = None,
    select: str = VALIDATION,
) -> tuple[dict[str, Any], Result]:
    """Run a recipe's method, print its report and write it where ``--json`` says.

    Scores are those of the model(s) that the server would send next, on the whole graph.

    Args:
        args: the flags of `arguments`.
        method: what to run.
        graph: the whole graph.
        clients: the clients' graphs.
        evaluate: another scoring.
        patience: stop after so many rounds without a better validation; default never.
        select: the metric that says which round is best; see `report`.

    Returns:
        The report (see `report`) and the `Result`.

    Example:
        >>> args = arguments("fedavg", "").parse_args(["--rounds", "1", "--hidden", "8"])
        >>> graph, clients = federation(args)
        >>> method = Method(build_model(args, graph), train=training(args))
        >>> summary, _ = run_recipe(args, method, graph, clients)
        fedavg synthetic: test_accuracy last ..., best validation ...
        fedavg synthetic: val_accuracy last ..., best validation ...
    """
    torch.set_num_threads(args.threads)
    if args.json and Path(args.json).is_dir():
        raise ValueError(f"Expected --json to name a file, but got the folder {args.json}")
    name = f"{args.recipe} {args.dataset}"
    config = configuration(args)
    result = run(
        method,
        clients,
        num_rounds=args.rounds,
        seed=args.seed,
        participation=args.participation,
        clients_at_once=args.clients_at_once,
        evaluate=evaluate or evaluate_on(method.model, graph),
        callbacks=[
            progress(args.rounds, name),
            *([early_stop(patience, select)] if patience else []),
        ],
        checkpoint=args.checkpoint,
        config={"recipe": args.recipe, "dataset": args.dataset, **config},
    )
    summary = report(args, result, select=select)
    for metric, values in summary["metrics"].items():
        if "/" in metric:  # one client's
            continue
        said = ", ".join(f"{DESCRIBED[key]} {value:.4f}" for key, value in values.items())
        print(f"{name}: {metric} {said}")
    dropped = [(r.round, client, why) for r in result.history for client, why in r.dropped.items()]
    if dropped:
        print(f"{name}: {len(dropped)} messages dropped, the first (round, client): {dropped[0]}")
    if args.json:
        Path(args.json).parent.mkdir(parents=True, exist_ok=True)
        Path(args.json).write_text(to_json(summary))
    return summary, result


def number(low: float = -math.inf, high: float = math.inf) -> Callable[[str], float]:
    """An `argparse` type: a finite number from `low` to `high`, both included.

    Example:
        >>> number(0, 1)("0.5")
        0.5
        >>> number(0)("nan")
        Traceback (most recent call last):
        argparse.ArgumentTypeError: Expected a number >= 0, but got nan
    """
    return lambda text: _between(float(text), low, high, f"a number {_ends(low, high)}")


def integer(low: int) -> Callable[[str], int]:
    """An `argparse` type: an integer from `low` on.

    Example:
        >>> integer(1)("0")
        Traceback (most recent call last):
        argparse.ArgumentTypeError: Expected an integer >= 1, but got 0
    """
    return lambda text: int(_between(int(text), low, math.inf, f"an integer >= {low}"))


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Says the defaults, but not those of switches, nor None."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default is None or isinstance(action.default, bool):
            return action.help
        return super()._get_help_string(action)


def _between(value: float, low: float, high: float, wanted: str) -> float:
    if not (low <= value <= high and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"Expected {wanted}, but got {value}")
    return value


def _ends(low: float, high: float) -> str:
    ends = [f"{sign} {end}" for sign, end in ((">=", low), ("<=", high)) if math.isfinite(end)]
    return " and ".join(ends)


def _at_once(text: str) -> int | str:
    return text if text == "all" else integer(1)(text)

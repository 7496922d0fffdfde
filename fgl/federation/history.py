"""The history of a run: a record of each round, and the result after the last round."""

import copy
import csv
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import nn

from ..checks import check_disk, check_number, did_you_mean, imported, reject_if
from ..graph import Graph
from ..predict import predict
from ..targets import less_is_better, lower_of, selected
from ..warn import warn
from .method.fedavg import deploy_received
from .method.message import Message, Params, State, same
from .method.method import Method

LONGEST = 300  # characters of a reason that a history keeps


class HasMetrics(Protocol):
    """An object that contains the metrics of a round."""

    metrics: dict[str, float]


Scored = TypeVar("Scored", bound=HasMetrics)


def names_of(history: Sequence[HasMetrics]) -> list[str]:
    """The names of all metrics in a history.

    Example:
        >>> names_of([fgl.federation.Round(0, [0], metrics={"auc": 0.5})])
        ['auc']
    """
    return list(dict.fromkeys(name for record in history for name in record.metrics))


def usual_select(
    history: Sequence[HasMetrics], select: str = "", lower: Collection[str] = ()
) -> str:
    """The metric that selects the best round by default.

    Args:
        history: the rounds of a run.
        select: the task's metric; by default the first validation metric.
        lower: names of further metrics for which smaller values are better, in addition to losses,
            rmse, mae and mape.

    Example:
        >>> usual_select([fgl.federation.Round(0, [0], metrics={"val_loss": 1.0, "val_rmse": 0.5})])
        '-val_rmse'
    """
    names = names_of(history)
    if select.removeprefix("-") in names:
        return select
    validation = [name for name in names if name.startswith("val_") and "/" not in name]
    # A loss is chosen only if there is no other metric.
    first = min(validation, key=lambda name: name.endswith("_loss"), default="")
    usual = f"{'-' * less_is_better(first, lower=lower)}{first}" if first else ""
    if select and usual:
        warn(
            f"No round has {select}, so {usual} selects the best round{did_you_mean(select, names)}"
        )
    return usual


def checked_select(
    history: Sequence[Any], metric: str, select: str, lower: Collection[str] = ()
) -> str:
    """Check the metric that selects the best round, and return the metric's name.

    Args:
        history: the rounds of a run.
        metric: a metric's name, with a minus sign before the name if smaller values are better.
        select: the task's metric.
        lower: names of further metrics for which smaller values are better, in addition to losses,
            rmse, mae and mape.

    Raises:
        ValueError: if no round has the metric. A ValueError is also raised if smaller values of the
            metric are better, but the given name does not begin with a minus sign.
    """
    names = names_of(history)
    got = "none that has metrics: no client had examples to score, or the run had neither a task "
    want = f"rounds with {metric or select or 'a metric'}"
    reject_if(not names, want, f"{got}nor evaluate=")
    lacks = f", and no round has {select or 'a validation metric'}" if not metric else ""
    want = f"metric to be one of {', '.join(names)}, perhaps with a minus before it"
    got = f"{metric or 'none'}{lacks or did_you_mean(metric, names)}"
    reject_if(metric.removeprefix("-") not in names, want, got)
    want = f'metric to be "-{metric}", since less is better'
    reject_if(less_is_better(metric, select, lower), want, f'"{metric}"')
    return metric


def best_round(history: Sequence[Scored], select: str = "val_accuracy") -> Scored:
    """The round with the largest value of the metric `select`.

    If a name begins with a minus, as in ``"-val_rmse"``, the smallest value is best. If several
    rounds have the best value, the round with the smallest ``val_loss`` is returned. If these
    losses are equal too, the earliest of these rounds is returned. Rounds with fewer
    ``scored_clients`` than the maximum are ignored, since a mean over fewer clients is less
    reliable.

    Args:
        history: the rounds of a run, at least one.
        select: the metric's name, with a minus before the name if smaller values are better.

    Returns:
        The best round.

    Example:
        >>> scores = [0.7, 0.8, 0.8, float("nan")]
        >>> rounds = [
        ...     fgl.federation.Round(index, [0], metrics={"val_accuracy": score})
        ...     for index, score in enumerate(scores)
        ... ]
        >>> best_round(rounds).round
        1
    """

    def key(record: Scored) -> tuple[bool, float, float, float]:
        metrics = record.metrics
        value = selected(metrics, select)  # NaN if no client could be scored
        clients, loss = metrics.get("scored_clients", 0.0), metrics.get("val_loss", 0.0)
        return not math.isnan(value), clients, value, -loss

    names = names_of(history)
    if names and select.removeprefix("-") not in names:
        warn(f"No round has {select}, so the best of them is unknown{did_you_mean(select, names)}")
    return max(history, key=key)


@dataclass
class Round:
    """The record of a round.

    Args:
        round: number of the round, from 0.
        participants: clients to which a message was sent.
        dropped: dict from client to reason, for clients whose messages were not used.
        zero_weight: participants that have no training examples or no known labels.
        loss: the mean over clients of each client's mean local loss. A client is included if it has
            training examples and the server used its upload. A client's mean is left out if it is
            not finite. Let m be the median of the absolute values of these means, or 1 if the
            median is smaller. A mean is also left out if its absolute value exceeds ``300 m``.
        padding: fraction of padded nodes among all nodes of the batches.
        one_by_one: the reason why clients could not train as a batch. If a reason is given, clients
            train one at a time from this round on. Otherwise the field is empty. The field is also
            empty if the user set `clients_at_once`.
        untraced: the reason why local steps are not traced from this round on. The field is empty
            in all other rounds. The field is ignored when rounds are compared.
        bytes_down, bytes_up: total size of the messages sent to clients, and of the messages sent
            by clients. Malformed messages are not counted. In round 0 `bytes_up` includes the
            joining messages of all clients.
        seconds: time from the broadcast to the end of evaluation. The field is ignored when rounds
            are compared.
        metrics: the metrics from `evaluate`, `score` and `watch`.

    Example:
        >>> Round(round=0, participants=[0, 1]).dropped
        {}
    """

    round: int
    participants: list[int]
    dropped: dict[int, str] = field(default_factory=dict)
    zero_weight: list[int] = field(default_factory=list)
    loss: float = math.nan
    padding: float = 0.0
    one_by_one: str = ""
    untraced: str = field(default="", compare=False)
    bytes_down: int = 0
    bytes_up: int = 0
    seconds: float = field(default=0.0, compare=False)
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether the round used no upload.

        Example:
            >>> Round(0, [0, 1], {0: "dropped out"}).is_empty
            False
        """
        return len(self.dropped) >= len(self.participants)

    def numbers(self) -> dict[str, float]:
        """All numbers of the round, by name.

        Lists of clients are replaced by their lengths.

        Example:
            >>> Round(0, [0, 1], dropped={1: "dropped out"}, metrics={"auc": 0.5}).numbers()
            {'round': 0, 'auc': 0.5, 'train_loss': nan, 'participants': 2, 'dropped': 1,
             'bytes_down': 0, 'bytes_up': 0, 'seconds': 0.0}
        """
        return {
            "round": self.round,
            **self.metrics,
            "train_loss": self.loss,
            "participants": len(self.participants),
            "dropped": len(self.dropped),
            "bytes_down": self.bytes_down,
            "bytes_up": self.bytes_up,
            "seconds": self.seconds,
        }


@dataclass(repr=False)
class Result:
    """The result of a run: the final messages and states, and the history.

    Args:
        outbox: the server's next message to each client; ``outbox[0]["model"]`` is the model.
        server_state: the server's state.
        client_states: each client's state.
        history: one `Round` per round.
        form: the agreed names, dtypes and shapes of uploads; later uploads must have this form. The
            dict is empty if too few clients have sent uploads of one form.
        older: outboxes and server states of earlier rounds, the oldest first. The list is empty
            unless the run was started with `go_back`.
        config: the config of the run. The config's entry ``"layers"`` contains the arguments of the
            method's builders, from the innermost to the outermost builder.
        method: the method that was run; None if the result was unpickled or created by hand.
        clients: the clients' graphs, if clients are in this process.
        select: the task's metric by which the best round is selected; "" without a task.
        unprotected: dict from client to the number of answers without noise that the client gave in
            earlier runs. The dict is empty if this run was not started from an earlier run. The
            dict is also empty if the server's state counts the answers without noise.

    Example:
        >>> Result({0: {"model": {}}}, {}, {}, [Round(0, [0], metrics={"val_auc": 0.5})])
        Result: 1 round, 1 client, 0.0 s
          last  (round 0): val_auc 0.5000
          best  (round 0, val_auc): val_auc 0.5000
          bytes: -
          dropped: 0 of 1 messages
    """

    outbox: Mapping[int, Message]
    server_state: State
    client_states: dict[int, State]
    history: list[Round]
    form: dict[str, Any] = field(default_factory=dict)
    older: list[tuple[Mapping[int, Message], State]] = field(default_factory=list, repr=False)
    config: dict[str, Any] = field(default_factory=dict)
    method: Method | None = field(default=None, compare=False)
    clients: Sequence[Graph] = field(default=(), compare=False)
    select: str = field(default="", compare=False)
    unprotected: dict[int, int] = field(default_factory=dict, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """The fields to pickle; the method's functions and the clients' data are left out."""
        return {**vars(self), "method": None, "clients": ()}

    def __repr__(self) -> str:
        count, clients = len(self.history), len(self.outbox)
        seconds = sum(record.seconds for record in self.history)
        of = "" if self.method is None else f" of {self.method}"
        lines = [
            f"Result{of}: {_some(count, 'round')}, {_some(clients, 'client')}, {seconds:.1f} s"
        ]
        if count:
            lines.append(f"last  (round {count - 1}): {_told(self.history[-1])}")
        if select := self.selects:
            best = best_round(self.history, select)
            lines.append(f"best  (round {best.round}, {select}): {_told(best)}")
        up, down = (sum(getattr(r, f"bytes_{way}") for r in self.history) for way in ("up", "down"))
        text = f"{up / 1e6:.3f} MB up, {down / 1e6:.3f} MB down"
        lines.append(f"bytes: {text if any(self.traffic) else '-'}")
        sent = sum(len(record.participants) for record in self.history)
        dropped = [(r.round, *each) for r in self.history for each in r.dropped.items()]
        first = "; first: round {}, client {}: {}".format(*dropped[0]) if dropped else ""
        lines.append(f"dropped: {len(dropped)} of {sent} messages{first}")
        return "\n  ".join(lines)

    @property
    def traffic(self) -> list[int]:
        """Bytes sent in each round: uploads plus downloads.

        Local and centralized training need no server, so all values are 0. In local training
        clients send nothing, and in centralized training there is only one client.
        """
        alone = len(self.outbox) == 1 or not any(record.bytes_up for record in self.history)
        return [0 if alone else record.bytes_up + record.bytes_down for record in self.history]

    @property
    def selects(self) -> str:
        """The metric by which `best` selects a round; "" if there are no validation metrics."""
        return usual_select(self.history, self.select, lower_of(self.config))

    @property
    def model(self) -> nn.Module:
        """A copy of the model that all clients currently use, in evaluation mode.

        Raises:
            ValueError: if clients use different models (see `model_of`), or if the result does not
                come from `fgl.run`. A ValueError is also raised if clients are in other processes
                and the server's message lacks a part of their models.

        Example:
            >>> task = fgl.tasks.Nodes(clients=3, hidden=8).load(seed=0)
            >>> result = fgl.run(task.fedavg, task, num_rounds=1)
            >>> result.model(task.whole.x, task.whole.adj).shape
            torch.Size([2708, 7])
        """
        first = self._deployed(0)
        for client in range(1, len(self.outbox)):
            other = self._deployed(client)
            want = "clients to use one model"
            got = f"another of client {client}: result.model_of(client) is that of one client"
            reject_if(other is not first and not same(first, other), want, got)
        return self._module(0, first)

    def model_of(self, client: int) -> nn.Module:
        """A copy of the model that one client currently uses, in evaluation mode.

        Raises:
            ValueError: if there is no such client, or if the client's model is unknown (see
                `model`).

        Example:
            >>> task = fgl.tasks.Nodes(clients=3, hidden=8).load(seed=0)
            >>> result = fgl.run(fgl.methods.local(task.fedavg), task, num_rounds=1)
            >>> graph = task.clients[1]
            >>> result.model_of(1)(graph.x, graph.adj).shape[1]
            7
        """
        return self._module(client, self._deployed(client))

    def predict(self, graph: Graph, *, client: int | None = None, **options: Any) -> Any:
        """The trained model's output for a graph, in evaluation mode and without gradients.

        Args:
            graph: a graph, such as a new client's graph. The graph must have all fields that the
                model reads.
            client: number of the client whose model is used; needed if clients have different
                models. By default the model that all clients share is used.
            options: keyword arguments for the model, such as ``return_embedding=True``.

        Returns:
            The output, such as logits ``[num_nodes, num_classes]``.

        Raises:
            ValueError: if `model` or `model_of` raises a ValueError, or if the graph lacks a field
                that the model reads.

        Example:
            >>> task = fgl.tasks.Nodes(clients=3, hidden=8).load(seed=0)
            >>> result = fgl.run(task.fedavg, task, num_rounds=1)
            >>> result.predict(task.whole).shape
            torch.Size([2708, 7])
        """
        model = self.model if client is None else self.model_of(client)
        with torch.no_grad():
            return predict(model, model.state_dict(), graph, **options)

    def _deployed(self, client: int) -> Params:
        """The parameters that a client currently uses."""
        if self.method is None:
            raise ValueError(
                "Expected the result to be what fgl.run returned, which knows its method, but got "
                "one that was made by hand or pickled: result.outbox[client]['model'] may have "
                "the parameters"
            )
        check_number("client", client, at_least=0, integer=True)
        reject_if(client not in self.outbox, f"client to be < {len(self.outbox)}", client)
        message, state = self.outbox[client], self.client_states.get(client, {})
        if not self.clients:
            wrong = self.method.deploy is not deploy_received or self.method.own.models is not None
            want = "the clients to be in this process, since their models depend on what they keep"
            reject_if(wrong, want, "clients elsewhere")
            return deploy_received(message, state, None)  # type: ignore[arg-type]
        graph = self.clients[client]
        with self.method.at(graph), torch.no_grad():
            return self.method.deploy(message, state, graph)

    def _module(self, client: int, params: Params) -> nn.Module:
        assert self.method is not None  # `_deployed` has checked it
        method = self.method
        own = method.model_of(self.clients[client]) if self.clients else method.model
        model = copy.deepcopy(own).eval()
        model.load_state_dict(params)
        model.register_forward_pre_hook(_takes_no_graph)
        return model

    def best(self, metric: str = "") -> Round:
        """The round with the best value of a metric (see `best_round`).

        Args:
            metric: the metric's name. If smaller values are better, put a minus sign before the
                name, as in ``"-val_rmse"``. The default is the task's metric, or the first
                validation metric if the task names no metric.

        Raises:
            ValueError: if no round has the metric, or if no metric is given and no round has a
                validation metric. A ValueError is also raised if smaller values of the metric are
                better, but the given name does not begin with a minus sign.

        Example:
            >>> rounds = [Round(k, [0], metrics={"val_rmse": 0.5 + k}) for k in range(3)]
            >>> result = Result({}, {}, {}, rounds)
            >>> result.best("-val_rmse").metrics
            {'val_rmse': 0.5}
            >>> result.best("val_rmse")
            Traceback (most recent call last):
            ValueError: Expected metric to be "-val_rmse", since less is better, but got "val_rmse"
        """
        if not metric and self.selects:
            return best_round(self.history, self.selects)
        lower = lower_of(self.config)
        return best_round(self.history, checked_select(self.history, metric, self.select, lower))

    def to_dict(self) -> dict[str, Any]:
        """Dict with the method's name, the config and all rounds; the run's tensors are left out.

        Returns:
            ``{"method", "config", "rounds"}``; each round is a dict of the fields of `Round`.

        Example:
            >>> Result({}, {}, {}, [Round(0, [0, 1])]).to_dict()["rounds"][0]["participants"]
            [0, 1]
        """
        return {
            "method": "" if self.method is None else repr(self.method),
            "config": copy.deepcopy(self.config),
            "rounds": [asdict(record) for record in self.history],
        }

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write a CSV table with one line per round; the columns are the keys of `Round.numbers`.

        Raises:
            OSError: if the file cannot be written.

        Example:
            >>> path = getfixture("tmp_path") / "run.csv"
            >>> Result({}, {}, {}, [Round(0, [0], metrics={"auc": 0.5})]).to_csv(path)
            >>> path.read_text().splitlines()[1]
            '0,0.5,nan,1,0,0,0,0.0'
        """
        rows = [record.numbers() for record in self.history]
        names = dict.fromkeys(name for row in rows for name in row)
        with check_disk(f"path to be a file that can be written, which {path} is not"):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            with open(path, "w", newline="", encoding="utf-8") as file:
                table = csv.DictWriter(file, list(names), lineterminator="\n")
                table.writeheader()
                table.writerows(rows)

    def to_pandas(self) -> Any:
        """The table of `to_csv` as a pandas ``DataFrame`` with the round as index.

        Raises:
            ImportError: if pandas is not installed.

        Example:
            >>> result = Result({}, {}, {}, [Round(0, [0], metrics={"auc": 0.5})])
            >>> result.to_pandas()["auc"].max()  # doctest: +SKIP
            0.5
        """
        how = "pip install pandas; to_dict and to_csv need nothing"
        pandas = imported("pandas", "for to_pandas", how)
        return pandas.DataFrame([record.numbers() for record in self.history]).set_index("round")


def _takes_no_graph(model: nn.Module, arguments: tuple[Any, ...]) -> None:
    """Raise an error if a trained model is called with a graph instead of tensors."""
    got = "a Graph: result.predict(graph) calls it with what it reads"
    wrong = any(isinstance(each, Graph) for each in arguments[:1])
    reject_if(wrong, f"{type(model).__name__} to be called with tensors", got, TypeError)


def _some(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _told(record: Round) -> str:
    """A round's metrics as text, without metrics of single clients."""
    metrics = {name: value for name, value in record.metrics.items() if "/" not in name}
    return ", ".join(f"{name} {_spelled(value)}" for name, value in metrics.items()) or "no metrics"


def _spelled(value: float) -> str:
    """A number with four decimals; a small number, such as a delta of 1e-05, has more than four."""
    return f"{value:.4f}" if value == 0 or abs(value) >= 1e-3 else f"{value:.2g}"


def reason(error: Exception) -> str:
    """The reason why an upload was refused, as text for the history.

    Example:
        >>> reason(KeyError("w")), reason(ValueError("too large"))
        ("KeyError: 'w'", 'too large')
    """
    text = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)
    return shortened(text)


def shortened(text: str) -> str:
    """A client's text for the history, shortened and without unprintable characters.

    Example:
        >>> shortened("a\x1b[2Jb"), len(shortened("a" * 1000))
        ('a?[2Jb', 300)
    """
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
    return "".join(
        letter if letter.isprintable() else " " if letter.isspace() else "?" for letter in text
    )


def of_whom(whys: Mapping[int, str]) -> str:
    """The reasons of several clients as one text; clients with equal reasons are listed together.

    Example:
        >>> of_whom({0: "late", 1: "late", 2: "late", 3: "gone", 5: "late"})
        'clients 0-2, 5: late; client 3: gone'
    """
    by_reason: dict[str, list[int]] = {}
    for client, text in sorted(whys.items()):
        by_reason.setdefault(text, []).append(client)
    return "; ".join(
        f"client{'s' if len(clients) > 1 else ''} {_spans(clients)}: {text}"
        for text, clients in by_reason.items()
    )


def _spans(numbers: Sequence[int]) -> str:
    """Sorted whole numbers as text; a range of consecutive numbers is written as ``first-last``."""
    ends: list[list[int]] = []
    for number in numbers:
        if ends and number == ends[-1][1] + 1:
            ends[-1][1] = number
        else:
            ends.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ends)

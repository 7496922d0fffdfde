"""No data before the mechanism: what is seen of a client has one form, whatever its data are.

An observer who sees that a client raises, is absent, warns, keeps a state or sends another shape
needs no model to tell two data sets apart, and no noise hides it. So each private transform runs on
a federation and on its neighbours, whose first client has other data, and everything that the
transform's observer sees beside the noisy numbers must be equal.

The suite let four of them pass at 820a2c65, where they stood in `dp_sgd`: the first examples, the
plain mean, losses that raise, the classes of all labels (`benchmarks/results/truth_mutants.json`).

Each of these faults, put in by hand, is found by the test that is named:

    the loss is compared on the client's first examples      a_neighbour[per_example_gaussian]
    DP-SGD asks the method's loss of all examples too        a_neighbour[per_example_gaussian]
    clip returns an update that is not finite                a_neighbour[local_gaussian, central...]
    clients of local_gaussian are not silent                 a_neighbour[local_gaussian]
    clients of secure_sum are not silent                     a_neighbour[secure_sum, summed_...]
    clipped keeps a state where a client has examples        a_neighbour[local_gaussian, summed_...]
    clipped says the number of examples                      a_neighbour[clipped, local_..., ...]
    an example whose loss raises is not left out             a_neighbour, what_cannot_be_used
    an example's graph has the classes of all labels         what_cannot_be_used_changes_nothing
    half-known losses must have the plain mean               what_cannot_be_used, half_known_answers
    the first examples are compared, as above                half_known_answers
    another name is exported                                 every_private_transform_has_a_row
    rounded_downloads becomes silent                         every_private_transform_has_a_row
    labels, or features, are not checked in a Graph          labels_beyond_the_classes
    secure_rows has a bound of 2^16                          rows_of_a_sum_have_one_form
    a client of secure_rows refuses a feature that is 0      rows_of_a_sum_have_one_form
"""

from __future__ import annotations

import inspect
import secrets
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch

import fgl
from fgl import Method, Training, targets, transforms
from fgl.federation import Here
from fgl.federation.method.message import leaves
from fgl.privacy.signatures import signing_key

Clients = list[fgl.Graph]
NOISE: dict[str, Any] = {"length": 1.0, "noise_multiplier": 2.0}
STEPS: dict[str, Any] = {"sample_rate": 1.0, "num_steps": 1, "expected_batch_size": 8}
NONE = torch.zeros(2, 0, dtype=torch.int64)
KEYS = [secrets.token_bytes(32) for _ in range(3)]


class Rows(torch.nn.Module):
    """A perceptron that looks at no edge."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 5), torch.nn.Linear(5, 3)

    def forward(self, x: Any, adj: Any = None) -> Any:
        return self.two(self.one(x).relu())


# Data: what three clients have, and a model for it.


def classes() -> tuple[Method, Clients]:
    torch.manual_seed(0)
    clients = [fgl.Graph(torch.randn(8, 4), NONE, y=torch.arange(8) % 3) for _ in range(3)]
    return fgl.fedavg(Rows(), train=Training(num_steps=2)), clients


def answers() -> tuple[Method, Clients]:
    """Three questions each, all answered."""
    method, clients = classes()
    clients = [
        own.replace(y=(torch.rand(8, 3) < 0.5).float(), train_mask=torch.arange(8) < 7)
        for own in clients
    ]
    return fgl.fedavg(Rows(), train=method.train, target=targets.ANSWERS), clients


def graphs() -> tuple[Method, Clients]:
    torch.manual_seed(0)
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    clients = []
    for _ in range(3):
        parts = [fgl.Graph(torch.randn(3, 4), edges) for _ in range(8)]
        clients.append(fgl.Graph.join(parts, (torch.rand(8, 3) < 0.5).float()))
    model = fgl.nn.GIN(4, 5, 3, num_layers=1)
    train = Training(num_steps=2)
    return fgl.fedavg(model, train=train, target=targets.ANSWERS), clients


# Neighbours: what becomes of the first client's data.


def moved(own: fgl.Graph, by: float) -> fgl.Graph:
    x: Any = own.x.clone()  # type: ignore[union-attr]
    x[0] += by
    return own.replace(x=x)


def taken(own: fgl.Graph, which: Sequence[int]) -> fgl.Graph:
    """The examples `which`, in this order."""
    if own.batch is not None:
        return own.select(torch.tensor(which, dtype=torch.int64))
    y: Any = own.y
    mask = None if own.train_mask is None else own.train_mask[list(which)]
    return fgl.Graph(own.x[list(which)], NONE, y=y[list(which)], train_mask=mask)  # type: ignore[index]


def labelled(own: fgl.Graph, value: float, columns: int) -> fgl.Graph:
    y: Any = own.y.clone()  # type: ignore[union-attr]
    y[(0, slice(columns)) if y.dim() == 2 else 0] = value
    return own.replace(y=y, **({} if y.is_floating_point() else {"num_classes": int(y.max()) + 1}))


def untrained(own: fgl.Graph) -> fgl.Graph:
    return own.replace(train_mask=torch.zeros(own.num_examples, dtype=torch.bool))


NEIGHBOURS: dict[str, Callable[[fgl.Graph], fgl.Graph]] = {
    "another example": partial(moved, by=1.0),
    "an example far away": partial(moved, by=1e20),
    "an example that overflows": partial(moved, by=3e38),
    "another label": partial(labelled, value=1, columns=1),
    "one example fewer": lambda own: taken(own, range(1, 8)),
    "one example": lambda own: taken(own, [3]),
    "an example twice": lambda own: taken(own, [0, *range(8)]),
    "another order": lambda own: taken(own, [5, 2, 7, 0, 1, 6, 4, 3]),
    "nobody trains": untrained,
    "no example": lambda own: own if own.batch is not None else taken(own, []),
}
UNKNOWN: dict[str, Callable[[fgl.Graph], fgl.Graph]] = {
    "one answer unknown": partial(labelled, value=torch.nan, columns=1),
    "two answers unknown": partial(labelled, value=torch.nan, columns=2),
    "an example without an answer": partial(labelled, value=torch.nan, columns=3),
    "unknown, in another order": lambda own: taken(
        labelled(own, torch.nan, 2), [5, 2, 7, 0, 1, 6, 4, 3]
    ),
}
BEYOND: dict[str, Callable[[fgl.Graph], fgl.Graph]] = {
    "a label beyond the classes": partial(labelled, value=9, columns=1),
}
OVERFLOWS = ("an example far away", "an example that overflows")


# Transforms: how each is put around a method, who observes it, and what it says that it tells.


@dataclass(frozen=True)
class Row:
    """A private transform.

    Args:
        wrap: from a plain method to a private one.
        data: on which data it runs.
        sees: ``"answers"``, what the server gets of a client, or ``"outbox"``, what it sends where
            it is trusted, or ``"messages"``, answers without what stands beside them.
        more: neighbours beside `NEIGHBOURS` and, where answers are numbers, `UNKNOWN`.
        tells: neighbours of which the documentation says that one bit of them is seen: whether a
            client can send.
    """

    wrap: Callable[[Method], Method]
    data: Sequence[Callable[[], tuple[Method, Clients]]] = (answers,)
    sees: str = "answers"
    more: dict[str, Callable[[fgl.Graph], fgl.Graph]] = field(default_factory=dict)
    tells: Sequence[str] = ()


def signed(method: Method) -> Method:
    public = {client: signing_key(key) for client, key in enumerate(KEYS)}

    def own(graph: fgl.Graph) -> bytes:
        number: Any = graph.node_id
        return KEYS[int(number[0]) if len(number) else 0]

    signatures = transforms.Signatures(public, own)
    return transforms.secure_sum(method, threshold=3, signed=signatures)


def named(make: Callable[[], tuple[Method, Clients]]) -> tuple[Method, Clients]:
    """The data, whose nodes know whose they are, for `signed`."""
    method, clients = make()
    return method, [
        own.replace(node_id=torch.full((own.num_nodes,), k)) for k, own in enumerate(clients)
    ]


ROWS: dict[str, Row] = {
    "per_example_gaussian": Row(
        lambda method: transforms.per_example_gaussian(method, **NOISE, **STEPS),
        (classes, answers, graphs),
        more=BEYOND,
    ),
    "local_gaussian": Row(
        lambda method: transforms.local_gaussian(method, **NOISE), (classes, answers, graphs)
    ),
    "central_gaussian": Row(
        lambda method: transforms.central_gaussian(method, **NOISE),
        (classes, answers),
        sees="outbox",
    ),
    "summed_gaussian": Row(lambda method: transforms.summed_gaussian(method, threshold=3, **NOISE)),
    "secure_sum": Row(lambda method: transforms.secure_sum(method, threshold=3), tells=OVERFLOWS),
    "Signatures": Row(signed, (partial(named, answers),), tells=OVERFLOWS),
    "clipped": Row(lambda method: transforms.clipped(method, length=1.0), sees="messages"),
}
OTHERS = {  # names that build no private method
    "attacked", "scaled_updates",  # attacks
    "clients_summed", "privacy_spent", "summed_rounds",  # read a run
    "quantised", "rounded_downloads", "sparsified",  # make messages shorter
    "robust",  # reads what clients send
    "secure_rows",  # sums rows before a run, tested below
}  # fmt: skip


def form(message: Any) -> Any:
    """Everything of a message but its numbers: names, shapes, dtypes, and whether it is finite."""
    if message is None:
        return None
    return [
        (path, tuple(value.shape), value.dtype, bool(value.double().isfinite().all()))
        for path, value in leaves(message)
    ]


def observed(method: Method, clients: Clients, sees: str) -> list[Any]:
    """All that is seen of a run, in order, with its warnings and its error."""
    seen: list[Any] = []

    class Watching(Here):
        def __call__(self, *given: Any, **how: Any) -> Any:
            loop: Any = super().__call__(*given, **how)
            train = loop.train

            def heard(index: int, outbox: Any, who: Sequence[int]) -> Any:
                replies = train(index, outbox, who)
                for client, answer in replies if sees != "outbox" else ():
                    beside = [answer.losses, answer.num_examples, bool(loop._new[client])]
                    note = beside if sees == "answers" else []
                    seen.append((index, client, form(answer.message), answer.problem, note))
                return replies

            loop.train = heard
            return loop

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "Sparse CSR")  # of torch, once in a process
        try:
            place = Watching(clients, at_once=1)
            result = fgl.run(method, place, num_rounds=method.rules.exchange, seed=0)
        except Exception as error:
            seen.append((type(error), str(error)))
        else:
            seen.append([form(result.outbox[client]) for client in range(len(clients))])
            for record in result.history:
                seen.append((record.dropped, record.bytes_up, record.bytes_down))
                seen += [record.zero_weight, str(record.loss)] if sees == "answers" else []
    return [*seen, *((each.category, str(each.message)) for each in caught)]


def neighbours(row: Row, own: fgl.Graph) -> dict[str, Callable[[fgl.Graph], fgl.Graph]]:
    unknown = own.y is not None and own.y.is_floating_point() and own.y.dim() == 2
    return {**NEIGHBOURS, **(UNKNOWN if unknown else row.more)}


@pytest.mark.parametrize("name", ROWS)
def test_a_neighbour_is_seen_as_the_data_are(name: str) -> None:
    row = ROWS[name]
    for make in row.data:
        plain, clients = make()
        method = row.wrap(plain)
        want = observed(method, clients, row.sees)
        assert all(isinstance(each, list | tuple | str) for each in want), want
        assert not any(isinstance(each[0], type) for each in want if each), want  # runs, in silence
        told = []
        for kind, change in neighbours(row, clients[0]).items():
            other = change(clients[0])
            if clients[0].node_id is not None:
                other = other.replace(node_id=torch.zeros(other.num_nodes, dtype=torch.int64))
            got = observed(method, [other, *clients[1:]], row.sees)
            if kind in row.tells:
                told.append(got)
            else:
                assert got == want, (name, make, kind)
        assert all(got == told[0] for got in told)  # one bit, and nothing of what overflowed


@pytest.mark.parametrize("make", [classes, answers, graphs])
def test_what_cannot_be_used_changes_nothing(make: Callable[[], tuple[Method, Clients]]) -> None:
    """DP-SGD's sum is then the others', as without that example, whose place is the first."""
    plain, (own, *_) = make()
    how = {**NOISE, **STEPS, "noise_multiplier": 1e-9, "length": 0.1}
    method = transforms.per_example_gaussian(plain, **how)
    row = Row(lambda method: method, more=BEYOND)
    kinds = [*BEYOND, "an example without an answer"]
    ((kind, change),) = ((k, c) for k, c in neighbours(row, own).items() if k in kinds)

    def trained(graph: fgl.Graph) -> Any:
        return fgl.run(method, [graph], num_rounds=1).outbox[0]["model"]

    want, whole, got = trained(taken(own, range(1, 8))), trained(own), trained(change(own))
    for name, value in want.items():
        torch.testing.assert_close(got[name], value, atol=1e-6, rtol=1e-5, msg=kind)
    assert not all(torch.allclose(whole[name], value, atol=1e-6) for name, value in want.items())


def test_every_private_transform_has_a_row() -> None:
    """A new transform is named in one of the two tables; what looks private has a row."""
    assert {*ROWS, *OTHERS} == set(transforms.__all__)
    assert not {*ROWS} & OTHERS
    plain, _ = classes()
    given: dict[str, Any] = {"threshold": 3, "rule": fgl.aggregate.robust.median, "share": 0.5}
    for name in OTHERS:
        builder = getattr(transforms, name)
        asked = inspect.signature(builder).parameters
        needs = {key: given[key] for key in given if key in asked}
        try:
            built = builder(plain, **needs)
        except (TypeError, ValueError, AttributeError):
            continue
        if isinstance(built, Method):
            privacy = built.privacy
            assert not built.rules.silent and privacy.account is None, name
            assert not privacy.onward, name


def test_labels_beyond_the_classes_are_refused_where_a_graph_is_made() -> None:
    """So no method sees them, if a site says how many classes there are, as it should."""
    _, clients = classes()
    for own in clients:
        given = own.replace(num_classes=3)
        with pytest.raises(ValueError, match="y to be in"):
            given.replace(y=torch.full((8,), 3))
        with pytest.raises(ValueError, match="x to be finite"):
            given.replace(x=torch.full((8, 4), torch.nan))


def test_rows_of_a_sum_have_one_form() -> None:
    """FedGCN's exchange: what crosses the wire, and who is told what, depend on the edges alone."""
    whole = fgl.Graph(torch.eye(4), torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]))
    members = [torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([3])]
    seen = []
    for x in (torch.eye(4), 1e6 * torch.eye(4), torch.zeros(4, 4), torch.ones(4, 4)):
        total = transforms.secure_rows(threshold=3)
        made = fgl.data.neighbour_sums(whole.replace(x=x), members, hops=1, total=total)
        forms = [(tuple(own.x.shape), own.x.dtype) for own in made.clients]
        seen.append((made.num_bytes, forms))
    assert all(each == seen[0] for each in seen)


def test_dp_sgd_learns_what_half_known_answers_say() -> None:
    """Tox21's kind: one step without noise is the mean of the clipped gradients, known by NaN."""
    plain, clients = answers()
    own = clients[0].replace(y=clients[0].y.masked_fill(torch.rand(8, 3) < 0.3, torch.nan))  # type: ignore[union-attr]
    how: Any = {"length": 0.4, "noise_multiplier": 1e-9, "sample_rate": 1.0, "num_steps": 1}
    method = transforms.per_example_gaussian(plain, **how, expected_batch_size=own.num_train)
    start = plain.initial()
    want = {name: torch.zeros_like(value) for name, value in start.items()}
    for i in range(7):
        leaves_ = {name: value.clone().requires_grad_() for name, value in start.items()}
        out = torch.func.functional_call(plain.model, leaves_, (own.x[i : i + 1],))  # type: ignore[index]
        known = ~own.y[i].isnan()  # type: ignore[index]
        if not known.any():
            continue
        each = torch.nn.functional.binary_cross_entropy_with_logits
        grads = torch.autograd.grad(
            each(out[0][known], own.y[i][known]),  # type: ignore[index]
            list(leaves_.values()),
        )
        short = min(1.0, 0.4 / float(torch.cat([g.flatten() for g in grads]).norm()))
        want = {n: w + short * g for (n, w), g in zip(want.items(), grads, strict=True)}
    result = fgl.run(method, [own], num_rounds=1)
    got: Any = result.outbox[0]["model"]
    for name, value in start.items():
        expected = value - 0.1 * want[name] / own.num_train
        torch.testing.assert_close(got[name], expected, atol=1e-6, rtol=1e-5)

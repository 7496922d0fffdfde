"""Servers that say what they read: `OfMeans` and `after`, and who takes them."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from federations import close, refuses, same

import fgl
from fgl import Method, methods
from fgl.federation import Inbox, Means, OfMeans, after, average
from fgl.federation.saved.identity import identity
from fgl.transforms import local_gaussian

COUNTS = (3, 0, 1, 6)
SENT = {"model": {"w": torch.tensor([1.0, -2.0, 0.5])}}


def uploads(counts: Any = COUNTS) -> Inbox:
    g = torch.Generator().manual_seed(0)
    came: dict[int, Any] = {
        2 * k: {
            "model": {"w": SENT["model"]["w"] + torch.randn(3, generator=g)},
            "shift": {"w": torch.randn(3, generator=g)},
            "rows": torch.randn(2, generator=g),
            "num_examples": torch.tensor(count),
        }
        for k, count in enumerate(counts)
    }
    return Inbox(came, 9, dict.fromkeys(came, SENT), round=5)


def plain() -> Method:
    """FedAvg whose clients move towards their own number of nodes."""
    torch.manual_seed(0)

    def loss(params: Any, graph: fgl.Graph, context: Any) -> Any:
        return (params["weight"] - graph.num_nodes).square().sum()

    return fgl.fedavg(torch.nn.Linear(2, 1, bias=False).double(), loss=loss)


def test_the_server_gets_the_means_and_no_upload() -> None:
    """Means by a plain loop; each entry of an upload that is not named is out of reach."""
    inbox = uploads()
    seen: list[Means] = []

    def serve(means: Means, state: Any) -> Any:
        seen.append(means)
        return {}, {**state, "k": torch.tensor(1)}

    assert OfMeans(serve, equally=("shift",), reads=("rows",))(inbox, {"n": torch.tensor(2)}) == (
        {},
        {"n": torch.tensor(2), "k": torch.tensor(1)},
    )
    (means,) = seen
    weighted, plain_mean = torch.zeros(3), torch.zeros(3)
    for message in inbox.values():
        weighted += message["num_examples"] / sum(COUNTS) * message["model"]["w"]
        plain_mean += message["shift"]["w"] / len(COUNTS)
    assert set(means) == {"model", "shift"}
    close(means["model"]["w"], weighted, atol=1e-6)
    close(means["shift"]["w"], plain_mean, atol=1e-6)
    assert (means.clients, means.num_clients, means.inbox.round) == ([0, 2, 4, 6], 9, 5)
    assert all(set(message) == {"rows"} for message in means.inbox.values())
    assert means.inbox.stack("rows").equal(inbox.stack("rows"))
    with pytest.raises(TypeError, match="'rows' .* dict of tensors"):
        OfMeans(serve, equally=("rows",))(inbox, {})
    for key in ("model", "shift", "num_examples"):
        with pytest.raises(ValueError, match=f"'{key}'"):
            means.inbox.stack(key)
    refuses("rows", lambda: means["rows"], KeyError)


def test_nobody_s_examples_have_no_mean() -> None:
    def serve(means: Means, state: Any) -> Any:
        return {}, {"has": torch.tensor("model" in means), **means["shift"]}

    inbox = uploads([0, 0])
    _, state = OfMeans(serve, equally=("shift",))(inbox, {})
    assert not state["has"]
    close(state["w"], (inbox[0]["shift"]["w"] + inbox[2]["shift"]["w"]) / 2, atol=1e-6)


def note(outbox: Any, new: Any, means: Means, state: Any) -> Any:
    """A change that reads all that it may."""
    rows = {str(k): message["rows"] for k, message in means.inbox.items()}
    shift = means["shift"]["w"]
    return outbox, {**new, "before": state["n"], "rows": rows, "shift": shift}


@pytest.mark.parametrize("counts", [COUNTS, (0, 0)])
@pytest.mark.filterwarnings("ignore:Expected num_examples to be positive")
def test_a_change_sees_the_same_after_any_kind_of_server(counts: Any) -> None:
    whole = lambda inbox, state: average(inbox, state)  # noqa: E731
    keys: Any = {"equally": ["shift"], "reads": ["rows"]}
    state = {"n": torch.tensor(4)}
    typed, untyped = (after(server, note, **keys) for server in (average, whole))
    assert isinstance(typed, OfMeans) and (typed.equally, typed.reads) == (("shift",), ("rows",))
    assert not isinstance(untyped, OfMeans) and not typed.averages
    got, want = (server(uploads(counts), state) for server in (typed, untyped))
    assert same(dict(got[0]), dict(want[0])) and same(got[1], want[1])
    assert set(got[1]["rows"]) == {str(k) for k in uploads(counts)}
    twice = after(typed, note, equally=["more", "shift"], reads=["model"])
    assert (twice.equally, twice.reads) == (("shift", "more"), ("rows", "model"))  # type: ignore[attr-defined]


WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: OfMeans(3), TypeError, "serve .* 3"),  # type: ignore[arg-type]
    (lambda: OfMeans(average), TypeError, "serve .* OfMeans"),
    (lambda: OfMeans(lambda means: ({}, {})), TypeError, "serve .* 'state'|too many"),  # type: ignore[arg-type,misc]
    (lambda: OfMeans(len, equally="shift"), TypeError, "equally .* 'shift'|serve"),  # type: ignore[arg-type]
    (lambda: OfMeans(note_two, equally="shift"), TypeError, "equally .* 'shift'"),  # type: ignore[arg-type]
    (lambda: OfMeans(note_two, reads="rows"), TypeError, "reads .* 'rows'"),  # type: ignore[arg-type]
    (lambda: OfMeans(note_two, equally=("model",)), ValueError, "equally .* 'model'"),
    (lambda: OfMeans(note_two, equally=("num_examples",)), ValueError, "equally .*'num_examples'"),
    (lambda: after(average, note_two), TypeError, "change .*outbox, new, means, state"),  # type: ignore[arg-type]
    (lambda: after(average, note, reads="rows"), TypeError, "reads .* 'rows'"),
    (lambda: after(average, note, equally=("model",)), ValueError, "equally .* 'model'"),
]


def note_two(means: Means, state: Any) -> Any:
    return {}, state


def test_what_is_wrong_raises_on_the_line_that_builds() -> None:
    for build, kind, said in WRONG:
        with pytest.raises(kind, match=said):
            build()


def halved(means: Means, state: Any) -> Any:
    message = {"model": {name: value / 2 for name, value in means["model"].items()}}
    return dict.fromkeys(range(means.num_clients), message), message


@pytest.mark.filterwarnings("ignore:Expected num_examples to be positive")
def test_noise_is_counted_where_nobody_has_an_example() -> None:
    """The uploads were sent all the same."""
    method = local_gaussian(plain(), length=1.0, noise_multiplier=1.0)
    assert isinstance(method.aggregate, OfMeans)
    model = {"weight": torch.ones(1, 2).double()}
    nothing = {k: {"model": model, "num_examples": torch.tensor(0)} for k in (0, 2)}
    state: Any = {"model": model}
    for rounds in (1, 2):
        outbox, state = method.aggregate(Inbox(nothing, 3), state)
        assert not outbox and state["privacy"]["rounds"].tolist() == [rounds, 0, rounds]
        assert same(state["model"], model)


def test_a_run_is_known_by_what_serves() -> None:
    def name(aggregate: Any) -> Any:
        method = replace(plain(), aggregate=aggregate)
        return identity(method, 0, 1.0, 0.0, None)["aggregate"], method.unknown

    told, unknown = name(OfMeans(halved))
    assert "halved" in told and not unknown
    assert "note_two" in name(OfMeans(note_two))[0]
    assert name(OfMeans(lambda means, state: ({}, state)))[1] == ["aggregate"]
    assert "optimize" in name(methods.fedopt(plain()).aggregate)[0]


def test_it_survives_a_process_boundary() -> None:
    assert pickle.loads(pickle.dumps(average)) == average

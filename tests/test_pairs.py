"""Pairs of methods: what would not do together what it says is refused, what would is not."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from conformance import case
from federations import CLASSES, FEATURES, graphs

import fgl
from fgl.aggregate.robust import median
from fgl.methods import fedamp, fedopt, fedselect, gcfl, gcfl_plus, graphfl, pfedgraph, scaffold
from fgl.methods.fedprox import fedprox
from fgl.transforms.robust import robust

FEDAVG = fgl.fedavg(fgl.nn.GCN(FEATURES, 8, CLASSES, dropout=0.5))


@pytest.mark.parametrize("inside", [lambda method: method, partial(fedprox, mu=0.1)])
@pytest.mark.parametrize("cluster", [gcfl, gcfl_plus])
def test_refused_pairs(cluster: Any, inside: Any) -> None:
    """Also where another method stands between the two."""
    refused: list[tuple[Any, str]] = [
        (lambda: robust(inside(cluster(FEDAVG)), median), "robust .* reads the whole inbox"),
        (lambda: cluster(inside(scaffold(FEDAVG))), "gcfl .* without scaffold"),
        (lambda: fedopt(inside(cluster(FEDAVG))), "fedopt .* without gcfl"),
        (lambda: fedselect(inside(scaffold(FEDAVG))), "fedselect .* without scaffold"),
        (lambda: scaffold(inside(fedselect(FEDAVG))), "scaffold .* without fedselect"),
    ]
    for call, text in refused:
        with pytest.raises(ValueError, match=f"Expected {text}"):
            call()


def test_a_server_without_one_model_is_refused_by_fedselect() -> None:
    """In the first round: in the second one nobody would be left, and the old models stay."""
    with pytest.raises(ValueError, match="Round 0, .* a method whose server keeps one model"):
        fgl.run(fedselect(fedamp(FEDAVG)), graphs(), num_rounds=2)


def test_batch_norm_that_counts_is_refused_by_graphfl() -> None:
    """Its statistics would change in every step of the adaptation."""

    class Normed(torch.nn.Module):
        def __init__(self, counts: bool) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(FEATURES, track_running_stats=counts)
            self.last = torch.nn.Linear(FEATURES, CLASSES)

        def forward(self, x: Any, adj: Any) -> Any:
            return self.last(self.norm(x))

    with pytest.raises(ValueError, match=r"no batch norm with running .* but got \['norm'\]"):
        graphfl(fgl.fedavg(Normed(counts=True)))
    method = graphfl(fgl.fedavg(Normed(counts=False)), adapt_steps=1)
    assert not fgl.run(method, graphs(), num_rounds=1).history[0].dropped


@pytest.mark.parametrize("at_once", [1, "all"])
@pytest.mark.parametrize("kind", ["adam", "momentum"])
def test_moments_of_what_does_not_move_stay(kind: str, at_once: Any) -> None:
    """FedSelect's two passes of a step each, with moments kept between rounds, held against loops.

    The gradient is 1 everywhere: a moment is what so many steps of its own entry make of 0.
    """

    def loss(params: Any, graph: Any, context: Any) -> Any:
        return sum(value.sum() for value in params.values())

    made: Any = {
        "adam": partial(torch.optim.Adam, lr=0.01),
        "momentum": partial(torch.optim.SGD, lr=0.01, momentum=0.5),
    }[kind]
    train = fgl.Training(made, num_steps=1, keep_optimizer=True)
    fedavg = fgl.fedavg(fgl.nn.GCN(FEATURES, 4, CLASSES, dropout=0.0), loss=loss, train=train)
    rounds = 4
    result = fgl.run(
        fedselect(fedavg, every=1), graphs(), num_rounds=rounds, seed=0, clients_at_once=at_once
    )
    key, beta, share = ("exp_avg", 0.9, 0.1) if kind == "adam" else ("momentum_buffer", 0.5, 1.0)
    want = 0.0
    for _ in range(rounds):  # each entry moves once in a round, in one of the two passes
        want = beta * want + share
    for state in result.client_states.values():
        kept: Any = state["optimizer"]
        chosen: Any = state["mask"]
        assert any(mask.any() and not mask.all() for mask in chosen.values())
        for name, mask in chosen.items():
            assert mask.shape == kept[f"{key}/{name}"].shape
            torch.testing.assert_close(
                kept[f"{key}/{name}"], torch.full(mask.shape, want), rtol=0, atol=1e-6
            )


def test_the_task_of_trees_has_a_server_that_averages() -> None:
    """Its clients draw their first models, and its server says so."""
    method, _ = case("fedavg", "ego")
    assert pfedgraph(method).aggregate is not method.aggregate


def test_masks_are_not_lost() -> None:
    """In a later round, or when a client's model is asked for."""
    options: dict[str, Any] = {
        "fedper": {"shared": ["convs.0"]},
        "fedtad": {"generator": fgl.nn.node_generator.NodeGenerator(FEATURES, CLASSES)},
        "unlearned": {"client": 0, "steps": 1, "radius": 1.0},
    }
    masked = replace(FEDAVG, own=fgl.federation.Own(personal={"mask": torch.ones(1)}))
    for name in ("moon", "graphfl", "own_models", "fedper", "local", "ditto", "feddyn", "feddc",
                 "fedgm", "fedhgn", "fedtad", "fggp"):  # fmt: skip
        with pytest.raises(
            ValueError, match=r"Expected \w+ to be .*the model alone, but got .*mask.*put that"
        ):
            getattr(fgl.methods, name)(masked, **options.get(name, {}))

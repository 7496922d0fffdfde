"""One release for each round: what was shown is not drawn again, and all that was asked counts."""

from pathlib import Path
from typing import Any

import pytest
import torch
from conformance import known
from federations import end, same

import fgl
from fgl.transforms import central_gaussian, local_gaussian, privacy_spent, summed_gaussian


class Killed(BaseException):
    """What a signal does: nothing in the library may catch it."""


class Looks:
    """An `evaluate` that keeps what it is shown, and is killed once, in a round."""

    def __init__(self, dies_in: int) -> None:
        self.dies_in, self.seen = dies_in, []  # type: ignore[var-annotated]

    def __call__(self, outbox: Any, states: Any) -> dict[str, float]:
        self.seen.append({name: t.clone() for name, t in outbox[0].get("model", {}).items()})
        if len(self.seen) == self.dies_in + 1:
            raise Killed
        return {"calls": 1.0}


NOISE: dict[str, Any] = {"length": 1.0, "noise_multiplier": 2.0}
BUILDERS = {
    "central": lambda method: central_gaussian(method, **NOISE),
    "local": lambda method: local_gaussian(method, **NOISE),
    "local in a secure sum": lambda method: fgl.transforms.secure_sum(
        local_gaussian(method, **NOISE), threshold=3
    ),
    "summed": lambda method: summed_gaussian(method, threshold=3, **NOISE),
}


def federation(name: str) -> tuple[fgl.Method, list[fgl.Graph]]:
    made = known("nodes", 0.0, torch.float32)
    return BUILDERS[name](made.fedavg), list(made.clients)


@pytest.mark.few
@pytest.mark.parametrize(("name", "exchanges"), [(name, 1) for name in BUILDERS] + [("central", 3)])
def test_a_run_killed_while_it_scores_shows_the_same_model_again(
    name: str, exchanges: int, tmp_path: Path, reached: Any
) -> None:
    method, clients = federation(name)
    num_rounds = exchanges * method.rules.exchange
    look = Looks(num_rounds - 1)
    how: Any = {"num_rounds": num_rounds, "checkpoint": tmp_path, "evaluate": look}
    how |= {"watch": privacy_spent}
    with pytest.raises(Killed):
        fgl.run(method, clients, **how)
    result = fgl.run(method, clients, **how)
    again = same(look.seen[-2], look.seen[-1])
    reached("second noisy models", not again, 1)
    assert again  # one release, shown twice
    assert [record.round for record in result.history] == list(range(num_rounds))
    assert all(record.metrics["calls"] == 1 for record in result.history)
    done = fgl.run(method, clients, **how)  # nothing is played, nothing is shown
    assert same(end(done), end(result)) and len(look.seen) == num_rounds + 1


def test_clients_elsewhere_are_shown_the_same_model_again(tmp_path: Path) -> None:
    """The server is killed once its clients have scored: they are asked again, by a new server."""
    pytest.importorskip("flwr")
    from flower_grid import Grid, apps
    from test_flower import flower

    method, clients = federation("central")
    shown: list[Any] = []

    def score(method: fgl.Method) -> Any:
        return lambda params, graph: shown.append(params) or {"scored": 1.0}

    def watch(state: Any) -> dict[str, float]:
        if len(shown) == 2 * len(clients):
            raise Killed
        return {}

    how: Any = {"num_rounds": 3, "checkpoint": tmp_path, "watch": watch}
    with pytest.raises(Killed):
        fgl.run(method, flower(Grid(apps(method, clients, score=score))), **how)
    result = fgl.run(method, flower(Grid(apps(method, clients, score=score))), **how)
    second, again = shown[len(clients)], shown[2 * len(clients)]
    assert same(second, again) and len(shown) == 4 * len(clients)
    assert [record.metrics["scored"] for record in result.history] == [1.0] * 3


def test_a_round_that_was_released_cannot_be_taken_back(tmp_path: Path) -> None:
    method, clients = federation("central")
    with pytest.raises(Killed):
        fgl.run(method, clients, num_rounds=2, checkpoint=tmp_path, evaluate=Looks(1))
    with pytest.raises(ValueError, match="at least the 2 rounds of the checkpoint"):
        fgl.run(method, clients, num_rounds=1, checkpoint=tmp_path, evaluate=Looks(9))


# Rounds of which no answer counted


@pytest.mark.filterwarnings("ignore:Round")
@pytest.mark.parametrize("name", ["local", "summed", "local in a secure sum"])
def test_answers_that_are_lost_at_the_end_of_a_run_count(name: str, tmp_path: Path) -> None:
    """Over Flower: every client answers the last round, and no answer arrives."""
    pytest.importorskip("flwr")
    from flower_grid import Grid, apps
    from flwr.app import Error
    from test_flower import flower

    method, clients = federation(name)
    num_rounds = 2 * method.rules.exchange

    def lose(kind: str, node: int, times: int, reply: Any) -> Any:
        return Error(2, "lost") if kind == "train" and times == num_rounds else reply

    grid = Grid(apps(method, clients), lose, state=str(tmp_path / "sites"))
    how: Any = {"clients": flower(grid), "num_rounds": num_rounds, "watch": privacy_spent}
    result = fgl.run(method, checkpoint=tmp_path / "run", **how)
    assert [record.is_empty for record in result.history] == [False] * (num_rounds - 1) + [True]
    state: Any = result.server_state
    fewest = 2 * 3 / len(clients) if name == "summed" else 2.0
    assert state["privacy"]["rounds"].tolist() == pytest.approx([fewest] * len(clients))
    assert result.history[-1].metrics["epsilon"] == privacy_spent(state)["epsilon"]
    assert privacy_spent(fgl.run(method, checkpoint=tmp_path / "run", **how).server_state) == (
        privacy_spent(state)
    )


def test_central_noise_of_a_lost_round_costs_nothing() -> None:
    """No sum was made of it, so that no sum was shown."""
    method, clients = federation("central")
    how: Any = {"num_rounds": 2, "dropouts": lambda index, client: index == 1}
    result = fgl.run(method, clients, watch=privacy_spent, **how)
    assert result.server_state["privacy"]["rounds"].tolist() == [1] * len(clients)  # type: ignore[index]

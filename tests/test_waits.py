"""How often the host waits for a GPU: in a local step, in a round, in an evaluation.

Counted on the pretended device, in the fourth round of a run: whatever is made once is made, and no
padding is checked. What is counted are numbers that the host asks for, results whose size depends
on data, and copies that are not in passing.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from conformance import K
from pretended_cases import case_there, cases
from pretended_device import PretendedDevice

import fgl
from fgl import Method
from fgl.tasks import Task
from fgl.transforms import secure_sum

pytestmark = pytest.mark.slow

WATCHED = [  # methods and tasks whose waits are stated below
    *(("fedavg", task) for task in ("nodes", "gat", "sampled", "ego", "links", "graphs")),
    *(("fedselect", "nodes"), ("graphfl", "nodes"), ("gcfl plus gradients", "nodes")),
    *(("fgssl", "nodes"), ("fedgl", "overlapping"), ("fedego", "ego"), ("fedvgae", "own")),
    *(("gpfl", "graphs"), ("scaffold", "nodes"), ("pfedgraph", "nodes"), ("fedpub", "nodes")),
]

# Of a local step and client, by task: 0 where nothing is drawn whose size depends on data.
STEP = {
    "sampled": 4,  # sizes and new nodes of each of two hops
    "sampled gcn": 4,
    "sampled gat": 8,  # and its self-loops
    "star graphs": 4,  # self-loops of a minibatch
}
# Of a round and client, besides its steps. Lower them with the code.
LOSSES = 1  # of local training
SERVER = 1  # a client's share of what a server asks of all
OF_TASKS = {"ego": 7, "graphs": 6, "star graphs": 6, "sampled": 5, "sampled gcn": 5}
OF_TASKS |= {"sampled gat": 9}
OF_METHODS = {"fedselect": 5, "scaffold": 1, "pfedgraph": 3, "fedpub": 2, "gcfl plus gradients": 3}
OF_METHODS |= {"fedgl": 27, "fedego": 15, "fedvgae": 6, "gpfl": 6}
# Of an evaluation: one, however many clients and metrics there are, but for these.
DEPLOY = {"fedego": 4 * K}  # whose `deploy` asks for the histograms of both models' examples
EVALUATION = {"overlapping": 2, "own": 2 * K, "links": 6 * K, "sampled": 13}


class Waits(NamedTuple):
    """Where and how often the host waited, in one round."""

    step: Counter[str]  # the step that waited most
    clients: int  # that this step has
    others: Counter[str]
    evaluation: Counter[str]


def waits(method: Method, task: Task, at_once: Any, gpu: PretendedDevice) -> Waits:
    """Those of the fourth round."""
    scored: list[Counter[str]] = []
    ends: list[tuple[Counter[str], int]] = []
    score = task.evaluate(method)

    def evaluate(outbox: Any, states: Any) -> Mapping[str, float]:
        before = gpu.waits.copy()
        found = score(outbox, states)
        scored.append(gpu.waits - before)
        return found

    def ended(*_: Any) -> None:
        ends.append((gpu.waits.copy(), len(gpu.gaps)))

    how: dict[str, Any] = {"clients_at_once": at_once, "evaluate": evaluate, "strict": True}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Secure sum")
        fgl.run(method, task.clients, num_rounds=4, callbacks=[ended], **how)
    (before, first), (after, last) = ends[-2:]
    steps = gpu.gaps[first:last]
    others = after - before - scored[-1] - sum(steps, Counter())
    worst = max(steps, key=Counter.total, default=Counter())
    return Waits(worst, 1 if at_once == 1 else len(task.clients), others, scored[-1])


@pytest.mark.parametrize("at_once", [1, "all"], ids=["loop", "batch"])
@cases(WATCHED, WATCHED)
def test_the_host_waits_no_more_than_is_stated(
    name: str, task: str, at_once: Any, monkeypatch: Any
) -> None:
    with PretendedDevice() as gpu:
        found = waits(*case_there(name, task, monkeypatch), at_once, gpu)
    assert found.step.total() <= STEP.get(task, 0) * found.clients, found.step
    bound = LOSSES + SERVER + OF_TASKS.get(task, 0) + OF_METHODS.get(name, 0)
    assert found.others.total() <= bound * K, found.others
    allowed = EVALUATION.get(task, 1) + DEPLOY.get(name, 0)
    assert found.evaluation.total() <= allowed, found.evaluation


@pytest.mark.parametrize("at_once", [1, "all"], ids=["loop", "batch"])
def test_an_exchange_of_a_secure_sum_waits_once_per_client_besides(
    at_once: Any, monkeypatch: Any
) -> None:
    """Its bytes stay on the processor, and what is masked comes there in one copy."""
    ends: list[Counter[str]] = []
    with PretendedDevice() as gpu, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Secure sum|.*protects nothing")
        _, task = case_there("fedavg", "nodes", monkeypatch)
        method = secure_sum(task.fedavg, threshold=3, unprotected=True)
        how: dict[str, Any] = {"clients_at_once": at_once, "strict": True}
        fgl.run(
            method,
            task.clients,
            num_rounds=8,
            callbacks=[lambda *_: ends.append(gpu.waits.copy())],
            **how,
        )
    assert not gpu.mixed
    exchange = ends[7] - ends[3]
    rounds = 4
    bound = LOSSES + SERVER + rounds
    assert exchange.total() <= bound * K, exchange
    assert sum(n for place, n in exchange.items() if "/transforms/" in place) <= K

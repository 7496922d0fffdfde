"""Runs in other threads are refused, and tasks and methods are pickled for other processes."""

import pickle
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import cloudpickle  # what loky and Ray use
import pytest
import torch
from conformance import ROWS, TASKS
from federations import fedavg, graphs, model, same

import fgl


def run_of(seed: int) -> float:
    """A run whose task is made in the process that runs it."""
    task = fgl.tasks.Nodes(clients=2, hidden=4).load(seed=seed)
    result = fgl.run(task.fedavg, task, num_rounds=1, seed=seed)
    return float(result.history[-1].metrics["test_accuracy"])


@pytest.mark.parametrize("what", ["a run", "a task"])
def test_a_second_thread_is_refused_while_a_run_goes_on(what: str) -> None:
    """Torch's generator is the process's, so both would draw other numbers."""
    second: list[BaseException | None] = []

    def callback(record: Any, result: Any) -> None:
        with ThreadPoolExecutor(1) as pool:
            another = {
                "a run": lambda: fgl.run(fedavg(model()), graphs(), num_rounds=1),
                "a task": lambda: fgl.tasks.Nodes(clients=2, hidden=4).load(seed=0),
            }[what]
            second.append(pool.submit(another).exception())

    fgl.run(fedavg(model()), graphs(), num_rounds=1, callbacks=[callback])
    assert isinstance(second[0], RuntimeError)
    assert "ProcessPoolExecutor" in str(second[0])


def test_threads_run_one_after_the_other_and_a_run_runs_inside_a_run() -> None:
    def callback(record: Any, result: Any) -> None:
        fgl.run(fedavg(model()), graphs(), num_rounds=1)

    for _ in range(2):
        thread = threading.Thread(
            target=fgl.run,
            args=(fedavg(model()), graphs()),
            kwargs={"num_rounds": 1, "callbacks": [callback]},
        )
        thread.start()
        thread.join()


def test_processes_are_the_way_out() -> None:
    with ProcessPoolExecutor(2) as pool:
        assert list(pool.map(run_of, range(2))) == [run_of(0), run_of(1)]


def test_a_task_is_pickled_for_another_process() -> None:
    """By cloudpickle, since a task's functions are closures; the copy trains to the same bits."""
    for name, make in TASKS.items():
        task = make(0.5, torch.float32)
        copy = pickle.loads(cloudpickle.dumps(task))
        if name in ("nodes", "sampled", "ego", "links", "next edges", "clients that differ"):
            here, there = (fgl.run(each.fedavg, each, num_rounds=1) for each in (task, copy))
            assert same(here.server_state, there.server_state), name


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_method_is_pickled_for_another_process() -> None:
    tasks: dict[str, fgl.tasks.Task] = {}
    for name, row in list(ROWS.items())[::4]:  # kinds of closures repeat
        first = row.tasks[0]
        tasks.setdefault(first, TASKS[first](0.0, torch.float32))
        copy = pickle.loads(cloudpickle.dumps(row.build(tasks[first])))
        assert isinstance(copy, fgl.Method), name


def test_a_site_of_another_width_is_refused_before_the_first_round() -> None:
    pytest.importorskip("flwr")
    from flower_grid import Grid, apps
    from test_flower import flower

    clients = graphs()
    wide = torch.cat([clients[2].x, clients[2].x], 1)  # type: ignore[list-item]
    clients[2] = clients[2].replace(x=wide)
    grid = Grid(apps(fedavg(model()), clients))
    with pytest.warns(UserWarning, match="client 2 to have as many features .*, but got 12"):
        result = fgl.run(fedavg(model()), flower(grid), num_rounds=1)
    assert list(result.history[0].dropped) == [2]
    assert "12" in result.history[0].dropped[2]

"""Kills of the five recipes at random moments: they are resumed, their ends compared bit for bit.

    python benchmarks/reliability/kills.py --kills 100 --json benchmarks/results/kills.json

Each trial is a process of its own, forked from one that has torch and the data in memory, since
loading them takes a hundred times as long as the run. It saves every round, and is killed (SIGKILL)
at a random moment of a random round. A second process goes on from the folder to the end.
Messages, the server's and the clients' states, and the history must be those of a run that nobody
disturbed. Runs that had ended before the signal came are not counted, and drawn again.
"""

import os
import random
import signal
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import torch
from conformance import case
from harness.flags import arguments, flag, some
from harness.machine import forked, machine, write
from reliability.small_federation import ending, equal

import fgl

RECIPES = {"fgssl": "nodes", "fedgl": "overlapping", "fedego": "ego", "fedvgae": "own",
           "gpfl": "graphs"}  # fmt: skip
ROUNDS = 6


def run(name: str, folder: Path | None, tell: int | None = None) -> tuple[Any, ...]:
    """A run of the recipe, saved in the folder or gone on from there: all that it leaves behind.

    After each round it writes a byte to the pipe `tell`.
    """
    method, task = case(name, RECIPES[name])
    callbacks = [] if tell is None else [lambda record, result: os.write(tell, b".") == 0]
    how: dict[str, Any] = {"checkpoint": folder, "callbacks": callbacks, "clients_at_once": 1}
    result = fgl.run(method, task.clients, num_rounds=ROUNDS, **how)
    outbox = [dict(result.outbox[client]) for client in range(len(task.clients))]
    _, state, states, history = ending(result)
    return outbox, state, states, [repr(record) for record in history]


def ended(child: int) -> bool:
    """Wait for a process: whether it came to its end, or was killed."""
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    if status:
        raise RuntimeError(f"Expected the process to end well or to be killed, but got {status}")
    return True


def killed(name: str, folder: Path, seconds: float, moment: random.Random) -> bool:
    """Start a run and kill it in one of its rounds; False where it had ended before.

    A round takes about so many seconds, or as long as those before it.
    """
    ear, mouth = os.pipe()
    child = forked(lambda: run(name, folder, mouth))
    os.close(mouth)
    start, rounds = time.perf_counter(), moment.randrange(ROUNDS)
    for _ in range(rounds):
        os.read(ear, 1)
    seconds = (time.perf_counter() - start) / rounds if rounds else seconds
    time.sleep(moment.uniform(0, seconds))
    os.kill(child, signal.SIGKILL)
    os.close(ear)
    return not ended(child)


def saved(folder: Path) -> int:
    """How many rounds a folder has."""
    return max((int(p.stem.removeprefix("round-")) for p in folder.glob("round-*.ckpt")), default=0)


def resumed(name: str, folder: Path) -> Any:
    """The end of a run that another process goes on with."""
    end = folder.with_suffix(".end")
    if not ended(forked(lambda: torch.save(run(name, folder), end))):
        raise RuntimeError("Expected nobody to kill this process")
    return torch.load(end, weights_only=True)


def trial(name: str, want: Any, seconds: float, moment: random.Random) -> tuple[bool, int]:
    """One kill: whether the end is the same, and how many rounds were saved by then."""
    while True:
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent) / "run"
            if killed(name, folder, seconds, moment):
                rounds = saved(folder)
                return equal(resumed(name, folder), want), rounds


def took(name: str) -> float:
    """Seconds that a round of a saved run takes, in a process of its own."""
    with tempfile.TemporaryDirectory() as parent:
        start = time.perf_counter()
        ended(forked(lambda: run(name, Path(parent) / "run")))
        return (time.perf_counter() - start) / ROUNDS


def kills(name: str, number: int, seed: int) -> Iterator[dict[str, Any]]:
    """So many kills of a recipe: what came of them, after each."""
    want = run(name, None)
    seconds = statistics.median(took(name) for _ in range(3))
    moment = random.Random(f"{seed} {name}")
    same, counts = 0, dict.fromkeys(range(ROUNDS + 1), 0)
    for done in range(1, number + 1):
        one, rounds = trial(name, want, seconds, moment)
        same += one
        counts[rounds] += 1
        yield {"kills": done, "bit_equal": same, "kills_by_rounds_saved": counts,
               "seconds_per_round": round(seconds, 3)}  # fmt: skip
    print(f"{name}: {same} of {number} bit-equal, {seconds:.2f} s a round", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    kinds = {"kills": flag(100, "of each recipe"), "seed": flag(0, "of the moments")}
    args = arguments(argv, recipes=some(RECIPES), **kinds)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    recipes: dict[str, Any] = {}
    for name in args.recipes:
        for found in kills(name, args.kills, args.seed):
            recipes[name] = found
            report = {"rounds": ROUNDS, "seed": args.seed, "recipes": recipes}
            if found["kills"] % 10 == 0 or found["kills"] == args.kills:
                write({**report, "machine": machine()}, args.json)
    return int(any(each["bit_equal"] < each["kills"] for each in recipes.values()))


if __name__ == "__main__":
    sys.exit(main())

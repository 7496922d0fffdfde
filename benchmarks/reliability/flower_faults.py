"""What fails on Flower, in real processes, and whether the rest of the run keeps its bits.

    python benchmarks/reliability/flower_faults.py --cases nan killed --json out/faults.json

Every case runs a method of the conformance table over four SuperNodes, lets one client fail, and
compares messages, server state and clients' states bit for bit with a run in this process in which
the same client dropped out of the same rounds.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import torch
from conformance import case
from federation import saved
from federations import same
from flower_processes import Federation

import fgl
from fgl.federation.executors.node import Folder
from fgl.federation.packed import unpack

APP = Path(__file__).parent / "case_app"
CLIENT = 2  # who fails
IN_THE_APP = ("", "nan", "key", "shape", "raises", "dies", "late")


def run(
    federation: Federation, folder: Path, during: Callable[[], None] | None = None, **config: Any
) -> fgl.Result:
    """A run of the case app, and what happens to its processes meanwhile."""
    other = threading.Thread(target=during or (lambda: None))
    other.start()
    said = federation.run(APP, checkpoint=folder / "checkpoint", **config)
    other.join()
    (folder / "run.log").write_text(said)
    try:
        return saved(folder / "checkpoint")
    except FileNotFoundError as error:
        error.add_note(said)
        raise


def compare(result: fgl.Result, states: Path, *, method: str, task: str, seed: int = 5) -> bool:
    """Whether a run in this process, with the same dropouts, has the same bits."""
    dropped = {(r.round, client) for r in result.history for client in r.dropped}
    made, setting = case(method, task)
    rounds = len(result.history)
    here = fgl.run(
        made, setting.clients, num_rounds=rounds, seed=seed, dropouts=lambda r, k: (r, k) in dropped
    )
    wanted = {client: state for client, state in here.client_states.items() if state}
    kept = {}
    for client, state in result.client_states.items():
        payload = Folder(states, int(state["run"]), client).read(int(state["round"]))
        kept[client] = None if payload is None else unpack(payload)
    same_states = set(kept) == set(wanted) and all(same(kept[k], wanted[k]) for k in kept)
    ends = [same(dict(a.outbox), dict(b.outbox)) for a, b in ((here, result),)]
    ends += [same(dict(here.server_state), dict(result.server_state)), same_states]
    return all(ends)


def after_round(folder: Path, index: int, then: Callable[[], None]) -> Callable[[], None]:
    """Do something when the checkpoint of a round is there."""

    def wait() -> None:
        path = folder / "checkpoint" / f"round-{index + 1:06d}.ckpt"
        end = time.monotonic() + 900
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.2)
        then()

    return wait


def killed(federation: Federation, how: int, *, back: bool) -> None:
    federation.stop(f"node-{CLIENT}", how)
    if back:
        federation.start_node(CLIENT)


def play(name: str, folder: Path, timeout: float) -> fgl.Result:
    """One case in a federation of its own."""
    (folder / "graphs").mkdir(parents=True)
    app = name if name in IN_THE_APP else ""
    with Federation(
        folder,
        folder / "graphs",
        states=name != "killed-without-folder",
        database=name == "superlink-killed",
    ) as here:
        during = None
        if name.startswith("killed") or name == "terminated":
            how = signal.SIGTERM if name == "terminated" else signal.SIGKILL
            back = name != "killed-for-good"
            during = after_round(folder, 0, lambda: killed(here, how, back=back))
        if name == "superlink-killed":
            return _superlink(here, folder, timeout)
        short = 20.0 if name in ("late", "dies") else timeout
        return run(here, folder, during, fault=app, timeout=short, rounds=4)


def _superlink(here: Federation, folder: Path, timeout: float) -> fgl.Result:
    """The SuperLink dies, and starts again with its database; the run with its checkpoint."""
    kill = after_round(folder, 0, lambda: here.stop("superlink", signal.SIGKILL))
    run(here, folder, kill, timeout=timeout, rounds=4)
    here.start_link()
    return run(here, folder, timeout=timeout, rounds=4)


CASES = (*IN_THE_APP[1:], "killed", "killed-without-folder", "killed-for-good", "terminated")
CASES += ("superlink-killed",)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="*", choices=CASES, default=CASES)
    parser.add_argument("--timeout", type=float, default=90.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    for name in options.cases:
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            result = play(name, Path(folder), options.timeout)
            equal = compare(result, Path(folder) / "states", method="fedper", task="nodes")
        dropped = {r.round: r.dropped for r in result.history if r.dropped}
        if name == "killed-without-folder":  # there is no folder to compare states in
            equal = CLIENT in dropped.get(len(result.history) - 1, {})
        found.append({"case": name, "equal": equal, "dropped": dropped})
        print(f"{name}: {'equal' if equal else 'DIFFERENT'}, {dropped}, ", end="")
        print(f"{time.monotonic() - start:.0f} s", flush=True)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found, indent=1))
    return 0 if all(each["equal"] for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())

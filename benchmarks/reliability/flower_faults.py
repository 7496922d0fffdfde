"""Faults on Flower, in real processes, and whether the rest of the run keeps its bits.

    python benchmarks/reliability/flower_faults.py --json benchmarks/results/flower_faults.json
    python benchmarks/reliability/flower_faults.py --report      the table, from that file

A part is a run of a method of the conformance table over three SuperNodes, in which one client
fails in one way after the other, a round for each. The script compares messages, server state,
clients' states and history bit for bit with a run in this process in which the same client dropped
out of the same rounds, and the rounds that the client missed with those that it had to miss.
"""

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import torch
from conformance import case
from federation import saved
from federations import same
from flower_processes import Federation, make_authority, make_key
from harness.flags import arguments, flag
from harness.machine import RESULTS, kept, machine
from harness.report import publish

import fgl
from fgl.federation.executors.remote.shelf import StateFolder
from fgl.federation.executors.remote.wire import unpack

APP = Path(__file__).parent / "case_app"
CLIENT = 2  # who fails
CLIENTS = 3
METHOD, TASK = "fedper", "nodes"
IN_THE_APP = ("nan", "missing-key", "extra-key", "shape", "raises", "dies", "late")


class Part(NamedTuple):
    """What came of a run: its end, where the states lie, and the rounds that each case had to miss.

    A case without a round to miss is named with the round in which it happened.
    """

    result: fgl.Result
    states: Path | None
    missed: dict[str, list[int]]
    happened: dict[str, int]


def run(
    federation: Federation, folder: Path, during: Callable[[], None] | None = None, **config: Any
) -> fgl.Result:
    """A run of the case app, and what happens to its processes meanwhile."""
    other = threading.Thread(target=during or (lambda: None), daemon=True)
    other.start()
    said = federation.run(APP, checkpoint=folder / "checkpoint", **config)
    other.join()
    (folder / "run.log").write_text(said)
    try:
        return saved(folder / "checkpoint")
    except FileNotFoundError as error:
        error.add_note(said)
        raise


def compare(
    result: fgl.Result,
    states: Path | None,
    *,
    method: str = METHOD,
    task: str = TASK,
    clients: int | None = None,
    seed: int = 5,
) -> list[str]:
    """In what a run in this process, with the same dropouts, differs: in nothing, it is hoped."""
    dropped = {(r.round, client) for r in result.history for client in r.dropped}
    made, setting = case(method, task)
    here = fgl.run(
        made,
        setting.clients[:clients],
        num_rounds=len(result.history),
        seed=seed,
        clients_at_once=1,  # as a node trains
        dropouts=lambda r, k: (r, k) in dropped,
    )
    pairs = {
        "outbox": (dict(here.outbox), dict(result.outbox)),
        "server state": (dict(here.server_state), dict(result.server_state)),
        "history": ([_told(r) for r in here.history], [_told(r) for r in result.history]),
    }
    if states is not None:
        wanted = {client: state for client, state in here.client_states.items() if state}
        pairs["states"] = (dict(sorted(wanted.items())), _kept(result, states))
    return [name for name, (one, other) in pairs.items() if not same(one, other)]


def _told(record: Any) -> dict[str, Any]:
    """A round without its seconds and its reasons, and without bytes that came in vain."""
    told = {**vars(record), "dropped": list(record.dropped), "seconds": None}
    return {**told, "bytes_up": None} if record.dropped else told


def _kept(result: fgl.Result, states: Path) -> dict[int, Any]:
    """The states in the clients' folders that count."""
    found = {}
    for client, state in sorted(result.client_states.items()):
        if state["round"] < 0:
            continue
        payload = StateFolder(states, int(state["run"]), client).read(int(state["round"]))
        found[client] = None if payload is None else unpack(payload)
    return found


def after_round(folder: Path, index: int, then: Callable[[], None]) -> Callable[[], None]:
    """Do something when the checkpoint of a round is there."""

    def wait() -> None:
        path = folder / "checkpoint" / f"round-{index + 1:06d}.ckpt"
        end = time.monotonic() + 900
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.2)
        then()

    return wait


def answers(folder: Path, timeout: float) -> Part:
    """The app of one client fails, each time in another way."""
    with Federation(folder, folder / "graphs", CLIENTS) as here:
        config = {"faults": " ".join(IN_THE_APP), "timeout": timeout, "rounds": 9}
        result = run(here, folder, clients=CLIENTS, **config)
    missed = {fault: [number] for number, fault in enumerate(IN_THE_APP, 1)}
    return Part(result, folder / "states", missed, {})


def nodes(folder: Path, timeout: float) -> Part:
    """A SuperNode with a folder ends and comes back: at once twice, after a round, and never."""
    name, hold = f"node-{CLIENT}", folder / "hold"
    with Federation(folder, folder / "graphs", CLIENTS) as here:

        def back(how: int) -> None:
            here.stop(name, how)
            here.start_node(CLIENT)

        def during() -> None:
            after_round(folder, 0, lambda: back(signal.SIGKILL))()
            after_round(folder, 1, lambda: back(signal.SIGTERM))()
            after_round(folder, 2, lambda: here.stop(name, signal.SIGKILL))()
            hold.touch()  # no round begins before the node is there again
            after_round(folder, 3, lambda: here.start_node(CLIENT))()
            here.wait_for_log(name, "SuperNode ID:", times=4)
            hold.unlink()
            after_round(folder, 4, lambda: here.stop(name, signal.SIGKILL))()

        how = {"timeout": timeout, "rounds": 7, "clients": CLIENTS, "hold": hold}
        result = run(here, folder, during, **how)
    missed = {"killed, back too late": [3], "killed for good": [5, 6]}
    happened = {"killed, back in time": 1, "SIGTERM, back in time": 2}
    return Part(result, folder / "states", missed, happened)


def killed_once(folder: Path, timeout: float, *, secure: bool) -> Part:
    """A SuperNode is killed and comes back: with TLS and its key, or with no folder for its state.

    Without a folder the client's state is gone with the process.
    """
    with Federation(folder, folder / "graphs", CLIENTS, secure=secure, states=secure) as here:

        def back() -> None:
            here.stop(f"node-{CLIENT}", signal.SIGKILL)
            here.supervise(CLIENT) if secure else here.start_node(CLIENT)

        during = after_round(folder, 0, back)
        result = run(here, folder, during, timeout=timeout, rounds=3, clients=CLIENTS)
    if secure:
        return Part(result, folder / "states", {}, {"TLS and a key, killed, back in time": 1})
    return Part(result, None, {"killed without a folder, back in time": [1, 2]}, {})


def kept_out(folder: Path, timeout: float) -> Part:
    """Four SuperNodes that must not get in say that they are the client that is not there."""
    with Federation(folder, folder / "graphs", CLIENTS, secure=True) as here:
        here.stop(f"node-{CLIENT}")
        make_key(here.keys / "stranger")
        make_authority(here.keys, "other", "other-server")
        entries = {
            "unknown key": here.entry("stranger"),
            "no key": here.entry(),
            "plaintext": ["--insecure"],
            "another CA": here.entry(f"node-{CLIENT}", ca="other"),
        }
        for name, entry in entries.items():
            here.start_node(CLIENT, name, entry)
        result = run(here, folder, timeout=timeout, rounds=2, clients=CLIENTS)
        logs = {name: here.log(name) for name in entries}
    for name, log in logs.items():
        if "SuperNode ID:" in log:
            raise RuntimeError(f"Expected {name} to be kept out, but it has a node's number")
    return Part(result, folder / "states", {name: [0, 1] for name in entries}, {})


def superlink(folder: Path, timeout: float, *, database: bool) -> Part:
    """The SuperLink dies, and is started again; so is the run, which has its checkpoint.

    With a database the SuperNodes connect again. Without one they end, and are started again.
    """
    with Federation(folder, folder / "graphs", CLIENTS, database=database) as here:
        how: dict[str, Any] = {"timeout": timeout, "rounds": 3, "clients": CLIENTS}
        kill = after_round(folder, 0, lambda: here.stop("superlink", signal.SIGKILL))
        first = run(here, folder, kill, **how)
        if len(first.history) == 3:
            raise RuntimeError("Expected the run to end with its SuperLink, but it went on")
        here.start_link()
        for client in range(0 if database else CLIENTS):
            here.processes[f"node-{client}"].wait(120)
            here.stop(f"node-{client}")
            here.start_node(client)
        result = run(here, folder, **how)
        ended = [name for name, each in here.processes.items() if each.poll() is not None]
    if ended:
        raise RuntimeError(f"Expected no process to have ended, but {ended} did")
    name = "SuperLink killed, with a database" if database else "SuperLink killed, without"
    return Part(result, folder / "states", {}, {name: len(first.history)})


PARTS: dict[str, Callable[[Path, float], Part]] = {
    "answers": answers,
    "nodes": nodes,
    "without-folder": partial(killed_once, secure=False),
    "with-key": partial(killed_once, secure=True),
    "kept-out": kept_out,
    "superlink-database": partial(superlink, database=True),
    "superlink-memory": partial(superlink, database=False),
}


def play(name: str, timeout: float) -> dict[str, Any]:
    """A part, played and compared: what differs, and each case with its rounds and its reason."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as path:
        folder = Path(path)
        (folder / "graphs").mkdir()
        try:
            part = PARTS[name](folder, timeout)
        except Exception:
            for log in sorted(folder.glob("*.log")):
                print(f"--- {log.name}", log.read_text()[-3000:], sep="\n", flush=True)
            raise
        differences = compare(part.result, part.states, clients=CLIENTS)
    history = part.result.history
    found = {record.round: dict(record.dropped) for record in history if record.dropped}
    wanted = sorted({number for rounds in part.missed.values() for number in rounds})
    if sorted(found) != wanted or any(list(dropped) != [CLIENT] for dropped in found.values()):
        differences.append(f"missed were {found}, to be missed were {wanted} by client {CLIENT}")
    cases = [
        {"case": case, "missed": rounds, "why": found.get(rounds[0], {}).get(CLIENT, "")}
        for case, rounds in part.missed.items()
    ]
    cases += [{"case": case, "missed": [], "round": at} for case, at in part.happened.items()]
    return {
        "part": name,
        "differences": differences,
        "cases": cases,
        "round_seconds": [round(record.seconds, 1) for record in history],
        "seconds": round(time.monotonic() - start),
        "timeout": timeout,
        "load": round(os.getloadavg()[0], 1),
        "machine": machine(),
    }


def write(path: Path, found: list[dict[str, Any]]) -> None:
    """Put the parts into the file, in order, beside those that were not played now."""
    old: dict[str, Any] = {}
    with suppress(FileNotFoundError):
        old = {each["part"]: each for each in json.loads(path.read_text())}
    known = {**old, **{each["part"]: each for each in found}}
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = [known[name] for name in PARTS if name in known]
    path.write_text(json.dumps(kept, indent=1) + "\n")


def table(found: list[dict[str, Any]]) -> str:
    """The cases as text."""
    out = ["| what fails | rounds missed | reason in the history | bits |", "|---|---|---|---|"]
    for part in found:
        bits = "; ".join(part["differences"]) or "equal"
        for each in part["cases"]:
            missed = len(each["missed"]) or "none"
            why = each.get("why", "").split(": Error: ")[0].replace("|", "/")
            why = why.replace("][", r"]\[")  # no link
            out.append(f"| {each['case'].replace('-', ' ')} | {missed} | {why} | {bits} |")
    return "\n".join(out) + "\n"


def main() -> int:
    parts = flag(list(PARTS), nargs="*", choices=PARTS)
    options = arguments(report=False, parts=parts, timeout=120.0)
    if options.report:
        publish("flower-faults", table(kept(RESULTS / "flower_faults.json")))
        return 0
    torch.set_num_threads(1)
    found = []
    for name in options.parts:
        found.append(play(name, options.timeout))
        print(json.dumps(found[-1], indent=1), flush=True)
        if options.json:
            write(options.json, found)
    return 1 if any(each["differences"] for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())

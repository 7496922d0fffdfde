"""FedProx on Flower in five processes, compared with one process bit for bit.

    python benchmarks/reliability/federation.py --rounds 2
    python benchmarks/reliability/federation.py --rounds 2 --simulated

Starts a SuperLink and four SuperNodes on the loopback interface, each with a graph of its own, runs
the example app, and stops them again. Ends with 0 where nothing differs.
"""

import argparse
import sys
import tempfile
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "flower_app"))

import torch
from cut import cut
from flower_processes import APP, Federation
from task import graph, method, score

import fgl
from fgl.federation.saved.checkpoint import Folder
from fgl.federation.saved.identity import digest

CLIENTS = 4


def config(**changes: Any) -> dict[str, Any]:
    with (APP / "pyproject.toml").open("rb") as file:
        return {**tomllib.load(file)["tool"]["flwr"]["app"]["config"], **changes}


def in_process(graphs: Path, **changes: Any) -> fgl.Result:
    """The same run in this process."""
    how = config(**changes)
    made = method(how)
    clients = [graph(graphs, how["dataset"], client) for client in range(CLIENTS)]
    rounds, seed = how["rounds"], how["seed"]
    one = {"clients_at_once": 1, "score": score(made)}  # as a node trains
    return fgl.run(made, clients, num_rounds=rounds, seed=seed, **one)


def saved(folder: Path) -> fgl.Result:
    """The end of a run that saved its rounds."""
    result = Folder(folder, {}).load(torch.device("cpu")) if folder.exists() else None
    if result is None:
        raise FileNotFoundError(f"Expected {folder} to hold a checkpoint, but got none")
    return result


def differences(here: fgl.Result, there: fgl.Result) -> list[str]:
    """What differs between two runs: their ends, and each round but for its seconds."""
    found = [] if _digest(here) == _digest(there) else ["the outbox or the server's state"]
    pairs = zip(here.history, there.history, strict=False)
    found += [f"round {one.round}" for one, other in pairs if one != other]
    if len(here.history) != len(there.history):
        found.append(f"{len(here.history)} rounds and {len(there.history)}")
    return found


def _digest(result: fgl.Result) -> str:
    return digest(replace(result, client_states={}))


def both(folder: Path, *, rounds: int, simulated: bool = False) -> tuple[fgl.Result, fgl.Result]:
    """The app in this process, and on Flower: in five processes, or simulated."""
    graphs = folder / "graphs"
    cut(graphs, clients=CLIENTS)
    with Federation(folder, graphs, CLIENTS, simulated=simulated) as federation:
        how = {"rounds": rounds, "timeout": 600.0, "checkpoint": folder / "checkpoint"}
        how["result"] = folder / "result.pt"
        said = federation.run(graphs=graphs, **how)
        try:
            there = saved(folder / "checkpoint")
        except FileNotFoundError as error:
            error.add_note("\n".join([said, *(federation.log(n) for n in federation.processes)]))
            raise
    left = torch.load(folder / "result.pt", weights_only=True)["model"]
    kept = there.outbox[0]["model"]
    if left.keys() != kept.keys() or not all(left[name].equal(kept[name]) for name in kept):
        raise ValueError("Expected the app to save the model of its checkpoint, but got another")
    return in_process(graphs, rounds=rounds), there


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--simulated", action="store_true", help="on Ray, without SuperNodes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        here, there = both(Path(name), rounds=options.rounds, simulated=options.simulated)
    found = differences(here, there)
    for record in there.history:
        print(f"round {record.round}: {record.seconds:.1f} s, {record.metrics}, {record.dropped}")
    print(f"{time.monotonic() - start:.0f} s, differences: {found or 'none'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""Damages of a checkpoint or its history at 2,000 places: is each noticed, what is used instead?

    python benchmarks/reliability/corruption.py --json benchmarks/results/corruption.json

A bit is flipped, the file is cut, or 64 bytes are zeros, as a disk leaves them. Each time the
folder is loaded. Either a warning names the newest checkpoint and the one before it is used, or, if
the history of both is lost, the folder is refused. Every hundredth time the run also goes on, and
its end must be that of a run that nobody disturbed, bit for bit.
"""

import json
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments
from harness.machine import machine, write
from reliability.small_federation import ending, equal, federation

import fgl
from fgl.federation.saved import checkpoint

NEWEST = "round-000003.ckpt"


def damages(content: bytes, count: int) -> Iterator[bytes]:
    """The content with a bit flipped, cut, and with zeros, at places that are spread evenly."""
    for index in range(count):
        place = index * len(content) // count
        changed = bytearray(content)
        if index % 3 == 0:
            changed[place] ^= 1 << index % 8
        elif index % 3 == 1:
            del changed[place:]
        else:
            changed[place : place + 64] = bytes(len(changed[place : place + 64]))
        if changed != content:
            yield bytes(changed)


def outcome(folder: Path, identity: Any) -> str:
    """What loading the folder comes to."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = checkpoint.Folder(folder, identity).load(torch.device("cpu"))
        except ValueError:
            return "refused"
    named = [NEWEST in str(warning.message) for warning in caught]
    used = found is not None and len(found.history) == 2
    return "the previous one used" if used and named == [True] else "not noticed"


def goes_on(folder: Path) -> Any:
    method, clients = federation()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ending(fgl.run(method, clients, num_rounds=5, checkpoint=folder))


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv, damages=2000)
    torch.set_num_threads(1)
    method, clients = federation()
    want = ending(fgl.run(method, clients, num_rounds=5))
    counts: dict[str, Counter[str]] = {}
    resumed = same = 0
    with tempfile.TemporaryDirectory() as place:
        whole, folder = Path(place, "whole"), Path(place, "damaged")
        fgl.run(method, clients, num_rounds=3, checkpoint=whole)
        identity = json.loads(checkpoint._read(whole / NEWEST)["identity"])
        for file in (NEWEST, "history.jsonl"):
            count = counts[file] = Counter()
            for changed in damages((whole / file).read_bytes(), args.damages // 2):
                shutil.copytree(whole, folder)
                (folder / file).write_bytes(changed)
                found = outcome(folder, identity)
                count[found] += 1
                if found == "the previous one used" and count.total() % 100 < 3:
                    resumed += 1
                    same += equal(goes_on(folder), want)
                shutil.rmtree(folder)
            print(file, dict(count), flush=True)
    print(f"{same} of {resumed} that went on are bit-equal")
    report = {"benchmark": "corruption", "outcomes": counts, "went_on": resumed, "bit_equal": same}
    write({**report, "machine": machine()}, args.json)
    return int(any(count["not noticed"] for count in counts.values()) or same < resumed)


if __name__ == "__main__":
    sys.exit(main())

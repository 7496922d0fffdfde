"""The cost of the proof: processor seconds of each test file, and seconds of each part of CI.

    bash .ci/run && python benchmarks/reliability/proof.py

`make test` and the parts of `.ci/run` write to `out/proof/`; this gathers the files into
`benchmarks/results/proof.json`, so that a growth is seen in a diff.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.machine import RESULTS, ROOT, kept, machine, write

PROOF = ROOT / "out" / "proof"
DEAREST = 40  # files that are listed one by one


def shortened(table: dict) -> dict:
    """Return a table of test files with all but the dearest as one line."""
    files = list(table["files"].items())
    rest = [cost for _, cost in files[DEAREST:]]
    others = [sum(count for count, _ in rest), round(sum(seconds for _, seconds in rest), 2)]
    return {**table, "files": {**dict(files[:DEAREST]), "others": others}}


def main() -> None:
    """Write the parts and their seconds."""
    lines = (PROOF / "steps.tsv").read_text(encoding="utf-8").splitlines()
    parts = {name: int(seconds) for seconds, name in (line.split("\t") for line in lines)}
    tests = {path.stem: shortened(kept(path)) for path in sorted(PROOF.glob("*.json"))}
    report = {"machine": machine(), "seconds": sum(parts.values()), "parts": parts, "tests": tests}
    write(report, RESULTS / "proof.json")


if __name__ == "__main__":
    main()

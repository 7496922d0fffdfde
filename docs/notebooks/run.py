"""The notebooks of this folder, executed: `make notebooks`.

    python docs/notebooks/run.py            # each still runs, in time and without a warning
    python docs/notebooks/run.py --save     # and its new outputs are written to the file

Cells run in a temporary folder, so a notebook may write files.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SECONDS = 120  # of the processor, for one notebook: the clock depends on who else is here
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
PATH = re.compile(r"(?<![\w.])/(home|root|tmp|work|Users|var|usr|opt|mnt)/")


def executed(path: Path) -> tuple[Any, float, float]:
    """A notebook with new outputs, the seconds that they took, and those of the processor."""
    import nbformat  # here, so that the files can be looked at without it
    from nbclient import NotebookClient

    notebook: Any = nbformat.read(path, as_version=4)
    # PyG imports tqdm, which warns of a widget that no cell uses. The bits depend on the threads.
    os.environ |= {"PYTHONWARNINGS": "ignore:IProgress not found", "OMP_NUM_THREADS": "1"}
    start, before = time.monotonic(), used()
    with tempfile.TemporaryDirectory() as folder:
        where = {"metadata": {"path": folder}}
        how: dict[str, Any] = {"timeout": 600, "record_timing": False, "coalesce_streams": True}
        NotebookClient(notebook, resources=where, **how).execute()
    return tidy(notebook), time.monotonic() - start, used() - before


def used() -> float:
    """Processor seconds of the processes that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def tidy(notebook: Any) -> Any:
    """The notebook without what differs between two machines, and no cell's metadata."""
    notebook["metadata"] = METADATA
    for number, cell in enumerate(notebook["cells"]):
        cell["id"], cell["metadata"] = f"cell-{number}", {}
        if "outputs" in cell:
            cell["outputs"] = [output for output in cell["outputs"] if not is_progress(output)]
        for output in cell.get("outputs", []):
            if "metadata" in output:
                output["metadata"] = {}
    return notebook


def is_progress(output: Any) -> bool:
    """Whether it is what fgl says where a machine is so slow that work takes ten seconds."""
    lines = "".join(output.get("text", "")).splitlines()
    return output.get("name") == "stderr" and all(line.startswith("fgl: ") for line in lines)


def problems(notebook: Any) -> list[str]:
    """What a reader should not see: errors, warnings, and paths of the machine."""
    found = []
    for number, cell in enumerate(notebook["cells"]):
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            text = "".join(output.get("text", "")) + "".join(data.get("text/plain", ""))
            if output["output_type"] == "error" or output.get("name") == "stderr":
                found.append(f"cell {number}: {text or output.get('evalue')}")
            elif "Warning" in text or PATH.search(text):
                found.append(f"cell {number}: {text}")
    return found


def save(notebook: Any, path: Path) -> None:
    import nbformat

    nbformat.write(nbformat.from_dict(notebook), path)


def main() -> int:
    from nbclient.exceptions import CellExecutionError

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="which notebooks; default all")
    parser.add_argument("--save", action="store_true", help="write the outputs to the files")
    options = parser.parse_args()
    bad = False
    for path in sorted(HERE.glob("*.ipynb")):
        if options.names and path.stem not in options.names:
            continue
        try:
            notebook, seconds, busy = executed(path)
        except CellExecutionError as error:
            print(f"{path.stem}: {error}", flush=True)
            bad = True
            continue
        wrong = problems(notebook)
        if options.save and not wrong:
            save(notebook, path)
        if busy > SECONDS:
            wrong.append(f"took {busy:.0f} s of the processor, more than {SECONDS}")
        print(
            f"{path.stem}: {seconds:.0f} s, {busy:.0f} s of the processor",
            *wrong,
            sep="\n  ",
            flush=True,
        )
        bad = bad or bool(wrong)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())

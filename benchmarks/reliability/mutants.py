"""A mutation test: which small changes of the library does no test notice?

    python benchmarks/reliability/mutants.py --json benchmarks/results/mutants.json

It draws mutants of all rooms of `fgl` by the hash of their keys, so that a change of one room does
not draw others elsewhere. First each test runs once, and the lines that it executes are noted; dear
ones are cut off after `--under` seconds of processor time, and further copies of a test are left
out. Then each mutant is run against the tests that execute its statement, those first that execute
few other lines and are fast, until one fails. Every mutant is a process of its own, forked from one
that has collected all tests: the code of the changed functions is exchanged in memory, so a mutant
takes the time of its tests, often milliseconds. Tests that start processes do not see it.

What has ended stands in `--folder`, and is not done again: stop it whenever you like. After tests
were added, `--again` runs the mutants that nobody noticed once more. A mutant that changes nothing
that anybody could see is judged by hand: write its key and the reason into `equivalent` of the
published file. Needs the extra `test`, and Linux.

    python benchmarks/reliability/mutants.py --seeded benchmarks/results/truth_mutants.json

It puts the faults of that file into the library instead, one at a time, each by a text and what
stands in its place, and runs the tests that must find it. `--faults at_filing` are those of an
earlier commit, `filed`, whose tests let them pass: they run in a checkout of that with this script.
"""

import ast
import gc
import hashlib
import importlib
import json
import os
import pkgutil
import signal
import sys
import time
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import pytest
from harness.flags import arguments, flag
from harness.machine import ROOT, forked, kept, machine, write
from harness.mutate import Mutant, functions, mutants, mutated, source

import fgl

Code = dict[tuple[str, str, int], list[types.FunctionType]]  # by file, qualified name, line
COPIES = 4  # of a test are run where one takes longer than QUICK; all where it does not
QUICK = 0.03
SLACK = 5.0  # seconds that a test may take under a mutant, and ten times its own
WALL = 60.0  # seconds that a test may wait for others


def room(path: str) -> str:
    """The folder that a file lives in; `fgl` for a file beside the folders."""
    parts = Path(path).parts[1:-1]
    inner = parts[:1] in (("federation",), ("transforms",)) or parts[:2] == ("data", "splits")
    return "/".join(parts[: 2 if inner else 1]) or "fgl"


def drawn(number: int, seed: int, rooms: Sequence[str]) -> list[Mutant]:
    """Mutants by the hash of their keys: at least four of a room, else as many as it has code."""
    by_room: dict[str, list[Mutant]] = defaultdict(list)
    for file in sorted((ROOT / "fgl").rglob("*.py")):
        path = str(file.relative_to(ROOT))
        if not rooms or room(path) in rooms:
            by_room[room(path)] += mutants(path)
    total = sum(map(len, by_room.values()))

    def rank(mutant: Mutant) -> bytes:
        return hashlib.sha256(f"{seed} {mutant.key}".encode()).digest()

    chosen = []
    for each in by_room.values():
        share = max(4, round(number * len(each) / total)) if number else 0
        chosen += sorted(each, key=rank)[:share]
    return sorted(chosen, key=rank)


class Lines:
    """Lines of the library that run between `start` and `stop`, by `sys.settrace`."""

    def __init__(self) -> None:
        files = (ROOT / "fgl").rglob("*.py")
        self.seen: dict[str, set[int]] = {str(file): set() for file in files}
        self.tracers = {file: self.tracer(lines) for file, lines in self.seen.items()}

    def tracer(self, lines: set[int]) -> Callable[..., Any]:
        def trace(frame: types.FrameType, event: str, arg: object) -> Any:
            if event == "line":
                lines.add(frame.f_lineno)
            return trace

        return trace

    def start(self) -> None:
        for lines in self.seen.values():
            lines.clear()
        sys.settrace(lambda frame, event, arg: self.tracers.get(frame.f_code.co_filename))

    def stop(self) -> dict[str, list[int]]:
        sys.settrace(None)
        return {file: sorted(lines) for file, lines in self.seen.items() if lines}


class Owners:
    """The function that a line belongs to, so that noted lines outlive changes elsewhere."""

    def __init__(self) -> None:
        paths = [str(file.relative_to(ROOT)) for file in (ROOT / "fgl").rglob("*.py")]
        self.of = {
            str(ROOT / path): {
                line: (f"{path}::{name}", node.lineno)
                for name, node in functions(ast.parse(source(path)))
                for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
            }
            for path in paths
        }

    def by_function(self, lines: dict[str, list[int]]) -> dict[str, str]:
        """Lines of files as a bit set in hexadecimal for each function."""
        bits: Counter[str] = Counter()
        for file, numbers in lines.items():
            for number in numbers:
                if number in self.of[file]:
                    name, first = self.of[file][number]
                    bits[name] |= 1 << (number - first)
        return {name: f"{value:x}" for name, value in bits.items()}


class Slow(Exception):
    """A test took longer than it may."""


class Session:
    """Pytest's loop over the collected tests, in place of which the mutants run."""

    def __init__(self, args: Any) -> None:
        self.args = args
        self.failed = self.passed = self.late = False
        self.owners = Owners()
        self.folder: Path = args.folder
        self.folder.mkdir(parents=True, exist_ok=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed
        self.passed |= report.passed and report.when == "call"

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        code, args = loaded_code(), self.args
        items = {item.nodeid: item for item in session.items}
        if args.seeded:
            return run_seeded(self, items, code)
        each = drawn(args.mutants, args.seed, args.rooms)
        chosen = [m for m in each if exchanges(m.path, mutated(m), code)]
        gc.freeze()  # forked processes need not copy what they do not change
        note_lines(self, session.items)
        run_mutants(self, chosen, items, code)
        return True

    def once(self, item: pytest.Item, following: pytest.Item | None, seconds: float) -> float:
        """Run a test, at most so many seconds of processor time; return those that it took."""
        self.failed = self.passed = self.late = False

        def stop(number: int, frame: object) -> None:
            self.late = True
            signal.setitimer(signal.ITIMER_PROF, 1.0)  # again, where a test catches everything
            raise Slow(item.nodeid)

        signal.signal(signal.SIGPROF, stop)
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, WALL)
        start = time.process_time()
        try:
            with suppress(Slow):  # which notes that it is late
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
        return time.process_time() - start


def ends_well(work: Callable[[], object], words: Path) -> bool:
    """Do some work in a process of its own, which prints to a file; whether it ended well."""

    def printing() -> None:
        out = os.open(words, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        work()

    return os.waitpid(forked(printing), 0)[1] == 0


def lines_of(file: Path) -> list[dict[str, Any]]:
    """The records of a file of JSON lines; a last line that was cut off is none."""
    lines = file.read_text(encoding="utf-8").split("\n")[:-1] if file.exists() else []
    return [json.loads(line) for line in lines]


def append(file: Path, record: dict[str, Any]) -> None:
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(record) + "\n")


# Which test executes what ------------------------------------------------------------------------


def note_lines(run: Session, items: Sequence[pytest.Item]) -> None:
    """Run the tests that are not noted yet, a process for each file, and note their lines."""
    notes = run.folder / "lines.jsonl"
    noted = {record["test"]: record for record in lines_of(notes)}
    by_file: dict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        record = noted.get(item.nodeid, {})
        cut = 0 < record.get("cut", 0) < run.args.under
        if cut or record.get("of") != digest(item.path):
            by_file[item.path].append(item)
    for number, (path, tests) in enumerate(by_file.items()):
        print(f"{number + 1} of {len(by_file)} files: {path.relative_to(ROOT)}", flush=True)
        begun = len(lines_of(notes))
        while tests and not ends_well(partial(note_file, run, tests, notes), run.folder / "words"):
            done = {record["test"] for record in lines_of(notes)[begun:]}
            tests = [item for item in tests if item.nodeid not in done]
            if tests:  # the process died in it
                append(notes, note(tests.pop(0), WALL, cut=WALL))


@cache
def digest(path: Path) -> str:
    """Of a file of tests: one that has changed since is run again."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:8]


def note_file(run: Session, tests: Sequence[pytest.Item], notes: Path) -> None:
    """Run a file's tests in order; of many copies of a slow one the first few."""
    tracer, times = Lines(), defaultdict(list)
    for item, following in zip(tests, [*tests[1:], None], strict=True):
        function = item.nodeid.split("[")[0]
        before = times[function]
        if len(before) >= COPIES and sorted(before)[len(before) // 2] > QUICK:  # the first imports
            append(notes, note(item, max(before)))
            continue
        tracer.start()
        seconds = run.once(item, following, run.args.under)
        lines = run.owners.by_function(tracer.stop())
        before.append(seconds)
        usable = run.passed and not run.failed and not run.late
        cut = run.args.under if run.late else 0
        append(notes, note(item, seconds, cut=cut, lines=lines if usable else {}))


def note(item: pytest.Item, seconds: float, cut: float = 0, lines: Any = None) -> dict[str, Any]:
    """A test's record: without lines for one that failed, was cut off or is a further copy."""
    name, of = item.nodeid, digest(item.path)
    return {"test": name, "of": of, "seconds": round(seconds, 4), "cut": cut, "lines": lines or {}}


class Coverage:
    """Tests by the statement that they execute."""

    def __init__(self, notes: Path, known: Iterable[str]) -> None:
        self.seconds: dict[str, float] = {}
        self.size: dict[str, int] = {}
        self.tests: dict[str, list[tuple[str, int]]] = defaultdict(list)
        newest = {record["test"]: record for record in lines_of(notes)}
        for test in known:
            record = newest.get(test, {"lines": {}, "seconds": 0.0})
            bits = {name: int(value, 16) for name, value in record["lines"].items()}
            self.seconds[test] = record["seconds"]
            self.size[test] = sum(value.bit_count() for value in bits.values())
            for name, value in bits.items():
                self.tests[name].append((test, value))

    def of(self, mutant: Mutant) -> list[str]:
        """Tests that execute the mutant's statement, specific and cheap ones first."""
        lines = sum(1 << line for line in mutant.lines)
        entered = dict(self.tests.get(f"{mutant.path}::{mutant.function}", []))
        tests = [test for test, bits in entered.items() if bits & lines]
        return sorted(tests, key=lambda test: self.size[test] * (0.005 + self.seconds[test]))


# Mutants -----------------------------------------------------------------------------------------


def run_mutants(
    run: Session, chosen: Sequence[Mutant], items: dict[str, pytest.Item], code: Code
) -> None:
    """Run the mutants that have no record yet, and write the report."""
    args, records = run.args, run.folder / "mutants.jsonl"
    coverage = Coverage(run.folder / "lines.jsonl", items)
    equivalent = kept(args.published).get("equivalent", {})
    ended = {record["key"]: record for record in lines_of(records)}
    for mutant in chosen:
        before = ended.get(mutant.key)
        missed = before is not None and before["by"] is None and mutant.key not in equivalent
        if before is not None and not (args.again and missed):
            continue
        record = tried(run, mutant, coverage, items, code)
        append(records, record)
        ended[mutant.key] = record
        print(f"{record['by'] or 'NOBODY':.70} <- {mutant.key}", flush=True)
    report = summary(chosen, ended, equivalent)
    for name, counts in report["rooms"].items():
        print(f"{name:30} {counts}")
    how = {"seed": args.seed, "under": args.under, "budget": args.budget}
    with_lines = sum(size > 0 for size in coverage.size.values())
    write({**how, "tests": with_lines, **report, "machine": machine()}, args.json)


def loaded_code() -> Code:
    """Functions of the library in memory, by file, qualified name and line."""
    for module in pkgutil.walk_packages(fgl.__path__, "fgl."):
        with suppress(ImportError):  # of an extra that is not installed: its code is not changed
            importlib.import_module(module.name)
    code = defaultdict(list)
    for value in gc.get_objects():
        if type(value) is types.FunctionType:  # isinstance asks proxies, which warn
            where = value.__code__
            if where.co_filename.startswith(str(ROOT / "fgl")):
                code[where.co_filename, where.co_qualname, where.co_firstlineno].append(value)
    return code


def tried(
    run: Session, mutant: Mutant, coverage: Coverage, items: dict[str, pytest.Item], code: Code
) -> dict[str, Any]:
    """Run a mutant against its tests: the record says which one noticed it, or nobody."""
    able = coverage.of(mutant)
    spent = list(accumulate(coverage.seconds[test] for test in able))
    tests = [test for test, total in zip(able, spent, strict=True) if total <= run.args.budget]
    limits = {test: SLACK + 10 * coverage.seconds[test] for test in tests}
    by = noticed(run, mutant.path, mutated(mutant), code, limits, items)
    return {"key": mutant.key, "by": by, "tests": len(tests), "left": len(able) - len(tests)}


def noticed(
    run: Session, path: str, changed: ast.Module, code: Code, limits: dict[str, float], items: Any
) -> str | None:
    """The first test that fails on a changed file, of tests with their seconds; or nobody."""
    answer = run.folder / "answer"
    answer.write_text("not begun", encoding="utf-8")

    def work() -> None:
        for function, new in exchanges(path, changed, code):
            function.__code__ = new
        for test, seconds in limits.items():
            answer.write_text(test, encoding="utf-8")
            run.once(items[test], None, seconds)
            if run.failed or run.late:
                return
        answer.write_text("", encoding="utf-8")

    ends_well(work, run.folder / "words")
    by = answer.read_text(encoding="utf-8") or None
    if by == "not begun":
        raise RuntimeError((run.folder / "words").read_text(encoding="utf-8"))
    return by


def run_seeded(run: Session, items: dict[str, pytest.Item], code: Code) -> bool:
    """Print which test finds each fault of a file, and how many tests it was run against."""
    for row in kept(run.args.seeded)[run.args.faults]:
        changed = ast.parse(source(row["path"]).replace(row["before"], row["after"]))
        limits = {test: WALL for test in items if test.startswith(tuple(row["tests"]))}
        by = noticed(run, row["path"], changed, code, limits, items)
        print(f"{by or 'NOBODY'} ({len(limits)} tests) <- {row['after']!r}", flush=True)
    return True


def exchanges(path: str, changed: ast.Module, code: Code) -> list[tuple[Any, types.CodeType]]:
    """Loaded functions of a file and the changed code for them, of those inside a function too."""
    file = str(ROOT / path)

    def below(code: types.CodeType) -> Iterator[types.CodeType]:
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                yield constant
                yield from below(constant)

    return [
        (function, new)
        for new in below(compile(changed, file, "exec", dont_inherit=True))
        for function in code.get((file, new.co_qualname, new.co_firstlineno), [])
        if function.__code__ != new and function.__code__.co_freevars == new.co_freevars
    ]


def summary(
    chosen: Sequence[Mutant], ended: dict[str, Any], equivalent: dict[str, str]
) -> dict[str, Any]:
    """Counts by room, who was missed, and which mutants are equivalent and why."""
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant in chosen:
        if mutant.key not in ended:
            continue
        found = ended[mutant.key]["by"] is not None
        word = "found" if found else "equivalent" if mutant.key in equivalent else "missed"
        rooms[room(mutant.path)].update({"mutants": 1, word: 1})
    total: Counter[str] = sum(rooms.values(), Counter())
    missed = [m.key for m in chosen if m.key in ended and ended[m.key]["by"] is None]
    return {
        "total": dict(total),
        "share": round(total["found"] / max(1, total["mutants"] - total["equivalent"]), 3),
        "rooms": {name: dict(counts) for name, counts in sorted(rooms.items())},
        "missed": [key for key in missed if key not in equivalent],
        "equivalent": equivalent,
    }


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(
        argv,
        mutants=flag(300, "of all rooms, or of those that --rooms names"),
        rooms=flag([], "such as losses or federation/saved; all by default"),
        seed=flag(0, "of the draw"),
        under=flag(0.5, "seconds of processor time after which a test is cut off"),
        budget=flag(20.0, "seconds of tests that a mutant is run against"),
        again=flag(False, "run the mutants again that nobody noticed"),
        tests=flag(["tests", "fgl"], "files and folders"),
        folder=flag(ROOT / "out" / "mutants", "where records are kept"),
        seeded=flag(Path, "a file of faults that are put in, in the place of drawn ones"),
        faults=flag("mutants", "which list of that file"),
        published=flag(ROOT / "benchmarks" / "results" / "mutants.json", "with `equivalent`"),
    )
    os.chdir(ROOT)
    options = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return int(pytest.main([*options, *args.tests], plugins=[Session(args)]))


if __name__ == "__main__":
    sys.exit(main())

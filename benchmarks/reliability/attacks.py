"""Attacks on what the pages promise of privacy: each is a test, run again, with what it reached.

    python benchmarks/reliability/attacks.py --all --json benchmarks/results/attacks.json
    python benchmarks/reliability/attacks.py --only "a split view"
    python benchmarks/reliability/attacks.py --report          the table, from that file

A row says who attacks, what for, what the pages claim, which tests try it, and what they reached.
Of an epsilon this is the lower bound that the attack's hits and false alarms show with 95 %
(Clopper-Pearson), the largest of the tests'; of anything else how often it was reached, of how many
trials. Tests note it by the fixture `reached`. Needs the extras `test` and `flower`.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.flags import arguments, flag
from harness.machine import RESULTS, ROOT, kept, machine, write
from harness.report import publish


class Attack(NamedTuple):
    """What somebody tries, what they must not reach, and the tests that try it."""

    name: str
    who: str
    claim: str
    file: str
    tests: str  # for pytest's -k


ATTACKS = (
    Attack("an empty batch, read from the noise's grid", "the server", "epsilon of DP-SGD",
           "test_per_example_attacks.py", "the_grid"),
    Attack("the number of examples, read from an upload's spread", "the server",
           "epsilon of DP-SGD", "test_per_example_attacks.py", "spread"),
    Attack("dropout's masks, computed from the run's seed", "the server", "epsilon of DP-SGD",
           "test_per_example_attacks.py", "seed_of_the_run or dropout_comes"),
    Attack("losses and numbers beside a noisy message", "the server", "silent methods tell neither",
           "test_transforms_privacy.py", "stands_beside or tells_nothing"),
    Attack("the same question, until the noise averages out", "the server", "one answer a round",
           "test_flower_site.py", "noise_is_drawn_once or same_question or lost_answers"),
    Attack("questions beyond a site's budget", "the server", "a budget survives restarts",
           "test_flower_site.py", "budget"),
    Attack("a run that a site did not approve", "the server", "only approved plans are answered",
           "test_flower_site.py", "approves"),
    Attack("both secrets of a client, by going back a checkpoint", "the server", "one of the two",
           "test_flower_site.py", "both or one_mask"),
    Attack("secrets that lie on a disk after an exchange", "who has the disk", "none of them",
           "test_flower_site.py", "secrets_are_gone or owner_alone"),
    Attack("a split view: other lists for one client", "a server that lies", "fails with `signed`",
           "test_secure_sum_attacks.py", "split_view or two_thirds"),
    Attack("invented clients, old keys, a model for one client", "a server that lies",
           "fails with `signed`", "test_secure_sum_attacks.py",
           "invent or old_keys or only_one_client or one_list or two_ways"),
    Attack("one honest upload alone in a sum", "colluders and a dropout",
           "`honest` clients at least", "test_secure_sum_attacks.py", "smallest_number"),
    Attack("false shares that lose a sum", "a client", "true shares are found, liars named",
           "test_secure_sum_attacks.py", "false_share or true_shares"),
    Attack("noise that colluders take off a sum", "colluders", "epsilon of `summed_gaussian`",
           "test_summed_gaussian.py",
           "colluders or observer or distribution or accountant_credits"),
    Attack("a neighbour's features in FedGCN's exchange", "the server, a client", "nothing is read",
           "test_secure_rows.py", "reads"),
    Attack("odd replies that end a run", "a node on Flower", "its own round at most",
           "test_flower_replies.py",
           "no_field or beside_an_upload or metric_ or handshake or alone"),
    Attack("uploads and names that fill the memory", "a node on Flower", "`Limits`",
           "test_flower_replies.py", "large_upload or few_and_short"),
    Attack("words of a client's error", "the server", "stage and type alone",
           "test_flower_replies.py", "without_its_words"),
    Attack("an epsilon that is too small", "who reads it", "never below the exact one",
           "test_privacy.py", "epsilon"),
    Attack("two noisy models of one round, by a kill", "who sees the model", "one release a round",
           "test_one_release.py", "same_model_again"),
    Attack("a history's loss", "a node on Flower", "one client of three moves it little",
           "test_flower_replies.py", "decide_the_loss"),
    Attack("a round of a secure sum, lost or lied in", "two clients of three",
           "one exchange at most", "test_flower_site.py", "two_of_three_cost"),
)  # fmt: skip


def tried(attack: Attack) -> dict[str, Any]:
    """How many tests of an attack passed and failed, slow ones too, and what they reached."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider"]
    command += [f"tests/{attack.file}", "-k", attack.tests]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "tests.xml")
        command += [f"--junitxml={file}", "-o", "junit_family=legacy"]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        found = ElementTree.parse(file).iter("property") if file.exists() else []
        notes = [(str(each.get("name")), str(each.get("value"))) for each in found]
    last = (done.stdout.strip().splitlines() or [""])[-1]
    counts = {
        what: int(number) for number, what in re.findall(r"(\d+) (passed|failed|error)", last)
    }
    if not counts:
        raise RuntimeError(f"Expected tests of {attack.name!r}, but got {done.stdout[-2000:]}")
    return {
        "passed": counts.get("passed", 0),
        "failed": sum(counts.values()) - counts.get("passed", 0),
        "reached": reached(notes),
    }


def reached(notes: Iterable[tuple[str, str]]) -> dict[str, tuple[float, float]]:
    """What the tests of an attack noted, together: the largest epsilon, and sums of all else.

    Example:
        >>> reached([("reads", "0 of 2"), ("reads", "1 of 3"), ("epsilon", "0.1 of 0.5")])
        {'reads': (1.0, 5.0), 'epsilon': (0.1, 0.5)}
    """
    found: dict[str, tuple[float, float]] = {}
    for what, text in notes:
        got, of = map(float, text.split(" of "))
        before = found.get(what)
        if before is None:
            found[what] = got, of
        elif what == "epsilon":
            found[what] = max(before, (got, of))
        else:
            found[what] = before[0] + got, before[1] + of
    return found


def said(notes: Mapping[str, Any]) -> str:
    """What was reached, as the table tells it.

    Example:
        >>> said({"reads": (1.0, 5.0), "epsilon": (0.1, 0.5)})
        '1 of 5 reads; epsilon at least 0.1, of 0.5'
    """
    return "; ".join(
        f"epsilon at least {got:.2g}, of {of:.2g}"
        if what == "epsilon"
        else f"{got:,.0f} of {of:,.0f} {what}"
        for what, (got, of) in notes.items()
    )


def table(report: dict[str, Any]) -> str:
    """The table of the page."""
    at = report["machine"]
    lines = [
        f"{at['cpu']}, torch {at['torch']}, commit {at['commit']}.",
        "",
        "| attack | by whom | claimed | reached | tests |",
        "|---|---|---|---|---|",
    ]
    for attack in ATTACKS:
        found = report["attacks"].get(attack.name)
        if found is None:
            continue
        fail = f"; **{found['failed']} fail**" if found["failed"] else ""
        lines.append(
            f"| {attack.name} | {attack.who} | {attack.claim} | {said(found['reached'])} | "
            f"{found['passed']} in `{attack.file}`{fail} |"
        )
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    only = flag("", "attacks whose name has this")
    args = arguments(argv, all=flag(False, "every attack"), only=only, report=False)
    if args.report:
        publish("attacks", table(kept(RESULTS / "attacks.json")))
        return 0
    chosen = [each for each in ATTACKS if args.all or (args.only and args.only in each.name)]
    if not chosen:
        raise ValueError(f"Expected --all or the name of an attack, but got {args.only!r}")
    report: dict[str, Any] = {"benchmark": "attacks", "machine": machine(), "attacks": {}}
    for attack in chosen:
        report["attacks"][attack.name] = tried(attack)
        print(attack.name, report["attacks"][attack.name], flush=True)
        write(report, args.json)
    print(table(report))
    return int(any(each["failed"] for each in report["attacks"].values()))


if __name__ == "__main__":
    sys.exit(main())

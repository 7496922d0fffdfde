"""Reports of the tables: what an error is over, held against loops."""

import statistics
from typing import Any

from harness.baselines import fedavg, local
from harness.report import by_repetition, corrected, markdown, pooled
from harness.rows import Row, Table
from scipy.stats import wilcoxon

from fgl import tasks

# Runs 0 to 4 are the folds of repetition 0, 5 to 9 of repetition 1; repetition 2 lacks folds.
RUNS = {0: 1.0, 1: 2.0, 2: 4.0, 3: 8.0, 4: 10.0, 5: 3.0, 6: 3.0, 7: 3.0, 8: 3.0, 9: 4.0, 11: 6.0}


def scored(values: dict[int, float]) -> dict[int, dict[str, float]]:
    return {number: {"last": value} for number, value in values.items()}


def test_repetitions_are_means_of_their_folds() -> None:
    assert by_repetition(RUNS) == [5.0, 3.2, 6.0]
    assert by_repetition({7: 1.0}) == [1.0]
    assert by_repetition({}) == []


def table(**options: Any) -> Table:
    cells = {("PROTEINS", 15): 70.0, ("NCI1", 15): 0.0}
    rows = [
        Row(f"{name}, {alpha}", cells, tasks.Graphs(), make, base=f"alone, {alpha}", pool=name)
        for alpha in ("a", "b")
        for name, make in (("alone", local), ("together", fedavg))
    ]
    given: dict[str, Any] = {"datasets": ("PROTEINS", "NCI1"), "clients": (15,), "key": "last"}
    given |= {"validation": "", "folds": True, "pooled": True, **options}
    return Table(rows, "alone", "runs.jsonl", **given)


def found() -> dict[tuple[str, str, int], dict[int, dict[str, float]]]:
    """Gains of 1 to 3 at three settings; the fourth has runs of one method alone."""
    return {
        ("alone, a", "PROTEINS", 15): scored({0: 60.0, 1: 62.0}),
        ("together, a", "PROTEINS", 15): scored({0: 61.0, 1: 63.0, 2: 99.0}),
        ("alone, b", "PROTEINS", 15): scored({0: 50.0, 5: 60.0, 6: 60.0}),
        ("together, b", "PROTEINS", 15): scored({0: 52.0, 5: 61.0, 6: 63.0}),
        ("alone, a", "NCI1", 15): scored({0: 50.0}),
        ("together, a", "NCI1", 15): scored({0: 53.0}),
        ("together, b", "NCI1", 15): scored({0: 53.0}),
    }


def test_a_pooled_line_takes_a_setting_as_one_number() -> None:
    each = [1.0, 2.0, 3.0]  # the second is the mean of 2 and (1 + 3) / 2
    error = statistics.stdev(each) / 3**0.5
    want = ["together", "3 settings", f"+2.00 ± {error:.2f}", f"{wilcoxon(each).pvalue:.3f}"]
    assert pooled(table(), found()) == [want]
    assert pooled(table(pooled=False), found()) == []


def test_a_table_says_how_many_differences_it_tests() -> None:
    rows = [Row(name, {("cora", 5): 0.0}, tasks.Nodes(), fedavg) for name in ("base", "up", "same")]
    made = Table(rows, "base", "runs.jsonl", datasets=("cora",), clients=(5,), key="last")
    ups = {n: float(n) for n in range(8)}
    each = {
        ("base", "cora", 5): scored(dict.fromkeys(ups, 0.0)),
        ("up", "cora", 5): scored({n: 1.0 + value for n, value in ups.items()}),
        ("same", "cora", 5): scored({n: (-1.0) ** n * (n + 1) for n in ups}),
    }
    p = 2 * wilcoxon([1.0 + value for value in ups.values()]).pvalue
    said = (
        "\n2 differences were tested. Corrected for their number (Holm), these are below .05: "
        f"up on cora with 5 clients ({p:.3f}).\n"
    )
    assert corrected(made, each, ["cora"]) == said
    assert markdown(made, each, ["cora"]).endswith(said)
    del each["up", "cora", 5]
    assert corrected(made, each, ["cora"]) == ""

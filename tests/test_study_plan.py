"""Plans of studies: points, refinement, choices, identities; and statistics, against others'."""

import collections
import importlib
import io
import math
import random
import sys
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import igraph
import networkx as nx
import numpy as np
import pytest
import torch
from scipy import sparse, stats
from scipy.stats import qmc

import fgl
from fgl import LogUniform, Tuned, Uniform
from fgl.methods import fedprox
from fgl.study.fingerprint import fingerprint
from fgl.study.plan import Plan
from fgl.study.space import check_space, edges, sobol_point
from fgl.study.statistics import difference, holm, improvement, least_effect, seeds_needed

RATES = [
    {"optimizer": "sgd", "lr": LogUniform(0.1, 10), "steps": [1, 3, 5]},
    {"optimizer": "adam", "lr": LogUniform(1e-3, 0.1), "steps": [1, 3, 5]},
]


def planned(trials: int = 12, **other: Any) -> Plan:
    methods = {
        "FedAvg": Tuned(lambda task: task.fedavg),
        "FedProx": Tuned(fedprox, mu=LogUniform(1e-3, 1)),
    }
    values: dict[str, Any] = {"local": RATES, "stages": [trials], "tuning_seeds": [1000]}
    values |= {"seeds": [0, 1], "rounds": 10, "tuning_rounds": 5, "settings": {"a": 1, "b": 2}}
    return Plan(methods, **{**values, **other})


def results(plan: Plan, worth: Any, most: int = 10**6) -> dict[str, dict[str, Any]]:
    """Finish jobs in the plan's order, each with ``worth(job)`` as its validation."""
    records: dict[str, dict[str, Any]] = {}
    while len(records) < most:
        new = [job for job in plan.jobs(records) if job.id not in records]
        if not new:
            break
        records[new[0].id] = {"validation": worth(new[0])}
    return records


def by_rate(job: Any) -> float:
    """A validation that is best for Adam at 0.02, whatever else."""
    return -abs(math.log(job.point.local["lr"] / 0.02)) - (job.point.local["optimizer"] == "sgd")


def test_a_name_of_local_training_and_of_a_method_is_two_values() -> None:
    point = importlib.import_module("fgl.study.plan").Point({"lr": 0.1}, {"lr": 0.2, "mu": 1})
    assert point.values == {"lr": 0.1, "own lr": 0.2, "mu": 1}


def test_wide_trials_are_the_first_points_of_one_sobol_sequence_for_all_methods() -> None:
    plan = planned()
    points = qmc.Sobol(32, scramble=True, seed=7).random(4)
    tried = {m: plan.cell("a", m, {}).trials[0] for m in plan.methods}
    assert all(len(trials) == 8 for trials in tried.values())  # two thirds of 12
    for k, trial in enumerate(tried["FedProx"]):
        u, space = points[k // 2], RATES[k % 2]
        low, high = space["lr"].low, space["lr"].high
        assert trial.point.local["optimizer"] == space["optimizer"]
        assert trial.point.local["lr"] == pytest.approx(low * (high / low) ** u[1], rel=1e-3)
        assert trial.point.local["steps"] == [1, 3, 5][int(3 * u[2])]
        assert trial.point.own["mu"] == pytest.approx(10 ** (3 * u[8] - 3), rel=1e-3)
        assert trial.point.local == tried["FedAvg"][k].point.local
        assert [(job.seed, job.rounds) for job in trial.jobs] == [(1000, 5)]
    assert sobol_point(7, 3)[0] == points[3][:8].tolist()


def test_from_an_edge_the_search_goes_outwards_within_hard_bounds() -> None:
    kind = LogUniform(0.01, 1)
    tried = [0.02, 0.1, 0.9]
    outwards = [kind.around(u, 0.9, tried, 5) for u in (0.0, 1.0)]
    step = math.log(100) / 5
    assert [math.log(v / 0.9) / step for v in outwards] == pytest.approx([-0.5, 2.5], abs=1e-3)
    down = [math.log(kind.around(u, 0.02, tried, 5) / 0.02) / step for u in (0.0, 1.0)]
    assert down == pytest.approx([-2.5, 0.5], abs=1e-3)
    inside = [math.log(kind.around(u, 0.1, tried, 5) / 0.1) / step for u in (0.0, 1.0)]
    assert inside == pytest.approx([-1.5, 1.5], abs=1e-3)
    assert Uniform(0, 1, bounds=(0, 1)).around(1.0, 0.9, [0.1, 0.9], 5) == 1.0
    assert edges({"p": Uniform(0, 1, bounds=(0, 1))}, {"p": 1.0}, [{"p": 0.2}, {"p": 1.0}]) == []
    assert edges({"p": Uniform(0, 1)}, {"p": 0.9}, [{"p": 0.2}, {"p": 0.9}]) == [
        "p 0.9 of 0.2 to 0.9"
    ]
    assert edges({"p": Uniform(0, 1)}, {"p": 0.9}, [{"p": 0.9}]) == []  # one value has no ends
    assert edges({"s": [1, 3, 5]}, {"s": 5}, []) == ["s 5 of 1 to 5"]
    assert edges({"s": ["a", "b", "c"], "t": [1, 2]}, {"s": "a", "t": 1}, []) == []


def test_each_seed_may_tune_for_itself() -> None:
    def worth(job: Any) -> float:
        return by_rate(job) if job.seed == 0 else job.point.local["lr"]

    plan = planned(tuning_seeds="each", tuning_rounds=10)
    records = results(plan, worth)
    cell = plan.cell("a", "FedAvg", records)
    for group, seed in zip(cell.trials, (0, 1), strict=True):
        jobs = [job for trial in group for job in trial.jobs]
        assert {job.seed for job in jobs} == {seed}
        assert cell.chosen[seed].key == max(jobs, key=worth).point.key
        assert cell.tests[seed].id in {job.id for job in jobs}  # the chosen trial is the test run
    assert len(records) == plan.count() == 2 * 2 * 2 * 12


def test_a_failed_trial_is_the_worst_and_a_mistake_in_the_first_gives_the_cell_up() -> None:
    plan = planned()
    records = results(plan, lambda job: None if job.point.local["steps"] == 5 else by_rate(job))
    assert plan.cell("a", "FedAvg", records).chosen[0].local["steps"] != 5
    plan = planned()
    nothing = results(plan, lambda job: None)
    assert plan.cell("a", "FedAvg", nothing).lost and len(nothing) == 4 * 8  # wide trials alone
    for kind, lost in (("TypeError", True), ("NameError", True), ("ValueError", False)):
        plan = planned()
        first = next(plan.jobs({}))
        record = {"validation": None, "kind": kind, "error": f"{kind}: no"}
        cell = plan.cell("a", "FedAvg", {first.id: record})
        assert bool(cell.lost) is lost and (len(cell.jobs) == 1) is lost
    plan = planned(local=[{}], stages=[12])
    first = plan.cell("a", "FedAvg", {}).jobs[0]
    assert first.rounds == 10 and first.seed == 0  # nothing to tune: a test run
    cell = plan.cell("a", "FedAvg", {first.id: record | {"kind": "TypeError"}})
    assert cell.whole and len(cell.jobs) == 1


def other(fedavg: Any) -> Any:
    return fedprox(fedavg, mu=LIMIT)


LIMIT = 0.5


def averaged(task: Any) -> Any:
    return task.fedavg


def test_a_fingerprint_follows_what_a_function_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def enclosing(mu: float) -> Any:
        return lambda task: fedprox(task.fedavg, mu=mu)

    def documented(x: int) -> int:
        """Add."""
        return x + 1

    def plain(x: int) -> int:
        return x + 1

    same = [
        (lambda t: t.fedavg, lambda t: t.fedavg),
        (enclosing(0.1), enclosing(0.1)),
        (partial(fedprox, mu=0.1), partial(fedprox, mu=0.1)),
        (fgl.tasks.Nodes(clients=3), fgl.tasks.Nodes(clients=3)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"x", "y", "z"}, {"z", "y", "x"}),
        (np.arange(3), np.arange(3)),
    ]
    differ = [
        (enclosing(0.1), enclosing(0.2)),
        (partial(fedprox, mu=0.1), partial(fedprox, mu=0.2)),
        (fgl.tasks.Nodes(clients=3), fgl.tasks.Nodes(clients=4)),
        (lambda t, mu=1: t, lambda t, mu=2: t),
        (lambda t: [t for _ in range(2)], lambda t: [t for _ in range(3)]),
        (LogUniform(1, 2), Uniform(1, 2)),
        (1, 1.0),
        ([1], (1,)),
        (np.arange(3), np.arange(3.0)),
    ]
    assert all(fingerprint(a) == fingerprint(b) for a, b in same)
    assert all(fingerprint(a) != fingerprint(b) for a, b in differ)
    assert fingerprint(documented.__code__.co_code) == fingerprint(plain.__code__.co_code)
    before = fingerprint(other)
    monkeypatch.setitem(other.__globals__, "LIMIT", 0.6)
    assert fingerprint(other) != before  # a global that it reads
    layered = fgl.layer(other)
    before, by_name = fingerprint(layered), fingerprint(fedprox)
    monkeypatch.setattr(fgl.kinds, "binder", None)  # the library's own code may change
    assert (fingerprint(layered), fingerprint(fedprox)) == (before, by_name)
    monkeypatch.setitem(other.__globals__, "LIMIT", 0.7)
    assert fingerprint(layered) != before  # what is decorated counts
    before = fingerprint(averaged)
    monkeypatch.setitem(averaged.__globals__, "fedavg", 3)
    assert fingerprint(averaged) == before  # an attribute is no global
    ring: list[Any] = []
    loop = lambda: ring  # noqa: E731
    ring.append(loop)
    assert fingerprint(loop) == fingerprint(loop)


class Slots:
    __slots__ = ("a",)

    def __init__(self, a: Any) -> None:
        self.a = a

    def value(self) -> Any:
        return self.a


class Listed(list[Any]):
    pass


def test_a_fingerprint_sees_what_an_object_holds() -> None:
    """Equal values have equal fingerprints, also after a pickle; others differ."""

    def listed(a: int) -> Listed:
        one = Listed([1])
        one.extra = a  # type: ignore[attr-defined]
        return one

    def shown(a: int) -> type:
        return type("X", (), {"f": property(lambda self: a)})

    def large(a: int) -> Any:
        return [0] * 5000 + [a] + [0] * 5000

    makers = [
        Slots,
        listed,
        shown,
        lambda a: Slots(a).value,
        lambda a: collections.deque([Slots(a)]),
        lambda a: {Slots(a)},
        lambda a: [a].count,
        lambda a: np.array([str(a), Slots(a)], dtype=object),
        lambda a: collections.OrderedDict([(a, 1), (3, 1)]),
        lambda a: collections.OrderedDict(weight=torch.tensor(large(a))),
        lambda a: collections.defaultdict([int, float, str][a]),
        lambda a: io.BytesIO(bytes([a])),
        lambda a: sparse.csr_matrix(np.array([large(a)])),
        lambda a: nx.path_graph(a + 2),
        lambda a: igraph.Graph.Ring(a + 3),
    ]
    for number, make in enumerate(makers):
        texts = [fingerprint(make(a)) for a in (1, 1, 2)]
        assert texts[0] == texts[1] != texts[2], number
        if make is not shown:
            assert fingerprint(cloudpickle.loads(cloudpickle.dumps(make(1)))) == texts[0], number
    itself = Slots(None)
    itself.a = itself
    assert fingerprint(itself) == fingerprint(itself)
    for generator in (torch.Generator(), random.Random(0), np.random.default_rng(0)):
        with pytest.raises(TypeError, match="generators, but got a"):
            fingerprint(lambda task, own=generator: task)
    assert fingerprint(random.shuffle) != fingerprint(np.random.rand)  # of global generators


def test_fingerprints_see_ones_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "values_56.py").write_text("import inner_56\nRATE = 1\nOTHER = 1\n")
    (tmp_path / "inner_56.py").write_text("def rate():\n    return 1\n")
    (tmp_path / "late_56.py").write_text("from inner_56 import rate\n")
    values = importlib.import_module("values_56")

    def late(task: Any) -> Any:
        from late_56 import rate  # type: ignore[import-not-found]

        return fedprox(task.fedavg, mu=rate())

    methods = [
        lambda task: fedprox(task.fedavg, mu=values.RATE),
        lambda task: fedprox(task.fedavg, mu=values.inner_56.rate()),
        late,
    ]
    before = [fingerprint(method) for method in methods]
    assert before == [fingerprint(method) for method in methods]
    values.OTHER = 2  # no method uses it
    assert before == [fingerprint(method) for method in methods]
    values.RATE = 2  # as a script's flag does, which workers would not see
    assert fingerprint(methods[0]) != before[0]
    for name in ("inner_56", "late_56"):
        del sys.modules[name]
    (tmp_path / "inner_56.py").write_text("def rate():\n    return 23\n")  # edited, another size
    values.inner_56 = importlib.import_module("inner_56")
    assert fingerprint(methods[1]) != before[1] and fingerprint(methods[2]) != before[2]


def test_what_cannot_be_a_space_is_refused() -> None:
    cases: list[tuple[Any, Any, str]] = [
        (lambda: Uniform(2, 1), ValueError, "high"),
        (lambda: LogUniform(0, 1), ValueError, "low"),
        (lambda: Uniform(0, 2, bounds=(0, 1)), ValueError, "bounds"),
        (lambda: Tuned(fedprox, nu=0.1), TypeError, "build"),
        (lambda: Tuned(fedprox, mu=[]), ValueError, "mu"),
        (lambda: Tuned(3), TypeError, "build"),  # type: ignore[arg-type]
        (lambda: check_space("local", {"a": [1, 2], "b": [1, 2]}, 1), ValueError, "local"),
    ]
    for make, kind, name in cases:
        with pytest.raises(kind, match=name):
            make()


def test_intervals_are_scipys() -> None:
    generator = np.random.default_rng(0)
    for n in (2, 3, 10):
        a, b = generator.normal(size=(2, n))
        theirs = stats.ttest_rel(a, b)
        low, high = theirs.confidence_interval()
        mine = difference(list(a - b))
        assert (mine.low, mine.high, mine.p) == pytest.approx((low, high, theirs.pvalue))
        assert mine.count == n and mine.deviation == pytest.approx(np.std(a - b, ddof=1))
    assert difference([0.0, 0.0]).p == 1 and difference([0.1, 0.1]).p == 1
    for gains in ([], [0.5], [0.5, math.nan]):
        assert difference(gains).p == 1 and math.isinf(difference(gains).low)


def test_holms_values_and_power_are_those_of_statsmodels() -> None:
    """Numbers of statsmodels 0.15: multipletests(method="holm") and TTestPower().solve_power."""
    p = [0.01, 0.04, 0.03, 0.005, 0.2, 0.04]
    assert holm(p) == pytest.approx([0.05, 0.12, 0.12, 0.03, 0.2, 0.12])
    assert holm([0.6, 0.9]) == [1.0, 1.0] and holm([]) == []
    power = {(10, 1): 0.99600191, (3, 1): 3.26404355, (20, 27): 1.01488628, (5, 3): 2.29164920}
    for (count, tests), effect in power.items():
        assert least_effect(count, tests) == pytest.approx(effect, rel=1e-4)
    for effect, tests, seeds in ((1, 1, 9.9379), (0.5, 1, 33.3671), (0.2, 27, 395.8253)):
        assert seeds_needed(1.0, effect, tests) == math.ceil(seeds)


def test_the_probability_of_improvement_is_mann_whitneys() -> None:
    a, b = [0.1, 0.4, 0.4, 0.9], [0.2, 0.4, 0.1]
    u = stats.mannwhitneyu(a, b).statistic
    assert improvement(a, b) == pytest.approx(u / 12)
    assert improvement(a, b, less=True) == pytest.approx(1 - u / 12)

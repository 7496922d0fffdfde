"""The page of the leaderboard: what to use when, ranks, a table a block, what was not run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from papers.leaderboard import (
    BESIDE_BLOCKS,
    BLOCKS,
    LAYOUTS,
    PUBLISHED,
    ROUNDS,
    SETTINGS,
    WORSE,
    Cell,
    cells,
    entrants,
    key,
    refusal,
)

from .critical import Ranking, ranking
from .machine import ROOT, pyplot
from .report import paired, spread
from .rows import spelled

Found = Mapping[str, dict[str, Any]]
Block = tuple[str, str]
TITLES = {
    "cora": "Cora",
    "citeseer": "CiteSeer",
    "pubmed": "PubMed",
    "amazon_photo": "Photo",
    "amazon_computers": "Computers",
}
BASE = "FedAvg"


def made(found: Found, cell: Cell) -> dict[str, Any] | None:
    """A recorded cell, if it is there."""
    return found.get(spelled(key(cell)))


def scores(found: Found, cell: Cell, which: str = "best_val") -> dict[int, float]:
    """Seed to test accuracy in the round of the best validation, or in the ``"last"``, in %.

    Where some clients are unseen, theirs.
    """
    line = made(found, cell)
    if line is None:
        return {}
    metric = "unseen_accuracy" if cell[2] == "unseen" else "test_accuracy"
    each = {run["seed"]: run.get(metric, {}).get(which) for run in line["runs"]}
    return {seed: 100 * value for seed, value in each.items() if value is not None}


def costs(found: Found, cell: Cell) -> dict[str, float]:
    """Of a run, the mean over seeds: megabytes of a client and a round, processor seconds."""
    line = made(found, cell)
    runs = [] if line is None else line["runs"]
    if not runs:
        return {}
    clients = SETTINGS[cell[2]]["clients"]

    def mean(of: Any) -> float:
        return statistics.mean(of(run) for run in runs)

    return {
        "up": mean(lambda run: run["bytes_up"] / run["rounds"]) / clients / 1e6,
        "down": mean(lambda run: run["bytes_down"] / run["rounds"]) / clients / 1e6,
        "before": mean(lambda run: run.get("bytes_before", 0)) / clients / 1e6,
        "processor": mean(lambda run: run["processor_seconds"]),
        "loading": mean(lambda run: run["processor_before"]),
    }


def run_blocks(found: Found) -> list[Block]:
    """The blocks that have FedAvg and another method."""
    return [
        block
        for block in BLOCKS
        if scores(found, (BASE, *block))
        and sum(bool(scores(found, (name, *block))) for name in entrants()) > 1
    ]


def full_blocks(found: Found) -> list[Block]:
    """The blocks that averages read: two thirds of the methods that apply have been run there."""
    full = []
    for block in run_blocks(found):
        able = [name for name in entrants() if not refusal(name, block[1])]
        if 3 * sum(made(found, (name, *block)) is not None for name in able) >= 2 * len(able):
            full.append(block)
    return full


def whole(found: Found, cell: Cell) -> bool:
    """Whether a cell has been run, and each of its seeds has a score that is a number."""
    return len(scores(found, cell)) == len((made(found, cell) or {"runs": [None]})["runs"])


def means(found: Found, blocks: Sequence[Block]) -> dict[str, dict[Block, float]]:
    """Method to block to mean test accuracy; only of methods that are whole in all blocks."""
    return {
        name: {b: statistics.mean(scores(found, (name, *b)).values()) for b in blocks}
        for name in entrants()
        if blocks and all(whole(found, (name, *b)) for b in blocks)
    }


def table(found: Found, block: Block) -> str:
    """A block's methods, the best first."""
    heads = ["method", "test", "last round", "published", f"against {BASE}", "chosen", "MB up"]
    heads += ["MB down", "MB before", "processor seconds", "of them before training"]
    names = [name for name in entrants() if scores(found, (name, *block))]
    names.sort(key=lambda name: -statistics.mean(scores(found, (name, *block)).values()))
    base = {n: {"test": v} for n, v in scores(found, (BASE, *block)).items()}
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in names:
        cell = (name, *block)
        mine, cost = scores(found, cell), costs(found, cell)
        test, last = (spread(each, digits=1) for each in (mine, scores(found, cell, "last")))
        test += "" if whole(found, cell) else f" ({len(mine)} of its seeds, others diverged)"
        theirs = PUBLISHED.get(cell)
        printed = f"{theirs[0]:.1f}" if theirs else ""
        printed += f" ± {theirs[1]:.1f}" if theirs and theirs[2] > 1 else ""
        gains = {n: v - base[n]["test"] for n, v in mine.items() if n in base}
        gain = "" if name == BASE else paired(gains)[0]
        chosen = (made(found, cell) or {})["chosen"]
        told = ", ".join(f"{key} {value}" for key, value in chosen.items())
        spent = [f"{cost[key]:.3g}" for key in ("up", "down", "before")]
        spent += [f"{cost['processor'] + cost['loading']:.3g}", f"{cost['loading']:.2g}"]
        first = [name, test, last, printed, gain, told]
        lines.append(f"| {' | '.join([*first, *spent])} |")
    lost = [n for n in entrants() if made(found, (n, *block)) and n not in names]
    lines += ["", f"Without a score, since all seeds diverged: {', '.join(lost)}."] if lost else []
    return "\n".join(lines) + "\n"


def spending(found: Found, name: str, blocks: Sequence[Block]) -> dict[str, float]:
    """A method's costs, means over blocks; `sends` is both ways, and what goes before by round."""
    each = [costs(found, (name, *block)) for block in blocks]
    mean = {what: statistics.mean(own[what] for own in each) for what in each[0]}
    return {**mean, "sends": mean["up"] + mean["down"] + mean["before"] / ROUNDS}


def advice(found: Found, ranks: Ranking | None) -> list[str]:
    """What a practitioner should use when, said from the numbers that are there."""
    blocks = full_blocks(found)
    by = means(found, blocks)
    if BASE not in by:
        return ["No block is full enough yet for an average."]
    average = {name: statistics.mean(own.values()) for name, own in by.items()}
    order = sorted(average, key=lambda name: -average[name])
    return [
        *_first(order, average, len(blocks)),
        *_alike(ranks),
        *_alone(order, average),
        *_sent(order, average, {name: spending(found, name, blocks) for name in order}),
        *_by_layout(found, blocks),
        *_left_out(found, blocks, order),
    ]


def _first(order: Sequence[str], average: Mapping[str, float], blocks: int) -> list[str]:
    return [
        f"**First so far is {order[0]}**: {average[order[0]]:.1f} % on average over "
        f"{blocks} {plural('block', blocks)}, where FedAvg has {average[BASE]:.1f} %. "
        "Where clients are cut otherwise the order is another: [the matrix](matrix.md) has "
        "more tasks, on which few methods gain over FedAvg."
    ]


def _alike(ranks: Ranking | None) -> list[str]:
    if ranks is None:
        return []
    like, many = ranks.like_the_best(), len(ranks.ranks)
    told = f"{len(like)} of {many} methods rank less than the critical difference behind the best"
    if len(like) == many:
        return [f"**Do not read small differences.** {told}: it is {ranks.difference:.0f} ranks "
                f"with {ranks.blocks} blocks."]  # fmt: skip
    return [f"**Do not read small differences.** {told}: {', '.join(like)}."]


def _alone(order: Sequence[str], average: Mapping[str, float]) -> list[str]:
    if "Local" not in average:
        return []
    better = [name for name in order if average[name] > average["Local"]]
    told = f": {', '.join(better)}." if 0 < len(better) < 9 else "."
    below = [name for name in order if average[name] < average[BASE] - 1]
    lines = [
        f"**First ask whether to federate at all.** Training alone has {average['Local']:.1f} % "
        f"and sends nothing; {len(better)} of {len(order) - 1} methods are above it{told}"
    ]
    return lines + [f"**A point or more below FedAvg:** {', '.join(below)}."] * bool(below)


def _sent(
    order: Sequence[str], average: Mapping[str, float], spent: Mapping[str, Mapping[str, float]]
) -> list[str]:
    """The best of those that send as much as FedAvg, and of those that send less; who computes."""
    sends, lines = {name: own["sends"] for name, own in spent.items()}, []
    others = [name for name in order if name not in (BASE, "Local")]
    like = [name for name in others if sends[name] <= 1.01 * sends[BASE]]
    if like:
        lines.append(f"**With FedAvg's traffic** ({sends[BASE]:.2g} MB a client and round) take "
                     f"{like[0]}: {average[like[0]]:.1f} %.")  # fmt: skip
    less = [name for name in others if sends[name] < 0.9 * sends[BASE]]
    if less:
        alone = average.get("Local", 0) > average[less[0]]
        lines.append(f"**Where bytes are dear:** of those that send less, {less[0]} is best. It "
                     f"sends {sends[less[0]]:.2g} MB a client and round and has "
                     f"{average[less[0]]:.1f} %"
                     f"{', less than training alone, which sends nothing' if alone else ''}."
                     )  # fmt: skip
    slow = {name: own["processor"] + own["loading"] for name, own in spent.items()}
    many = [name for name in order if slow[name] > 3 * slow[BASE]]
    if many:
        lines.append(f"**Dear in computing** (over three times FedAvg's {slow[BASE]:.0f} processor "
                     f"seconds a run): {', '.join(many)}.")  # fmt: skip
    return lines


def _by_layout(found: Found, blocks: Sequence[Block]) -> list[str]:
    """The first one of each layout, among the methods that have its blocks."""
    lines = []
    for layout in LAYOUTS:
        here = [block for block in blocks if block[1] == layout]
        average = {name: statistics.mean(own.values()) for name, own in means(found, here).items()}
        if average:
            best = max(average, key=average.__getitem__)
            lines.append(f"**{layout.capitalize()} clients:** {best} is first, {average[best]:.1f} "
                         f"%, over {len(here)} {plural('dataset', len(here))}.")  # fmt: skip
    return lines


def _left_out(found: Found, blocks: Sequence[Block], order: Sequence[str]) -> list[str]:
    """Which blocks and methods no average has."""
    lines = []
    few = [titled(block) for block in run_blocks(found) if block not in blocks]
    if few:
        lines.append("**Not in these averages**, since less than two thirds of the methods have "
                     f"been run there: {'; '.join(few)}.")  # fmt: skip
    known = [n for n in entrants() if any(scores(found, (n, *block)) for block in blocks)]
    lacking = [name for name in known if name not in order]
    if lacking:
        lines.append(f"**Left out, since a block lacks them:** {', '.join(lacking)}.")
    return lines


def plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def ranked(ranks: Ranking | None) -> str:
    """Mean ranks, and what they must differ by."""
    if ranks is None:
        return "Ranks need two blocks in which two thirds of the methods have been run.\n"
    rows = "\n".join(f"| {name} | {rank:.2f} |" for name, rank in ranks.ranks.items())
    p = f"{ranks.p:.2g}"
    return (
        f"Friedman's test over {ranks.blocks} blocks: p = {p}. Two mean ranks differ at the 5 % "
        f"level where they are {ranks.difference:.2f} apart (Nemenyi). A block is a dataset and a "
        "layout, its value a mean over seeds. The two layouts of a dataset share its nodes, so "
        "that p is somewhat too small, and with few blocks the test is rough.\n\n"
        f"| method | mean rank |\n|---|---|\n{rows}\n"
    )


def not_run(found: Found) -> str:
    """How many cells are missing, by block, and what does not apply."""
    wanted = [c for c in cells() if c[2] in LAYOUTS and not refusal(c[0], c[2])]
    there = [cell for cell in wanted if made(found, cell)]
    tables = run_blocks(found)
    lines = [f"{len(there)} of {len(wanted)} cells have been run."]
    for block in BLOCKS:
        missing = [name for name, *rest in wanted if tuple(rest) == block
                   and not made(found, (name, *block))]  # fmt: skip
        if missing:
            every = len(missing) == len([c for c in wanted if c[1:] == block])
            told = "nothing yet" if every else f"not {', '.join(missing)}"
            lines.append(f"- {titled(block)}: {told}.")
        own = {} if block in tables else {n: scores(found, (n, *block)) for n in entrants()}
        each = [f"{n} {statistics.mean(s.values()):.1f}" for n, s in own.items() if s]
        if each:
            lines.append(f"- {titled(block)}, run without {BASE}, in %: {', '.join(each)}.")
    for layout in LAYOUTS:
        for name in entrants():
            why = refusal(name, layout)
            if why:
                lines.append(f"- {name} does not apply to {layout} clients: {why}.")
    return "\n".join([lines[0], "", *lines[1:]]) + "\n"


def worse(found: Found) -> str:
    """Cora's disjoint clients, and what is left of the accuracy where something is worse."""
    heads = ["method", "whole", *WORSE]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in entrants():
        each = [scores(found, (name, "cora", how)) for how in ("disjoint", *WORSE)]
        if any(each[1:]):
            told = [spread(own, digits=1) for own in each]
            lines.append(f"| {' | '.join([name, *told])} |")
    about = "; ".join(f"{name}: {_said(SETTINGS[name])}" for name in WORSE)
    return (
        f"Cora's disjoint clients. {about}. A skew takes the place of METIS' cut. Unseen clients, "
        "the last two, never train; they are scored on their own test nodes, with what the others "
        "are sent.\n\n" + "\n".join(lines) + "\n"
    )


def _said(setting: Mapping[str, Any]) -> str:
    """What of a setting is worse, as it is written."""
    how = setting.get("damage") or setting["skew"]
    given = {f.name: getattr(how, f.name) for f in fields(how) if getattr(how, f.name) != f.default}
    return ", ".join(f"`{name}={value!r}`" for name, value in given.items())


def titled(block: Block) -> str:
    return f"{TITLES[block[0]]}, {block[1]}"


def text(found: Found) -> str:
    """All that is made from the numbers."""
    blocks = run_blocks(found)
    ranks = ranking(means(found, full_blocks(found)))
    parts = ["## What to use when\n", *(f"- {line}" for line in advice(found, ranks)), ""]
    parts += ["## Ranks\n", ranked(ranks)]
    for block in blocks:
        parts += [f"## {titled(block)}\n", table(found, block)]
    for block in BESIDE_BLOCKS:
        if any(scores(found, (name, *block)) for name in entrants()):
            parts += [f"## {titled(block)}\n", table(found, block)]
    if any(scores(found, (name, "cora", how)) for name in entrants() for how in WORSE):
        parts += ["## With worse data\n", worse(found)]
    parts += ["## What was not run\n", not_run(found)]
    page = "\n" + "\n".join(parts)
    return page.replace("FedOpt, Adam", "FedOpt (Adam)")  # among other names it reads as two


def draw(found: Found) -> None:
    """A panel a block that has runs: every method's test accuracy, FedAvg's as a line."""
    blocks = run_blocks(found)
    if not blocks:
        return
    by = {name: [scores(found, (name, *block)) for block in blocks] for name in entrants()}
    by = {name: own for name, own in by.items() if any(own)}

    def beaten(name: str, index: int) -> float:
        """The share of a block's methods that are below this one."""
        own = statistics.mean(by[name][index].values())
        others = [statistics.mean(each[index].values()) for each in by.values() if each[index]]
        return sum(other < own for other in others) / len(others)

    def worth(name: str) -> float:
        return statistics.mean(beaten(name, i) for i, own in enumerate(by[name]) if own)

    names = sorted(by, key=lambda name: -worth(name))
    plt = pyplot()
    figure, panels = plt.subplots(1, len(blocks), figsize=(5.5 + 2.2 * len(blocks),
                                  0.3 * len(names) + 1.4), sharey=True, layout="constrained",
                                  squeeze=False)  # fmt: skip
    colors = {BASE: "#c0742c", "Local": "#777777"}
    for index, (axes, block) in enumerate(zip(panels[0], blocks, strict=True)):
        for y, name in enumerate(names):
            values = list(by[name][index].values())
            if values:
                error = statistics.stdev(values) if len(values) > 1 else 0
                axes.errorbar(statistics.mean(values), y, xerr=error, fmt="o", markersize=5,
                              color=colors.get(name, "#1f5a94"), capsize=2.5)  # fmt: skip
        base = statistics.mean(scores(found, (BASE, *block)).values())
        axes.axvline(base, color=colors[BASE], linewidth=0.8, alpha=0.6)
        axes.set_title(titled(block), fontsize=10)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right", "left"]].set_visible(False)
    panels[0][0].set_yticks(range(len(names)), names)
    panels[0][0].set_ylim(len(names) - 0.5, -0.5)
    figure.supxlabel(
        "test accuracy at the best validation, %; bars: deviations over three seeds; "
        "orange FedAvg, grey training alone; in the order of "
        "the share of methods that each is above"
    )
    figure.savefig(ROOT / "docs" / "images" / "leaderboard.png", dpi=110)
    plt.close(figure)

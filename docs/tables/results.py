"""Writes the short tables of docs/results: measured scores with the paper's cells in brackets.

    python docs/tables/results.py

The numbers are those of the long tables in `benchmarks/results/tables`.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
LONG, PAGES = ROOT / "benchmarks/results/tables", ROOT / "docs/results"
BEST, LAST = "test, best validation", "test, last round"
CORA, CITESEER, PUBMED = ("Cora", "cora"), ("CiteSeer", "citeseer"), ("PubMed", "pubmed")
ACM, WIKI = ("ACM", "acm"), ("Wiki", "wiki")
DBLP, BLOGS = ("DBLP", "dblp"), ("PolBlogs", "polblogs")
# Long table: page, its score, its columns (title, dataset, clients or "", end of a row's name).
Column = tuple[str, str, str, str]
TABLES: dict[str, tuple[str, str, list[Column]]] = {
    "fgssl-table1": (
        "fgssl",
        BEST,
        [
            (f"{title}, {clients} clients", name, clients, "")
            for title, name in (CORA, CITESEER)
            for clients in ("5", "7", "10")
        ],
    ),
    "fedgl-table2": (
        "fedgl",
        BEST,
        [(title, name, "6", "") for title, name in (CORA, CITESEER, ACM, WIKI)],
    ),
    "fedego-table2": (
        "fedego",
        "each client's best test round",
        [(title, name, "", "") for title, name in (CORA, CITESEER, DBLP)],
    ),
    "fedego-table3": (
        "fedego",
        "each client's best test round",
        [(title, name, "", "") for title, name in (CORA, CITESEER, DBLP)],
    ),
    "fedvgae-table3": (
        "fedvgae",
        BEST,
        [(title, name, "", "") for title, name in (CORA, CITESEER, BLOGS)],
    ),
    "fedvgae-table4": (
        "fedvgae",
        BEST,
        [(title, name, "", "") for title, name in (CORA, CITESEER, PUBMED)],
    ),
    "gpfl-table2": (
        "gpfl",
        LAST,
        [(f"alpha {alpha}", "PROTEINS", "25", f", alpha {alpha}") for alpha in ("5", "0.5", "1")],
    ),
}


def rows(table: str, page: str) -> list[dict[str, str]]:
    """Rows of a long table, by the heads of its columns."""
    text = (LONG / f"{page}.md").read_text(encoding="utf-8")
    block = text.split(f"<!-- {table} -->\n")[1].split("<!-- end -->")[0]
    lines = [line for line in block.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(cells[0], line, strict=True)) for line in cells[2:]]


def short(table: str) -> str:
    """A row for each method, a column for each dataset."""
    page, score, columns = TABLES[table]
    cells: dict[str, dict[str, str]] = {}
    for row in rows(table, page):
        for title, dataset, clients, end in columns:
            fits = row["dataset"] == dataset and clients in ("", row["clients"])
            if fits and row["method"].endswith(end):
                paper = f" ({row['paper']})" if row["paper"] else ""
                measured = row[score].partition(" (folds")[0]
                cells.setdefault(row["method"].removesuffix(end), {})[title] = measured + paper
    titles = [column[0] for column in columns]
    lines = [["method", *titles], ["---"] * (len(titles) + 1)]
    lines += [[name, *(found.get(title, "") for title in titles)] for name, found in cells.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def written(text: str) -> str:
    """The text of a page with its short tables made anew."""
    for table in TABLES:
        mark = f"<!-- short {table} -->\n"
        if mark in text:
            before, rest = text.split(mark)
            text = f"{before}{mark}{short(table)}<!-- end -->{rest.split('<!-- end -->', 1)[1]}"
    return text


if __name__ == "__main__":
    for path in sorted(PAGES.glob("*.md")):
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")

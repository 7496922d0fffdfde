"""The rules of docs/plain.py: how docstrings begin, what locals are called, how pages read."""

from federations import script

PLAIN = script("docs/plain.py")
CASES = {  # a module: what breaks a rule in it
    '"""What a file holds."""': ["docstring: What"],
    'def f():\n    """Whether it is one."""': [],
    'class A:\n    def _g(self):\n        """`One` line."""': ["docstring: One"],
    'class A:\n    """A class."""\n    n: int = 1\n    """How many."""': ["docstring: How"],
    'async def f():\n    """Of a tensor."""': ["docstring: Of"],
    "told = 1": ["local: told"],
    "def f():\n    a, (made, b) = 1, (2, 3)": ["local: made"],
    "def f():\n    for seen in ():\n        pass": ["local: seen"],
    "def f():\n    with open() as given:\n        pass": ["local: given"],
    "def f():\n    return [kept for kept in ()]": ["local: kept"],
    "def f():\n    if (why := 1):\n        pass": ["local: why"],
    "def f():\n    try:\n        pass\n    except OSError as why:\n        pass": ["local: why"],
    "def f():\n    def asked():\n        pass": ["local: asked"],
    "f = lambda who: who": ["local: who"],
    "def _f(who, *, said=1, **given): pass": ["local: who", "local: said", "local: given"],
    "def f(x):\n    def inner(held): pass": ["local: held"],
    "def f(who): pass\nclass A:\n    told: int\n    def seen(self, near): pass": [],
    "def f(a):\n    a.told = 1\n    return a.seen(made=1)": [],
    "class A:\n    def __call__(self, who): pass": [],
}


LONG = " ".join(["word"] * 41)
PAGES = {  # a page: the lines with a break of a rule
    "# Where it stands\n\nA client sends a model.": [],
    "Where a client is absent,\nit is left out.": [1],
    "Where is it?": [],
    "A sum. What it made is shown.\n\n- It stands.\n- It is so many.": [1, 3, 4],
    f"A page.\n\n{LONG}.": [3],
    f"```python\n{LONG}\n```\n\n| {LONG} |\n\n    {LONG}": [],
    "See [the room](room.md) and `room`.": [1],
    "Every task but `A`, which is no graph, as said.": [1, 1, 1],
    "A server asks.\n\nIt is made of 3 steps a round.\n\nA graph of your own trains alone.": [
        *(1, 3, 3, 5, 5),
    ],
    "A server requests 3 steps per round from your own graph only.": [],
}


def test_each_break_of_a_rule_is_found() -> None:
    for source, want in CASES.items():
        assert sorted(word for _, word in PLAIN.breaks(source)) == sorted(want), source


def test_each_break_of_a_rule_in_a_page_is_found() -> None:
    for page, want in PAGES.items():
        assert [line for line, _ in PLAIN.page_breaks(page)] == want, page


def test_pages_are_read_with_the_source() -> None:
    names = {file.name for file in PLAIN.files_of(["README.md", "docs", "fgl/checks.py"])}
    assert {"README.md", "privacy.md", "checks.py"} <= names
    assert not {name for name in names if name[:4].isdigit()}  # decisions are records


def test_a_reader_sees_arguments_and_no_example() -> None:
    docstring = "Mean.\n\nArgs:\n    x: rows of\n        a graph.\n\nExample:\n    >>> 1\n"
    text = PLAIN.prose(docstring)
    assert [each for _, each in PLAIN.sentences(text)] == ["Mean.", "x: rows of a graph."]
    assert len(set(PLAIN.sample(PLAIN.files_of(["README.md", "fgl/losses"]), seed=1))) == 80

"""The rules of the house: who may know whom, how long a file may be, what a reader may not do."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from fgl import federation

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "fgl").rglob("*.py"))
MODULES = {
    ".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): f for f in FILES
}

# Room -> the rooms it may import. A new room says here on which floor it lives.
FLOORS: dict[str, set[str]] = {
    "_names": set(), "kinds": {"checks"}, "warn": set(), "checks": set(), "compress": {"checks"},
    "progress": set(), "seeds": set(), "transfer": set(), "sparse": {"checks", "transfer"},
    "aggregate": {"checks", "transfer"}, "personalize": {"checks"},
    "metrics": {"checks", "transfer"}, "losses": {"checks", "sparse"},
    "targets": {"losses", "metrics"}, "graph": {"checks", "kinds", "sparse"},
    "nn": {"checks", "sparse", "losses"},
}  # fmt: skip
FLOORS["predict"] = {"graph", "kinds", "checks"}
FLOORS["augment"] = FLOORS["ego"] = FLOORS["sampler"] = FLOORS["properties"] = FLOORS["data"] = {
    "checks",
    "kinds",
    "transfer",
    "sparse",
    "graph",
}
FLOORS["data"] = FLOORS["data"] | {"progress", "seeds"}
FLOORS["blocks"] = {"checks", "predict", "progress", "sparse", "graph", "nn", "sampler"}
FLOORS["pseudo"] = {"checks", "sparse", "graph", "losses"}
FLOORS["client_network"] = {"checks", "sparse", "graph", "nn", "properties"}
FLOORS["privacy"] = {"checks", "transfer", "aggregate"}
PRIMITIVES = set(FLOORS)
FLOORS["federation"] = {
    "checks",
    "kinds",
    "progress",
    "seeds",
    "transfer",
    "sparse",
    "graph",
    "losses",
    "aggregate",
    "metrics",
    "targets",
    "predict",
    "privacy",  # a client's ledger says epsilon
}
FLOORS["methods"] = PRIMITIVES - {"data"} | {"federation"}  # a method knows no dataset
FLOORS["transforms"] = FLOORS["methods"]
FLOORS["tasks"] = PRIMITIVES | {"federation", "methods"}
FLOORS["experiment"] = {"progress", "sparse", "graph", "targets", "federation", "tasks"}
FLOORS["study"] = {"checks", "kinds", "progress", "targets", "federation", "tasks", "experiment"}
EVERYWHERE = {"checks", "kinds", "warn"}


@cache
def imports(name: str) -> set[str]:
    """The modules of fgl that a module imports, at the top or inside a function."""
    path = MODULES[name]
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                found.add(inner if inner in MODULES else source)
    return {m for m in found if m in MODULES} - {name}


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_a_room_imports_only_lower_floors() -> None:
    for name in filter(room, MODULES):
        assert room(name) in FLOORS, f"say in FLOORS on which floor {name} lives"
        assert {room(m) for m in imports(name)} <= FLOORS[room(name)] | EVERYWHERE | {room(name)}, (
            name
        )


def test_other_rooms_import_only_the_exported_words_of_the_machine() -> None:
    exported = {"fgl.federation.run"}  # the function has its file's name
    for name in (m for m in MODULES if room(m) not in ("", "federation")):
        inner = {m for m in imports(name) if m.startswith("fgl.federation.")}
        assert inner <= exported, name
        for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "fed":
                assert node.attr in vars(federation), f"{name} reads fed.{node.attr}"


def test_one_file_imports_tyro() -> None:
    found = [
        name for name, path in MODULES.items() if "import tyro" in path.read_text(encoding="utf-8")
    ]
    assert found == ["fgl.experiment.cli"]


def test_no_circles() -> None:
    try:
        TopologicalSorter({name: imports(name) for name in MODULES}).prepare()
    except CycleError as error:
        pytest.fail(f"circular imports: {' -> '.join(error.args[1])}")


@pytest.mark.slow
def test_import_loads_nothing_heavy() -> None:
    # What torch itself imports does not count.
    code = "import sys, torch; old = set(sys.modules); import fgl; print(*set(sys.modules) - old)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {module.split(".")[0] for module in out.stdout.split()}
    heavy = {"torch_geometric", "matplotlib", "tqdm", "tyro", "flwr", "torch_scatter"}
    heavy |= {"torch_sparse", "sklearn", "cryptography", "Crypto", "dp_accounting"}
    heavy |= {"scipy", "networkx"}
    assert not loaded & heavy


def test_no_unsafe_read() -> None:
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        for bad in ("pickle.load(", "allow_pickle=True", "weights_only=False"):
            assert bad not in text, path


@cache
def named(path: Path) -> set[str]:
    """What a file defines or imports, and the files beside a package's `__init__`."""
    found = {other.stem for other in path.parent.glob("*.py") if path.name == "__init__.py"}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
    return found


# Folders that scripts put on sys.path.
SEARCHED = [ROOT / name for name in ("benchmarks", "benchmarks/reliability", "examples", "tests")]


@pytest.mark.slow
def test_benchmarks_import_what_is_there() -> None:
    files = sorted((ROOT / "benchmarks").rglob("*.py"))
    stems = {path.stem for path in files}
    for path in files:
        folders = [path.parent, *path.parent.glob("*_app"), *SEARCHED]
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                place = node.module.replace(".", "/")
                ends = f"{place}.py", f"{place}/__init__.py"
                found = [f / end for f in folders for end in ends]
                there = [file for file in found if file.exists()]
                if there:
                    missing = {alias.name for alias in node.names} - set.union(*map(named, there))
                    assert not missing, f"{path} imports {missing}"
                else:  # a file that was moved is no library
                    assert node.module not in stems, f"{path} imports {node.module}"


HIDDEN = """
import sys
from importlib.util import spec_from_file_location as of
from pathlib import Path

class Installed:  # as pip's editable installs find a package: after the folders of sys.path
    def find_spec(name, path=None, target=None):
        place = Path({root!r}, *name.split("."))
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        inside = [str(place)] if place.is_dir() else None
        return of(name, file, submodule_search_locations=inside) if file.exists() else None

sys.meta_path.append(Installed)
import fgl.checks
"""


def test_a_folder_that_hides_the_package_is_told_by_name(tmp_path: Path) -> None:
    """Python takes it for the package, of which it then lacks everything."""
    (tmp_path / "fgl").mkdir()
    (tmp_path / "torch.py").write_text("Tensor = None\n")  # the true one takes seconds
    run = [sys.executable, "-S", "-c", HIDDEN.format(root=str(ROOT))]
    env = {"PATH": ""}
    done = subprocess.run(run, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert f"Expected fgl to be the package that is installed at {ROOT}" in last
    assert f"but got the folder {tmp_path / 'fgl'}, whose name hides it" in last

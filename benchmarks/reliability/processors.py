"""The tests on processors that are not at hand, and elsewhere than at home.

    python benchmarks/reliability/processors.py --json benchmarks/results/processors.json
    python benchmarks/reliability/processors.py --settings intel away --files tests/test_run.py
    python benchmarks/reliability/processors.py --report        the table, from that file

A setting is an environment, in which all tests are run: kernels of torch (`ATEN_CPU_CAPABILITY`),
of oneDNN (`ONEDNN_MAX_CPU_ISA`) and of MKL for other processors, more threads, another seed of
hashes, another number of workers, an empty home, no datasets, another folder, another language,
another order of the tests. MKL asks who made the processor, and has other kernels for those of its
maker: a library that is loaded first answers for it, which needs a C compiler. A setting that
--json already has for this commit is not run again. Each also trains a few methods, and says how
far their models are from those of the plain setting.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import torch
from harness.flags import arguments, flag
from harness.machine import RESULTS, ROOT, commit, kept, machine, write
from harness.report import publish

import fgl

NO_VECTORS = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
AVX512 = {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}
TWO = {"FGL_TEST_THREADS": "2", "OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
COMPATIBLE = {"MKL_CBWR": "COMPATIBLE"}


class Setting(NamedTuple):
    """An environment of the tests.

    `maker` is whose processor MKL believes to be on: "Intel", "another", or None to let it see;
    `language` a locale and its encoding; `away` whether home, working and temporary folder are new
    ones, and the public datasets are missing.
    """

    about: str
    env: dict[str, str]
    maker: str | None = None
    workers: int | None = None
    language: tuple[str, str] | None = None
    away: bool = False
    shuffled: bool = False


SETTINGS = {
    "plain": Setting("as `make test` runs them", {}),
    "no vectors": Setting(
        "kernels of a processor without AVX", {**NO_VECTORS, "PYTHONHASHSEED": "7"}
    ),
    "AVX2": Setting("kernels of a processor without AVX-512", AVX2),
    "AVX-512": Setting("kernels with AVX-512, two threads", {**AVX512, **TWO}, workers=1),
    "compatible": Setting("MKL's way that is the same on all processors", COMPATIBLE),
    "not Intel": Setting(
        "MKL takes the processor for another maker's, without AVX",
        {**NO_VECTORS, **COMPATIBLE},
        maker="another",
    ),
    "intel": Setting("MKL takes the processor for Intel's", {}, maker="Intel"),
    "intel, AVX2": Setting(
        "the same, of a processor without AVX-512, in Turkish",
        {**AVX2, "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
        maker="Intel",
        language=("tr_TR", "UTF-8"),
    ),
    "intel, no vectors": Setting(
        "the same, of a processor without AVX", {**NO_VECTORS, **COMPATIBLE}, maker="Intel"
    ),
    "intel, two threads": Setting("Intel's, two threads", TWO, maker="Intel", workers=1),
    "away": Setting(
        "an empty home, no datasets, no network, other folders, German in ISO-8859-1",
        {"PYTHONHASHSEED": "1", "PYTHONUTF8": "0"},
        workers=3,
        language=("de_DE", "ISO-8859-1"),
        away=True,
    ),
    "any order": Setting("tests in a random order (pytest-randomly)", {}, shuffled=True),
}
OFFLINE = {f"{kind}_proxy": "http://127.0.0.1:9" for kind in ("http", "https")}  # nobody answers
TRAINED = ("nodes", "gat", "sage", "overlapping", "own", "links", "graphs")  # FedAvg's
OTHERS = (("fedopt yogi", "nodes"), ("scaffold", "nodes"), ("fedamp", "nodes"), ("gcfl", "graphs"))


def numbers(path: Path) -> None:
    """Train FedAvg on seven tasks, and four other methods, and save the models."""
    from conformance import case

    torch.set_num_threads(int(os.environ.get("FGL_TEST_THREADS", "1")))
    found = {}
    for dtype in (torch.float32, torch.float64):
        for name, task in (*(("fedavg", task) for task in TRAINED), *OTHERS):
            method, made = case(name, task, dropout=0.0, dtype=dtype)
            result = fgl.run(method, made, num_rounds=3, clients_at_once=1)
            found[name, task, dtype] = dict(result.outbox[0])["model"]
    torch.save(found, path)


def apart(one: Path, other: Path) -> dict[str, float]:
    """The largest difference of two entries, by dtype."""
    a, b = (torch.load(path, weights_only=True) for path in (one, other))
    out: dict[str, float] = {}
    for key, model in a.items():
        dtype = str(key[-1]).removeprefix("torch.")
        pairs = ((value, b[key][name]) for name, value in model.items())
        far = max(float((x.double() - y.double()).abs().max()) for x, y in pairs)
        out[dtype] = max(far, out.get(dtype, 0.0))
    return out


def moved(env: dict[str, str], folder: Path) -> dict[str, float]:
    """How far models are from those of the plain setting, when they are trained in this one."""
    paths = []
    for number, given in enumerate((prepared(SETTINGS["plain"], folder)[0], env)):
        paths.append(folder / f"models {number}.pt")
        if number or not paths[-1].exists():
            script = [sys.executable, __file__, "--numbers", str(paths[-1])]
            subprocess.run(script, env=given, cwd=folder, check=True)
    return apart(*paths)


@cache
def believing(maker: str, folder: Path) -> Path | None:
    """A library that tells MKL who made the processor; None where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    answer, path = int(maker == "Intel"), folder / f"{maker}.so"
    asked = ("mkl_serv_intel_cpu", "mkl_serv_intel_cpu_true")
    source = "".join(f"int {name}(void) {{ return {answer}; }}\n" for name in asked)
    (folder / f"{maker}.c").write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", path, folder / f"{maker}.c"], check=True)
    return path


@cache
def locale_of(language: tuple[str, str], folder: Path) -> str | None:
    """The name of a locale that is made there; None where it cannot be."""
    name = ".".join(language)
    command = ["localedef", "-i", language[0], "-f", language[1], folder / name]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return name


def prepared(setting: Setting, folder: Path) -> tuple[dict[str, str], list[str]]:
    """The environment of a setting, and what of it this machine lacks."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    env, lacks = {**os.environ, "PYTHONPATH": paths, **setting.env}, []
    if setting.maker:
        library = believing(setting.maker, folder)
        env |= {"LD_PRELOAD": str(library)} if library else {}
        lacks += [] if library else ["a C compiler"]
    if setting.language:
        name = locale_of(setting.language, folder)
        env |= {"LC_ALL": name, "LOCPATH": str(folder)} if name else {"LC_ALL": "C.UTF-8"}
        lacks += [] if name else [f"the locale {setting.language[0]}"]
    if setting.away:
        env.pop("FGL_DATA", None)
        env |= OFFLINE
        for variable, name in (("HOME", "home"), ("TMPDIR", "a folder")):
            (folder / name).mkdir(exist_ok=True)
            env[variable] = str(folder / name)
    return env, lacks


def missing(setting: Setting) -> str:
    """What a setting cannot do without, and is not here; "" if nothing is missing."""
    kinds = ("default", "avx2", "avx512")
    here = kinds.index(torch.backends.cpu.get_cpu_capability().lower())
    asked = setting.env.get("ATEN_CPU_CAPABILITY", "default")
    if kinds.index(asked) > here:
        return asked
    if setting.shuffled and importlib.util.find_spec("pytest_randomly") is None:
        return "pytest-randomly"
    return ""


def command_of(setting: Setting, files: list[str], workers: int) -> list[str]:
    """The tests, as they are run from any folder."""
    places = files or ["fgl", "tests"]
    found = [sys.executable, "-m", "pytest", "-q", "-ra", "-c", f"{ROOT / 'pyproject.toml'}"]
    found += ["--rootdir", str(ROOT), "-p", "no:cacheprovider", "--dist", "worksteal"]
    found += ["-n", str(setting.workers or workers)]
    found += [] if setting.shuffled else ["-p", "no:randomly"]
    return found + [str(ROOT / place) for place in places]


def run(name: str, files: list[str], workers: int, folder: Path) -> dict[str, Any]:
    """The tests in one setting: how many passed, which failed, and how far the models moved."""
    setting = SETTINGS[name]
    env, lacks = prepared(setting, folder)
    found: dict[str, Any] = {"about": setting.about, "env": setting.env, "lacks": lacks}
    found |= {"commit": commit(), "files": files}
    start = time.perf_counter()
    away = folder if setting.away else ROOT
    command = command_of(setting, files, workers)
    done = subprocess.run(
        command, env=env, cwd=away, capture_output=True, text=True, errors="replace"
    )
    failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.M)
    ended: dict[str, Any] = {
        word: int(count) for count, word in re.findall(r"(\d+) (passed|skipped)", done.stdout)
    }
    if done.returncode and not failed:  # it did not come to an end
        failed = [(done.stdout + done.stderr)[-2000:]]
    if failed:
        print(done.stdout[-20_000:], flush=True)
    seconds = round(time.perf_counter() - start, 1)
    ended |= {"failed": failed, "seconds": seconds, "apart": moved(env, folder)}
    return {**found, "passed": 0, **ended}


def table(found: dict[str, Any]) -> str:
    """The settings as text."""
    out = ["| setting | what it is | tests | passed | failed | float32 | double |"]
    out.append("|---" * 7 + "|")
    for name, each in found["settings"].items():
        about = each["about"] + (
            f" (here without {', '.join(each['lacks'])})" if each["lacks"] else ""
        )
        which = f"{len(each['files'])} files" if each["files"] else "all"
        far = [f"{each['apart'][kind]:.0e}" for kind in ("float32", "float64")]
        counts = [f"{each['passed']:,}", str(len(each["failed"]))]
        out.append(f"| {' | '.join([name, about, which, *counts, *far])} |")
    here = found["machine"]
    text = f"Processor: {here['cpu']}, {here['cores']} cores. torch {here['torch']}."
    return "\n".join([*out, "", text]) + "\n"


def main(argv: list[str] | None = None) -> int:
    args = arguments(
        argv,
        settings=flag(list(SETTINGS), nargs="*", choices=SETTINGS),
        files=flag([], "test files; default all", nargs="*"),
        workers=flag(2, "where a setting says no other number"),
        report=flag(False, "run nothing"),
        numbers=flag(Path, "train here, and save the models there"),
    )
    if args.report:
        publish("processors", table(kept(RESULTS / "processors.json")))
        return 0
    if args.numbers:
        numbers(args.numbers)
        return 0
    names, files = args.settings, args.files
    known = kept(args.json).get("settings", {})
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            if known.get(name, {}).get("commit") == commit() and known[name]["files"] == files:
                print(f"{name}: known", flush=True)
                continue
            if missing(SETTINGS[name]):
                print(f"{name}: left out, without {missing(SETTINGS[name])}", flush=True)
                continue
            known[name] = run(name, files, args.workers, Path(folder))
            told = {k: v for k, v in known[name].items() if k not in ("env", "files", "about")}
            print(f"{name}: {told}", flush=True)
            ordered = {each: known[each] for each in SETTINGS if each in known}
            write({"machine": machine(), "settings": ordered}, args.json)
    return 1 if any(known[name]["failed"] for name in names if name in known) else 0


if __name__ == "__main__":
    sys.exit(main())

"""The values of byzfl that tests/test_aggregate_robust.py compares with: make them, or check them.

    pip install --no-deps byzfl==0.0.11
    python benchmarks/reliability/byzfl_values.py            does byzfl still say what is stored?
    python benchmarks/reliability/byzfl_values.py --write    store what it says

Its rules need torch, numpy and scipy alone. The package imports torchvision when it is imported
whole, so that its rules are imported here without it.
"""

import argparse
import importlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

STORED = Path(__file__).parents[2] / "tests" / "byzfl.json"


def rules() -> Any:
    """byzfl's module of rules, without the rest of byzfl."""
    spec = importlib.util.find_spec("byzfl")
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError("Expected byzfl to be there: pip install --no-deps byzfl==0.0.11")
    bare = ModuleType("byzfl")
    bare.__path__ = list(spec.submodule_search_locations)
    sys.modules["byzfl"] = bare
    try:
        return importlib.import_module("byzfl.aggregators")
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "byzfl"]:
            del sys.modules[name]


def values(vectors: Any) -> dict[str, list[float]]:
    """What each rule makes of the vectors."""
    byzfl = rules()
    x = lambda: np.array(vectors, dtype=np.float64)  # noqa: E731  # its clipping writes into it
    made: dict[str, Any] = {
        "Median": byzfl.Median()(x()),
        "TrMean": byzfl.TrMean(f=2)(x()),
        "Krum": byzfl.Krum(f=2)(x()),
        "MultiKrum": byzfl.MultiKrum(f=2)(x()),
        "GeometricMedian": byzfl.GeometricMedian()(x()),
        "CenteredClipping": byzfl.CenteredClipping(L=3, tau=1.5)(x()),
        "Clipping": byzfl.Clipping(c=2.0)(x()).mean(0),
        "NNM": byzfl.Median()(byzfl.NNM(f=2)(x())),
    }
    return {name: value.tolist() for name, value in made.items()}


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    stored = json.loads(STORED.read_text())
    made = values(stored["vectors"])
    far = {n: float(np.abs(np.array(v) - stored[n]).max()) for n, v in made.items()}
    print(far)
    if args.write:
        lines = {"made": stored["made"], "vectors": stored["vectors"], **made}
        text = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in lines.items())
        STORED.write_text(f"{{\n{text}\n}}\n")
    return int(max(far.values()) > 1e-9)


if __name__ == "__main__":
    sys.exit(main())

"""The matrix: four tasks beyond the nodes of one graph, all methods tuned, as one study.

    python benchmarks/matrix.py study-matrix            goes on after an interruption
    python benchmarks/matrix.py study-matrix --report   docs/matrix.md

Whole graphs (PROTEINS, NCI1), molecules (ESOL; it needs the extra `molecules`) and pairs
(bitcoin_otc). Optimizer, learning rate and steps are tuned for all methods: 12 trials on a tuning
seed, then 8 seeds.
"""

from typing import Any

from harness.flags import some
from harness.study_page import play_study, study_flags
from leaderboard import BOUNDS, fedadam, fedavg
from papers.matrix import GraphsWithValidation

from fgl import LogUniform, Tuned, methods, tasks

SETTINGS = {
    "PROTEINS": GraphsWithValidation(dataset="PROTEINS"),
    "NCI1": GraphsWithValidation(dataset="NCI1"),
    "ESOL": tasks.Molecules(dataset="esol"),
    "bitcoin_otc": tasks.Pairs(dataset="bitcoin_otc"),
}
LOCAL = [
    {"optimizer": "sgd", "lr": LogUniform(1e-3, 1), "steps": [1, 2, 3, 5]},
    {"optimizer": "adam", "lr": LogUniform(1e-4, 0.03), "steps": [1, 2, 3, 5]},
]
ENTRANTS = {
    "FedAvg": fedavg,
    "FedAdam": Tuned(fedadam, server_lr=LogUniform(1e-4, 0.03)),
    "Local": methods.local,
    "SCAFFOLD": methods.scaffold,
    "GCFL+": Tuned(methods.gcfl_plus, **BOUNDS),  # published for graphs and molecules
}


def main(argv: list[str] | None = None) -> None:
    args = study_flags(argv, settings=some(SETTINGS))
    settings = {name: SETTINGS[name] for name in args.settings}
    how: dict[str, Any] = {"local": LOCAL, "num_rounds": 50, "seeds": range(8)}
    play_study("matrix", args, ENTRANTS, settings, **how)


if __name__ == "__main__":
    main()

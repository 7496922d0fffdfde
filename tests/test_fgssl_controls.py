"""The controls of FGSSL: each takes away one reason of its gain, and nothing else."""

from types import SimpleNamespace

from conformance import case
from papers.fgssl_controls import augmented_fedavg, keys_shuffled

import fgl


def test_controls_run() -> None:
    _, task = case("fedavg", "nodes")
    for make in (keys_shuffled, augmented_fedavg):
        result = fgl.run(make(SimpleNamespace(task=task)), task, num_rounds=2)
        assert not result.history[-1].dropped

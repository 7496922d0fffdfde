"""Every test and docstring example starts from the same seed, and sees `torch` and `fgl`."""

from typing import Any

import hypothesis
import pytest
import torch

import fgl

torch.set_num_threads(2)
hypothesis.settings.register_profile("fgl", derandomize=True, deadline=None, max_examples=50)
hypothesis.settings.load_profile("fgl")


@pytest.fixture(autouse=True)
def _seed(doctest_namespace: dict[str, Any]) -> None:
    torch.manual_seed(0)
    doctest_namespace.update(torch=torch, fgl=fgl)

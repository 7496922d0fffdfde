"""Transforms (``Method -> Method``): they change the messages between clients and server."""

from .attacks import attacked, scaled_updates
from .clipped import clipped
from .dp_sgd.per_example import per_example_gaussian
from .gaussian import central_gaussian, local_gaussian, privacy_spent
from .quantised import quantised
from .robust import robust
from .rounded_downloads import rounded_downloads
from .secure_rows import secure_rows
from .secure_sum.signed import Signatures
from .secure_sum.transform import clients_summed, secure_sum, summed_rounds
from .sparsified import sparsified
from .summed_gaussian import summed_gaussian

__all__ = [
    "Signatures",
    "attacked",
    "central_gaussian",
    "clients_summed",
    "clipped",
    "local_gaussian",
    "per_example_gaussian",
    "privacy_spent",
    "quantised",
    "robust",
    "rounded_downloads",
    "scaled_updates",
    "secure_rows",
    "secure_sum",
    "sparsified",
    "summed_gaussian",
    "summed_rounds",
]

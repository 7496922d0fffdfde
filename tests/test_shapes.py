"""Arguments of one dimension or one row too many, and numbers at the ends of their bounds."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from federations import seeded
from torch import Tensor

import fgl
from fgl import aggregate, client_network, ego, losses, metrics, personalize, privacy, pseudo
from fgl.aggregate import robust
from fgl.compress import largest
from fgl.metrics.classes import check_labels
from fgl.properties import laplacian_spectrum

X, Z = torch.rand(2, 4, 3, generator=seeded())
Y, YES = torch.tensor([0, 1, 2, 1]), torch.tensor([1.0, 0, 1, 0])
PAIRS, MASK, SHARE = torch.tensor([[0, 1, 2], [1, 2, 3]]), Y > 0, torch.ones(4) / 4
SQUARE, BLOCK = Z @ X.T, torch.stack([X, Z, X, Z])
# What is taken: places of arguments with the numbers of their changes. Then a call.
CALLS: list[tuple[str, Callable[..., Any], *tuple[Tensor, ...]]] = [
    ("", losses.cross_entropy, X, Y, MASK), ("", losses.soft_cross_entropy, X, X.softmax(1), MASK),
    ("", losses.squared_error, X, Z, MASK),
    ("01 11", losses.absolute_error, X[:, 0], Z[:, 0], MASK),
    ("01 11", losses.binary_cross_entropy, X[:, 0], YES, MASK),
    ("01 11", losses.huber, X[:, 0], Z[:, 0], MASK), ("", losses.kl_divergence, X, Z),
    ("22", losses.model_contrast, X, Z, torch.stack([X, Z])),
    ("", losses.nearest_features, BLOCK[:, :2], torch.ones(4), BLOCK[:, :2], torch.ones(4).long()),
    ("", losses.node_contrast, X, Z, Y), ("02", losses.pair_scores, X, PAIRS),
    ("", losses.ranking, X[:, 0], X), ("02", losses.reconstruction_loss, X, PAIRS, PAIRS),
    ("", losses.structure_distillation, X, Z, PAIRS), ("", metrics.accuracy, X, Y, MASK),
    ("", metrics.macro_f1, X, Y, MASK), ("", metrics.auc, X[:, 0], YES),
    ("", metrics.average_precision, X[:, 0], YES),
    ("", lambda x, y, m: metrics.hit_rate(x, y, k=1, mask=m), X[:, 0], X, MASK),
    ("", metrics.mean_auc, X, YES[:, None].expand(4, 3), MASK),
    ("01 11", metrics.rmse, X[:, 0], YES, MASK), ("01 11", metrics.mae, X[:, 0], YES, MASK),
    ("01 11", metrics.r2, X[:, 0], YES, MASK), ("01 11", metrics.mape, X[:, 0], YES + 1, MASK),
    ("01", lambda x, w: aggregate.mean({"w": x}, w), X, SHARE),
    ("01", lambda x, m: aggregate.mix({"w": x}, m), X, SQUARE),
    ("", lambda x, y: aggregate.server_step({"w": x}, {"w": y}, {}), X, Z),
    ("", aggregate.project_to_simplex, X), ("", personalize.earth_mover, SHARE, SHARE),
    ("", lambda y, m: personalize.label_distribution(y, 3, m), Y, MASK),
    ("", lambda x, y: personalize.interpolate({"w": x}, {"w": y}, 0.5), X, Z),
    ("", client_network.dtw_distances, X), ("", client_network.functional_embedding, BLOCK[:, :2]),
    ("", client_network.min_cut, SQUARE + SQUARE.T), ("", client_network.property_network, X),
    ("", lambda n, x: client_network.reconstruct(n, x, steps=1), SQUARE, X),
    ("", client_network.running_network, SQUARE, SQUARE), ("", client_network.similarity, X),
    ("02 12", ego.mash, X[:2], torch.tensor([[0, 1, 1], [1, 0, 0]])), ("", pseudo.pseudo_graph, X),
    ("", lambda i, v: fgl.SparseMatrix.from_edge_index(i, 4, edge_weight=v), PAIRS, torch.ones(3)),
]  # fmt: skip


def test_more_dimensions_or_rows_are_refused() -> None:
    for taken, call, *args in CALLS:
        call(*args)
        for place, arg in enumerate(args):
            wrong = [arg[None], arg[..., None], torch.cat([arg, arg])]
            for number, other in enumerate(wrong if len(args) > 1 else wrong[:2]):
                if f"{place}{number}" not in taken.split():
                    with pytest.raises((ValueError, TypeError), match="^Expected "):
                        call(*args[:place], other, *args[place + 1 :])
                        pytest.fail(f"{call} {place} {number}")


STACK = {"w": torch.stack([X[k % 4] * k for k in range(7)])}
# A call of one number: the number's name, what is refused, and what is taken.
BOUNDS: list[tuple[Callable[[Any], Any], str, tuple[Any, ...], tuple[Any, ...]]] = [
    (lambda v: robust.geometric_median(STACK, eps=v), "eps", (0.0,), (1e-9,)),
    (lambda v: robust.krum(STACK, bad=v), "bad", (-1, 0.5), (0, 1)),
    (lambda v: robust.norm_bound(STACK, bound=v), "bound", (0.0,), (1e-9,)),
    (lambda v: robust.multi_krum(STACK, bad=1, keep=v), "keep", (0, 7, 1.5), (1, 6)),
    (lambda v: robust.krum(STACK, bad=1, neighbours=v), "neighbours", (0, 7, 1.5), (1, 6)),
    (lambda v: fgl.nn.AuxSAGE(2, 2, 2, sigma=v), "sigma", (0.0,), (1e-9,)),
    (lambda v: losses.model_contrast(X, Z, X[None], temperature=v), "temperature", (0.0,), (0.1,)),
    (lambda v: losses.node_contrast(X, Z, Y, temperature=v), "temperature", (0.0,), (0.1,)),
    (lambda v: losses.structure_distillation(X, Z, PAIRS, temperature=v), "temp", (0.0,), (0.1,)),
    (lambda v: losses.huber(X, Z, delta=v), "delta", (0.0,), (1e-9,)),
    (personalize.emd_share, "gamma", (0.0,), (1e-9,)),
    (lambda v: personalize.mixing_coefficient(SHARE, SHARE, gamma=v), "gamma", (0.0,), (1e-9,)),
    (lambda v: ego.mash(X[:2], TREES, batch_size=2, least=v), "least", (0, 3, 1.5), (1, 2)),
    (lambda v: ego.trees.check_steps(v, 2), "epochs", (-1, 0.5), (0,)),
    (lambda v: fgl.data.large_graph(9, 9, max_degree=v), "max_degree", (0.9,), (1,)),
    (lambda v: fgl.data.large_graph(9, 9, tail=v), "tail", (1.0,), (1.1,)),
    (lambda v: laplacian_spectrum(PAIRS, 4, width=v), "width", (3, 4.5), (4, 5)),
    (lambda v: largest(X, share=v), "share", (0.0, 1.1), (0.1, 1.0)),
    (lambda v: privacy.clip({"w": X}, length=v), "length", (0.0,), (1e-9,)),
    (lambda v: privacy.epsilon(noise_multiplier=1, rounds=v, delta=0.1), "rounds", (-1, 0.5), (0,)),
    (lambda v: privacy.epsilon(noise_multiplier=1, rounds=0, delta=v), "delta", (0.0, 1.0), (0.5,)),
    (lambda v: fgl.Training(num_steps=v), "num_steps", (-1, 0.5), (0,)),
    (lambda v: fgl.Training(max_grad_norm=v), "max_grad_norm", (0.0,), (1e-9,)),
    (lambda v: check_labels(X[:, :2], v), "y to be", (Y, Y - 1), (MASK, Y % 2, Y[:0])),
]
TREES = torch.tensor([[0, 1, 1], [1, 0, 0]])


def test_bounds_are_where_they_are_said_to_be() -> None:
    for call, name, refused, taken in BOUNDS:
        for value in refused:
            with pytest.raises((ValueError, TypeError), match=f"^Expected {name}.*"):
                call(value)
                pytest.fail(f"{name} {value}")
        for value in taken:
            call(value)

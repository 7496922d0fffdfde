"""Auto-encoder that is trained to reconstruct a network of clients (GPFL)."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim.adam import adam

from ..checks import Count, Natural, check_rows
from ..kinds import typed
from ..sparse.precision import full_precision

EPS = 1e-6
RULE = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
ADAM: dict[str, Any] = {"fused": True, "amsgrad": False, "maximize": False, **RULE}


def init_encoder(
    width: int,
    *,
    hidden: int = 128,
    out: int = 32,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> dict[str, Tensor]:
    """Initial weights: ``U(+-1/sqrt(fan_out))``; the encoder's layer norm starts as the identity.

    Args:
        width: width of the features.
        hidden: width of the hidden layer.
        out: width of the embedding.
        generator: source of randomness for the weights.
        dtype: dtype of the weights; by default torch's default dtype.

    Returns:
        Two weights, ``weight0 [width, hidden]`` and ``weight1 [hidden, out]``; two biases,
        ``bias0 [hidden]`` and ``bias1 [out]``; and the layer norm's ``norm_weight`` and
        ``norm_bias``, each of shape ``[hidden]``.

    Example:
        >>> {name: list(value.shape) for name, value in init_encoder(5, hidden=3, out=2).items()}
        {'weight0': [5, 3], 'bias0': [3], 'norm_weight': [3], 'norm_bias': [3],
         'weight1': [3, 2], 'bias1': [2]}

    Source: GPFL, TMLR 2025
    """

    def uniform(*shape: int) -> Tensor:
        limit = 1 / math.sqrt(shape[-1])
        return (2 * torch.rand(shape, generator=generator, dtype=dtype) - 1) * limit

    return {
        "weight0": uniform(width, hidden),
        "bias0": uniform(hidden),
        "norm_weight": torch.ones(hidden, dtype=dtype),
        "norm_bias": torch.zeros(hidden, dtype=dtype),
        "weight1": uniform(hidden, out),
        "bias1": uniform(out),
    }


def encode(network: Tensor, features: Tensor, params: dict[str, Tensor]) -> Tensor:
    """Two graph convolutions: ``Z = A (ReLU(LayerNorm(A X W_0 + b_0)) W_1) + b_1``.

    Args:
        network: float ``[k, k]``, the paper's A.
        features: float ``[k, width]``, the paper's X.
        params: weights as returned by `init_encoder`.

    Returns:
        float ``[k, out]``.

    Example:
        >>> encode(torch.eye(3), torch.rand(3, 5), init_encoder(5)).shape
        torch.Size([3, 32])

    Source: GPFL, TMLR 2025
    """
    hidden = network @ features @ params["weight0"] + params["bias0"]
    normed = F.layer_norm(hidden, hidden.shape[1:], params["norm_weight"], params["norm_bias"])
    return network @ (normed.relu() @ params["weight1"]) + params["bias1"]


def link_probability(z: Tensor) -> Tensor:
    """Probability of a link between two clients: ``a_ij = sigmoid(z_i . z_j)``.

    Args:
        z: float ``[k, d]``.

    Returns:
        float ``[k, k]``.

    Example:
        >>> link_probability(torch.tensor([[1.0], [0.0]]))
        tensor([[0.7311, 0.5000],
                [0.5000, 0.5000]])

    Source: GPFL, TMLR 2025
    """
    return torch.sigmoid(z @ z.T)


def link_entropy(probability: Tensor) -> Tensor:
    """Entropy of the links: ``mean_ij(-a log(a + e) - (1 - a) log(1 - a + e))``.

    Args:
        probability: float ``[k, k]`` in ``[0, 1]``; e is 1e-6.

    Returns:
        Scalar.

    Example:
        >>> link_entropy(torch.tensor([[0.5, 1.0]]))
        tensor(0.3466)

    Source: GPFL, TMLR 2025, Eq. 9, first term
    """
    rest = 1 - probability
    entropy = probability * (probability + EPS).log() + rest * (rest + EPS).log()
    return -entropy.mean()


def link_cost(probability: Tensor) -> Tensor:
    """Penalty that grows with links: ``mean_ij(-log(1 + e - a))``.

    Args:
        probability: float ``[k, k]`` in ``[0, 1]``; e is 1e-6.

    Returns:
        Scalar.

    Example:
        >>> link_cost(torch.tensor([[0.5, 0.0]]))
        tensor(0.3466)

    Source: GPFL, TMLR 2025, Eq. 9, second term
    """
    wide = probability.to(torch.promote_types(probability.dtype, torch.float32))  # e needs float32
    return -torch.log(1 + EPS - wide).mean().to(probability.dtype)


def link_loss(z: Tensor, *, weight: float = 1.0) -> Tensor:
    """The loss that `reconstruct` minimises: ``link_entropy + weight link_cost``.

    Args:
        z: float ``[k, d]``.
        weight: weight of `link_cost`.

    Returns:
        Scalar.

    Example:
        >>> link_loss(torch.zeros(2, 3))
        tensor(1.3863)

    Source: GPFL, TMLR 2025, Eq. 9
    """
    probability = link_probability(z)
    return link_entropy(probability) + weight * link_cost(probability)


@typed
@full_precision
def reconstruct(
    network: Tensor,
    features: Tensor,
    *,
    hidden: Count = 128,
    out: Count = 32,
    steps: Natural = 100,
    lr: float = 1e-3,
    weight_decay: float = 5e-4,
    weight: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Train an auto-encoder on the clients' network and return its embeddings of the clients.

    Each call starts with new weights from `init_encoder`. Adam then minimises `link_loss` for the
    embeddings from `encode`. The gradient is computed by explicit formulas, without autograd. Both
    terms of the loss reduce link probabilities, so longer training would remove all links. The
    weights do not depend on the order of clients.

    Args:
        network: float ``[k, k]``, the initial network. Each row sums to 1 (`running_network`).
        features: float ``[k, width]``, features of the clients (`pooled_features`).
        hidden: width of the hidden layer.
        out: width of the embedding.
        steps: number of Adam steps.
        lr: learning rate.
        weight_decay: weight decay of Adam.
        weight: weight of `link_cost`.
        generator: source of randomness for the initial weights.

    Returns:
        float ``[k, out]``, an argument for `discretise`. No gradient flows through the result.

    Raises:
        TypeError: if an input is not floating point.
        ValueError: if an input is not finite, if the network is not square, or if the two inputs
            have different numbers of clients.

    Example:
        >>> reconstruct(torch.eye(3), torch.rand(3, 5), steps=10).shape
        torch.Size([3, 32])

    Source: GPFL, TMLR 2025, Eq. 5, 9 and 15
    """
    check_rows("network", network, "k, k")
    check_rows("features", features, "k, *")
    if len(network) != len(features):
        got = f"{len(network)} and {len(features)}"
        raise ValueError(f"Expected network and features to be of as many clients, but got {got}")
    dtype = features.dtype
    features = features.to(torch.promote_types(dtype, torch.float32))  # Adam in half: division by 0
    drawn = init_encoder(
        features.shape[1], hidden=hidden, out=out, generator=generator, dtype=features.dtype
    )
    with torch.inference_mode():
        network = network.to(features)
        inputs = _beside_ones(network @ features)
        flat = torch.cat([value.flatten() for value in drawn.values()]).to(features)
        grad, first, second = (torch.zeros_like(flat) for _ in range(3))
        taken = torch.zeros((), device=flat.device)
        sizes = (features.shape[1], hidden, out)
        params, grads = _affine(flat, sizes), _affine(grad, sizes)
        how = {**ADAM, "lr": lr, "weight_decay": weight_decay}
        for _ in range(steps):
            _gradient(network, inputs, params, weight, grads)
            adam([flat], [grad], [first], [second], [], [taken], **how)
        z = _forward(network, inputs, params)[-1]
    return z.to(dtype, copy=True)


Affine = tuple[Tensor, Tensor, Tensor, Tensor]


def _affine(flat: Tensor, sizes: tuple[int, int, int]) -> Affine:
    """Views of all weights, in the order of `init_encoder`; the last row of each is the bias."""
    width, hidden, out = sizes
    parts = flat.split([(width + 1) * hidden, hidden, hidden, (hidden + 1) * out])
    return parts[0].view(-1, hidden), parts[1], parts[2], parts[3].view(-1, out)


def _beside_ones(rows: Tensor) -> Tensor:
    return torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)


def _forward(network: Tensor, inputs: Tensor, params: Affine) -> tuple[Tensor, ...]:
    """All values of `encode` that the gradient needs, from ``[A X, 1]`` to the embedding."""
    affine0, norm_weight, norm_bias, affine1 = params
    hidden = inputs @ affine0
    normed, mean, rstd = torch.native_layer_norm(
        hidden, norm_weight.shape, norm_weight, norm_bias, 1e-5
    )
    spread = _beside_ones(network @ normed.relu())
    return hidden, normed, mean, rstd, spread, spread @ affine1


def _gradient(
    network: Tensor, inputs: Tensor, params: Affine, weight: float, grads: Affine
) -> None:
    """Compute each weight's gradient by the chain rule, and write it into `grads`."""
    hidden, normed, mean, rstd, spread, z = _forward(network, inputs, params)
    _, norm_weight, norm_bias, affine1 = params
    to_z = _link_gradient(z, weight)
    torch.mm(spread.T, to_z, out=grads[3])
    to_normed = (network.T @ (to_z @ affine1[:-1].T)).mul_(normed > 0)
    to_hidden, to_weight, to_bias = torch.ops.aten.native_layer_norm_backward(
        to_normed, hidden, norm_weight.shape, mean, rstd, norm_weight, norm_bias, [True] * 3
    )
    grads[1].copy_(to_weight)
    grads[2].copy_(to_bias)
    torch.mm(inputs.T, to_hidden, out=grads[0])


def _link_gradient(z: Tensor, weight: float) -> Tensor:
    """Gradient of `link_loss` with respect to `z`: ``2/k^2 G z``.

    G holds the derivative of each pair's loss with respect to ``z_i . z_j``:
    ``G = a (1-a) (log((1-a+e)/(a+e)) + (1-a+w)/(1-a+e) - a/(a+e))``.
    """
    a = link_probability(z)
    rest = 1 - a
    above, below = a + EPS, rest + EPS
    slope = torch.div(below, above).log_()
    slope.addcdiv_(rest + weight, below).addcdiv_(a, above, value=-1).mul_(a).mul_(rest)
    return (slope @ z).mul_(2 / max(a.numel(), 1))

"""Auto-encoder that is trained to reconstruct a network of clients (GPFL)."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam

from ..checks import Count, Natural, check_rows, reject_if
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

    Each call starts with new weights from `init_encoder`. The embeddings are two graph
    convolutions, ``Z = A (ReLU(LayerNorm(A X W_0 + b_0)) W_1) + b_1``, and a link has the
    probability ``a_ij = sigmoid(z_i . z_j)``. Adam minimises the loss of Eq. 9, with e of 1e-6:
    ``mean_ij(-a log(a + e) - (1 - a) log(1 - a + e) - w log(1 + e - a))``. The gradient is computed
    by explicit formulas, without autograd. Both terms of the loss reduce link probabilities, so
    longer training would remove all links. The weights do not depend on the order of clients.

    Args:
        network: float ``[k, k]``, the initial network A. Each row sums to 1 (`running_network`).
        features: float ``[k, width]``, features X of the clients (`pooled_features`).
        hidden: width of the hidden layer.
        out: width of the embedding.
        steps: number of Adam steps.
        lr: learning rate.
        weight_decay: weight decay of Adam.
        weight: w in the loss: the weight of the penalty ``-log(1 + e - a)``, which grows with the
            link probability.
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
    counts = f"{len(network)} and {len(features)}"
    apart = len(network) != len(features)
    reject_if(apart, "network and features to be of as many clients", counts)
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
    """Views of all weights, in the order of `init_encoder`; a matrix's last row is the bias."""
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
    """Gradient of the loss with respect to `z`: ``2/k^2 G z``.

    G holds the derivative of each pair's loss with respect to ``z_i . z_j``:
    ``G = a (1-a) (log((1-a+e)/(a+e)) + (1-a+w)/(1-a+e) - a/(a+e))``.
    """
    a = torch.sigmoid(z @ z.T)
    rest = 1 - a
    above, below = a + EPS, rest + EPS
    slope = torch.div(below, above).log_()
    slope.addcdiv_(rest + weight, below).addcdiv_(a, above, value=-1).mul_(a).mul_(rest)
    return (slope @ z).mul_(2 / max(a.numel(), 1))

"""Gaussian noise in a secure sum: each client adds a part, so clients need not trust the server."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..checks import Chance, Positive, Several, check_number, reject_if
from ..federation import Inbox, Message, Method, Params, State, combine, layer, pick, trainable
from ..graph import Graph
from ..privacy import clip, discrete_gaussian
from ..privacy.gaussian import COARSEST, FARTHEST, LARGEST, truncated
from ..privacy.record import Noise
from ..transfer import to_device
from .clipped import clipped
from .gaussian import counted, noise_source
from .secure_sum.messages import told_shares
from .secure_sum.signed import Signatures
from .secure_sum.transform import SEALED, secure_sum

EXACT = 2.0**53  # up to this number a float64 represents every integer


@layer(sealed=SEALED)
def summed_gaussian(
    method: Method,
    *,
    threshold: Several,
    length: Positive,
    noise_multiplier: Positive,
    colluders: int = 0,
    signed: Signatures | None = None,
    delta: Chance = 1e-5,
    bits: int = 28,
    bound: float = 1024.0,
    unprotected: bool = False,
) -> Method:
    """Make the server learn only a sum of clipped updates plus noise.

    The server learns ``(sum_k clip(update_k) + g_k) / K``, where K is the number of clients in a
    `secure_sum`. A client clips its update and rounds each entry towards 0, to a multiple of
    ``2^-bits``. Before masking, the client adds its part of the noise. This part ``g_k`` is
    discrete Gaussian noise with the standard deviation
    ``length noise_multiplier / sqrt(threshold - colluders)``. The server and the colluders know
    only the colluders' parts of the noise. The sum of all other clients' noise has a variance of at
    least ``(length noise_multiplier)^2``.

    Epsilon bounds the effect of **replacing one client's update by zeros**, as with
    `central_gaussian`. The list of clients in a sum is public. The noise protects clients if all
    parties, including the server, follow the protocol. With `signed`, the noise also protects
    clients against a dishonest server. With and without `signed`, the protection requires that at
    most `colluders` clients reveal their parts of the noise to the server. For a sum of n clients,
    `privacy_spent` counts only the noise of ``n - colluders`` clients. So epsilon is smaller if a
    sum contains more clients than `threshold`. A client that has dropped out adds no noise.

    Args:
        method: as for `clipped` and `secure_sum`.
        threshold: number of clients that must complete an exchange, as for `secure_sum`.
        length: the largest norm of an update, above 0; larger updates are clipped.
        noise_multiplier: the noise in a sum has at least this standard deviation, in units of
            `length`.
        colluders: number of clients that may collude with the server; at most ``threshold - 2``.
        signed: as for `secure_sum`.
        delta: the delta for which `privacy_spent` computes epsilon.
        bits, bound: as for `secure_sum`. In addition, the standard deviation of one client's noise
            must be at least 16 times ``2^-bits``.
        unprotected: derive noise and masks from the run's seed. This makes an experiment repeatable
            but protects nothing: warnings say so, and epsilon is infinite.

    Raises:
        ValueError: if a number is out of range. The method's functions also raise a ValueError in
            the same cases as the functions of `clipped` and `secure_sum`.

    Example:
        >>> method = summed_gaussian(
        ...     fgl.fedavg(torch.nn.Linear(1, 1)), threshold=3, length=1.0, noise_multiplier=2.0
        ... )
        >>> method.rules.exchange, method.rules.silent
        (4, True)

    Source: Kairouz et al. 2021, https://arxiv.org/abs/2102.06387
    """
    noise_source(unprotected)  # warns
    check_number("colluders", colluders, at_least=0, below=threshold, integer=True)
    check_number("bits", bits, at_least=0, at_most=48, integer=True)
    sigma = length * noise_multiplier / math.sqrt(threshold - colluders)
    least, most = (math.log2(end / sigma) for end in (COARSEST, LARGEST))
    want = f"{math.ceil(least)}, so that the grid is a sixteenth of a client's noise of {sigma:g}"
    reject_if(sigma * 2.0**bits < COARSEST, f"bits to be at least {want}", bits)
    want = f"{math.floor(most)}, so that a client's noise of {sigma:g} fits a word"
    reject_if(sigma * 2.0**bits > LARGEST, f"bits to be at most {want}", bits)
    check_number("bound", bound, above=length + FARTHEST * sigma, at_most=EXACT / 2.0**bits)
    both: dict[str, Any] = {"bits": bits, "bound": bound, "unprotected": unprotected}
    sharing = _with_shares(
        method, length=length, noise_multiplier=noise_multiplier, sigma=sigma, **both
    )
    summed = secure_sum(sharing, threshold=threshold, colluders=colluders, signed=signed, **both)
    noise = Noise(0.0 if unprotected else noise_multiplier)

    def paid(inbox: Inbox, state: State) -> Mapping[int, float]:
        """The privacy cost of a sum for each client.

        Each of the n clients in a sum adds one part of the noise. If q clients reveal their parts,
        ``n - q`` parts are secret, and the variance of the secret noise is proportional to
        ``n - q``. Let t be the threshold. With ``t - q`` secret parts, the noise has the given
        noise multiplier; such a sum costs one unit. The cost of a Gaussian mechanism is inversely
        proportional to the variance of the secret noise. So the sum of n clients costs
        ``(t - q) / (n - q)`` units. The cost is counted as soon as shares are requested, even if no
        sum follows.
        """
        clients = told_shares(inbox, state, summed.rules.exchange)
        return {k: (threshold - colluders) / (len(clients) - colluders) for k in clients}

    return counted(summed, noise, paid, kind="summed_gaussian", delta=delta, colluders=colluders)


@layer(sealed=("receive", "send", "aggregate"))
def _with_shares(
    method: Method,
    *,
    length: float,
    noise_multiplier: float,
    sigma: float,
    bits: int,
    bound: float,
    unprotected: bool,
) -> Method:
    """Make clients clip their updates, round them to a grid, and add their parts of the noise."""
    generator = torch.default_generator if unprotected else None  # seeded by the round
    base, names = clipped(method, length=length), trainable(method)
    room, scale = bound - length - FARTHEST * sigma, 2.0**bits

    def on_grid(update: Tensor, sent: Tensor) -> Tensor:
        """Return ``sent + update + noise``; each of the three terms is a multiple of ``2^-bits``.

        If an entry of `sent` is larger than `room`, the sum is infinite. Only the server's message
        determines whether the sum is infinite, so an infinite sum reveals nothing.
        """
        if not bool((sent.abs() <= room).all()):
            return torch.full_like(update, math.inf)
        noise = discrete_gaussian(update.shape, sigma=sigma * scale, unprotected=generator)
        digits = (sent.double() * scale).round() + truncated(update, 1 / scale) * scale
        return (digits + to_device(noise, digits.device)) / scale

    @torch.no_grad()
    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new_state = base.send(params, context, state, graph)
        model, sent = message["model"], context["was_sent"]
        # The change is clipped again, since adding and subtracting rounds.
        update = clip(combine(torch.sub, pick(model, names), sent), length=length)
        noisy = combine(on_grid, update, sent)
        return {**message, "model": {n: noisy.get(n, sent[n]) for n in model}}, new_state

    def costs(message: Message) -> Mapping[str, float]:
        """The largest possible cost of a sum, in which the fewest allowed clients add noise."""
        return {"noise_multiplier": 0.0 if unprotected else noise_multiplier}

    return replace(base, send=send, privacy=replace(base.privacy, costs=costs))

"""Personalization: send only a part of a model, or mix a client's model with the global model."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from .checks import check_number, check_share, check_weight, reject_if

Params = dict[str, Tensor]


def part(params: Mapping[str, Tensor], *prefixes: str) -> dict[str, Tensor]:
    """Select the part of a model to send: the tensors of the named modules.

    ``part(params, "conv1", "conv_mu")`` contains ``conv1.bias``, ``conv1.lin.weight``, ..., but not
    ``conv10.bias``. Without a prefix, the part is the whole model. The model's `rest` is not sent,
    so it stays at each client, as in FedPer.

    Args:
        params: dict from name to tensor.
        prefixes: names of modules, such as ``"conv1"`` or ``"conv1.lin"``.

    Returns:
        Dict of the selected tensors, under their full names and in the order of `params`.

    Raises:
        ValueError: if a prefix matches no tensor.

    Example:
        >>> model = torch.nn.ModuleDict({"conv": torch.nn.Linear(1, 1), "head": torch.nn.ReLU()})
        >>> list(part(model.state_dict(), "conv"))
        ['conv.weight', 'conv.bias']

    Source: Arivazhagan et al. 2019 (FedPer), https://arxiv.org/abs/1912.00818; FedVGAE, IEEE
    Transactions on Big Data 2024
    """
    for prefix in prefixes:
        if not any(_under(name, prefix) for name in params):
            raise ValueError(
                f"Expected prefixes to name layers of {list(params)}, but got {prefix!r}"
            )
    whole = not prefixes
    return {k: v for k, v in params.items() if whole or any(_under(k, p) for p in prefixes)}


def rest(params: Mapping[str, Tensor], *prefixes: str) -> dict[str, Tensor]:
    """Select the tensors of all modules that `part` does not select.

    Args:
        params: dict from name to tensor.
        prefixes: as for `part`; without a prefix, nothing is left out.

    Returns:
        Dict of the selected tensors, under their full names and in the order of `params`.

    Raises:
        ValueError: if a prefix matches no tensor.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
        >>> list(rest(model.state_dict(), "0"))
        ['1.weight', '1.bias']

    Source: Zhang et al., FedEgo, https://arxiv.org/abs/2208.13685
    """
    chosen = part(params, *prefixes)
    return {name: value for name, value in params.items() if name not in chosen}


def interpolate(
    own: Mapping[str, Tensor], other: Mapping[str, Tensor], weight: Tensor | float
) -> Params:
    """``weight * other + (1 - weight) * own``, tensor by tensor (FedEgo).

    Args:
        own: dict from name to tensor.
        other: a second dict of tensors, with the names and shapes of the first.
        weight: scalar between 0 and 1; 0 gives exactly `own`, and 1 gives exactly `other`.

    Returns:
        Dict of new tensors, with the names of `own`; integer tensors are copied from `own`.

    Raises:
        TypeError: if two tensors of the same name differ in dtype.
        ValueError: if the names or shapes differ, or if `weight` is below 0 or above 1.

    Example:
        >>> own, other = {"w": torch.tensor([0.0])}, {"w": torch.tensor([4.0])}
        >>> interpolate(own, other, 0.25)
        {'w': tensor([1.])}

    Source: Zhang et al., FedEgo, https://arxiv.org/abs/2208.13685
    """
    share = float(weight)  # read only here, since reading waits for a GPU
    reject_if(not 0 <= share <= 1, "weight to be in [0, 1]", share)
    reject_if(own.keys() != other.keys(), f"other to have keys {list(own)}", list(other))
    mixed = {}
    for name, value in own.items():
        if other[name].shape != value.shape:
            raise ValueError(
                f"Expected other[{name!r}] to have shape {list(value.shape)}, "
                f"but got {list(other[name].shape)}"
            )
        if other[name].dtype != value.dtype:
            raise TypeError(
                f"Expected other[{name!r}] to be {value.dtype}, but got {other[name].dtype}"
            )
        if not value.is_floating_point() or share == 0:
            mixed[name] = value.clone()
        elif share == 1:
            mixed[name] = other[name].clone()
        else:
            mixed[name] = torch.lerp(value, other[name], torch.as_tensor(weight).to(value))
    return mixed


def label_distribution(y: Tensor, num_classes: int, mask: Tensor | None = None) -> Tensor:
    """Each class's fraction of the labels: ``P(c) = |{v: y_v = c}| / n``.

    Args:
        y: int64 ``[n]`` in ``[0, num_classes)``.
        num_classes: number of classes.
        mask: bool ``[n]``; by default all.

    Returns:
        float ``[num_classes]`` that sums to 1. If the mask is empty, all entries are 0, and
        `earth_mover` would raise an error for such a distribution.

    Raises:
        TypeError: if `y` is not int64, or if `mask` is not bool.
        ValueError: if `y` or `mask` has the wrong shape, or if a label is out of range.

    Example:
        >>> label_distribution(torch.tensor([0, 2, 2, 2]), 3)
        tensor([0.2500, 0.0000, 0.7500])

    Source: Zhang et al., FedEgo, https://arxiv.org/abs/2208.13685
    """
    reject_if(y.dtype != torch.int64, "y to be int64", y.dtype, TypeError)
    reject_if(y.dim() != 1, "y to have shape [*]", list(y.shape))
    if mask is not None:
        reject_if(mask.dtype != torch.bool, "mask to be bool", mask.dtype, TypeError)
        reject_if(mask.shape != y.shape, f"mask to have shape {list(y.shape)}", list(mask.shape))
    times = torch.ones_like(y) if mask is None else mask.to(y.dtype)
    y = y * times  # a node outside the mask is added to class 0 with weight 0
    low, high = torch.stack(y.aminmax()).tolist() if y.numel() else (0, -1)
    if low < 0 or high >= num_classes:
        raise ValueError(f"Expected y to be in [0, {num_classes}), but got {y.unique().tolist()}")
    count = times.new_zeros(num_classes).scatter_add_(0, y, times).to(torch.get_default_dtype())
    return count / count.sum().clamp(min=1)


def is_distribution(share: Tensor) -> bool:
    """Whether all entries are at least 0 and sum to 1 (up to 1e-3); False if there is a NaN.

    Example:
        >>> is_distribution(torch.tensor([0.75, 0.25])), is_distribution(torch.tensor([3.0, 1.0]))
        (True, False)
    """
    below, total = torch.stack([(share < 0).any().double(), share.sum().double()]).tolist()
    return not below and abs(total - 1) <= 1e-3


def earth_mover(p: Tensor, q: Tensor) -> Tensor:
    """Distance between two label distributions: ``EMD = sum_c |p(c) - q(c)|`` (FedEgo).

    Args:
        p: float ``[num_classes]`` that sums to 1.
        q: the second distribution, float ``[num_classes]`` that sums to 1.

    Returns:
        Scalar between 0 and 2: 0 for equal distributions, and 2 if no class occurs in both of them.

    Raises:
        ValueError: if the shapes differ, if an entry is negative, or if a sum is not 1.

    Example:
        >>> earth_mover(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
        tensor(2.)

    Source: Zhao et al., https://arxiv.org/abs/1806.00582; FedEgo, Eq. 14
    """
    reject_if(
        p.shape != q.shape or p.dim() != 1,
        "p and q to have one shape [num_classes]",
        f"{list(p.shape)} and {list(q.shape)}",
    )
    for name, share in (("p", p), ("q", q)):
        if not is_distribution(share):
            raise ValueError(
                f"Expected {name} to be shares that sum to 1, but got {share.tolist()}"
            )
    return (p - q).abs().sum()


def mixing_coefficient(p: Tensor, q: Tensor, *, gamma: float = 0.5) -> Tensor:
    """Weight of the global layers in a client's model: ``lambda = (EMD(p, q) / 2)^gamma``.

    This is FedEgo's Eq. 15. The weight grows with the distance between the client's label
    distribution and the global label distribution. The weight decreases if `gamma` grows.

    Args:
        p: the client's label distribution, float ``[num_classes]``.
        q: the global label distribution.
        gamma: exponent, above 0.

    Returns:
        Scalar between 0 and 1: 0 for equal distributions, and 1 if no class occurs in both of them.

    Raises:
        ValueError: if `gamma` is not above 0, or if `earth_mover` raises a ValueError.

    Example:
        >>> mixing_coefficient(torch.tensor([1.0, 0.0]), torch.tensor([0.75, 0.25]), gamma=0.5)
        tensor(0.5000)

    Source: Zhang et al., FedEgo, https://arxiv.org/abs/2208.13685, Eq. 15
    """
    check_number("gamma", gamma, above=0)
    return (earth_mover(p, q) / 2).clamp(0, 1) ** gamma


def emd_share(gamma: float = 0.5) -> Callable[[Tensor, Tensor], Tensor]:
    """Build the function `mixing_coefficient` with a fixed `gamma`; `gamma` is checked here.

    Raises:
        ValueError: if `gamma` is not above 0.

    Example:
        >>> emd_share(gamma=1.0)(torch.tensor([1.0, 0.0]), torch.tensor([0.75, 0.25]))
        tensor(0.2500)
    """
    check_number("gamma", gamma, above=0)
    return partial(mixing_coefficient, gamma=gamma)


def adaptive_aggregation(
    received: Mapping[str, Tensor],
    own: Mapping[str, Tensor],
    validate: Callable[[dict[str, Tensor]], float],
    last: float,
    *,
    phi: float = 0.5,
    delta: float = 0.01,
    max_adjust: int = 1,
    strict: bool = True,
) -> tuple[dict[str, Tensor], float, int]:
    """Use the received model; if the score drops, mix in the client's model (FedVGAE, Alg. 1).

    The function starts with ``theta = received``. While ``validate(theta) < last - delta``, the
    function sets ``theta <- phi own + (1 - phi) theta``, at most `max_adjust` times.

    Args:
        received: the model from the server, a dict from name to tensor.
        own: the client's model after the client's last local training, with the names and shapes of
            `received`.
        validate: function that returns a model's score on the client's validation sample; a higher
            score is better.
        last: the score that `adaptive_aggregation` returned in the previous round; NaN if there is
            none. If `last` or a new score is NaN, no further mixing happens.
        phi: weight of the client's own model, between 0 and 1; 0 keeps the received model bit for
            bit.
        delta: limit on the drop of the score; a larger drop leads to mixing.
        max_adjust: largest number of mixing steps. With 0, the received model is scored but never
            mixed.
        strict: if True, models are mixed only if the score drops by more than `delta`, as in the
            paper's text. If False, models are also mixed if the score drops by exactly `delta`. For
            Algorithm 1 as printed, use ``strict=False`` and ``delta=0``.

    Returns:
        The resulting model, the score of this model, and the number of mixing steps.

    Raises:
        ValueError: if `phi`, `delta` or `max_adjust` is out of range, or if the two models differ
            in names or shapes.

    Example:
        >>> one, three = {"w": torch.tensor(1.0)}, {"w": torch.tensor(3.0)}
        >>> adaptive_aggregation(three, one, lambda model: 1 / float(model["w"]), 0.9)
        ({'w': tensor(2.)}, 0.5, 1)

    Source: FedVGAE, IEEE Transactions on Big Data 2024
    """
    check_share(phi=phi)
    check_weight(delta=delta)
    check_number("max_adjust", max_adjust, at_least=0, integer=True)
    got = {name: list(tensor.shape) for name, tensor in own.items()}
    want = {name: list(tensor.shape) for name, tensor in received.items()}
    reject_if(got != want, f"own to have the received shapes {want}", got)
    model = dict(received)
    score = validate(model)
    count = 0
    while count < max_adjust and (score < last - delta or (score == last - delta and not strict)):
        model = interpolate(model, {name: own[name] for name in model}, phi)
        score = validate(model)
        count += 1
    return model, score, count


def _under(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix.removesuffix(".") + ".")

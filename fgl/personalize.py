"""What a client keeps for itself, and how it mixes its own with what is global."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Params = dict[str, Tensor]


def split_layers(params: Mapping[str, Tensor], prefixes: Sequence[str]) -> tuple[Params, Params]:
    """Parameters whose names begin with one of `prefixes`, and the others.

    A prefix ends at a dot: ``"conv"`` is the layer ``conv.weight``, not ``convs.0.weight``.

    Args:
        params: name to tensor.
        prefixes: names of layers, e.g. ``["reduction"]``.

    Returns:
        The two parts, in the order of `params`; the tensors are not copied.

    Raises:
        ValueError: if a prefix names no layer.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
        >>> shared, own = split_layers(model.state_dict(), ["0"])
        >>> list(shared), list(own)
        (['0.weight', '0.bias'], ['1.weight', '1.bias'])
    """

    def under(name: str, prefix: str) -> bool:
        return name == prefix or name.startswith(prefix.removesuffix(".") + ".")

    for prefix in prefixes:
        if not any(under(name, prefix) for name in params):
            raise ValueError(
                f"Expected prefixes to name layers of {list(params)}, but got {prefix!r}"
            )
    chosen = {name for name in params if any(under(name, prefix) for prefix in prefixes)}
    first = {name: value for name, value in params.items() if name in chosen}
    rest = {name: value for name, value in params.items() if name not in chosen}
    return first, rest


def interpolate(
    own: Mapping[str, Tensor], other: Mapping[str, Tensor], weight: Tensor | float
) -> Params:
    """``weight * other + (1 - weight) * own``, tensor by tensor (FedEgo).

    Args:
        own: name to tensor.
        other: the same names and shapes.
        weight: scalar in [0, 1]; 0 gives `own`, 1 gives `other`, exactly.

    Returns:
        New tensors under the names of `own`; integer tensors stay its own.

    Raises:
        ValueError: if the names or shapes differ, or `weight` is not in [0, 1].

    Example:
        >>> own, other = {"w": torch.tensor([0.0])}, {"w": torch.tensor([4.0])}
        >>> interpolate(own, other, 0.25)
        {'w': tensor([1.])}
    """
    if not 0 <= float(weight) <= 1:
        raise ValueError(f"Expected weight to be in [0, 1], but got {float(weight)}")
    if list(own) != list(other):
        raise ValueError(f"Expected other to have keys {list(own)}, but got {list(other)}")
    mixed = {}
    for name, value in own.items():
        if other[name].shape != value.shape:
            raise ValueError(
                f"Expected other[{name!r}] to have shape {list(value.shape)}, "
                f"but got {list(other[name].shape)}"
            )
        if not value.is_floating_point():
            mixed[name] = value.clone()
        else:
            mixed[name] = torch.lerp(value, other[name], torch.as_tensor(weight).to(value))
    return mixed


def label_distribution(y: Tensor, num_classes: int, mask: Tensor | None = None) -> Tensor:
    """Share of each class: ``P(c) = |{v: y_v = c}| / n``.

    Args:
        y: int64 ``[n]`` in ``[0, num_classes)``.
        num_classes: number of classes.
        mask: bool ``[n]``; default all.

    Returns:
        float ``[num_classes]`` that sums to 1; zeros where nothing is masked in.

    Raises:
        ValueError: if a label is out of range, or `mask` has another shape.

    Example:
        >>> label_distribution(torch.tensor([0, 2, 2, 2]), 3)
        tensor([0.2500, 0.0000, 0.7500])
    """
    if mask is not None:
        if mask.shape != y.shape:
            raise ValueError(
                f"Expected mask to have shape {list(y.shape)}, but got {list(mask.shape)}"
            )
        y = y[mask]
    if y.numel() and (int(y.min()) < 0 or int(y.max()) >= num_classes):
        raise ValueError(f"Expected y to be in [0, {num_classes}), but got {y.unique().tolist()}")
    count = torch.bincount(y, minlength=num_classes).to(torch.get_default_dtype())
    return count / count.sum().clamp(min=1)


def earth_mover(p: Tensor, q: Tensor) -> Tensor:
    """Distance of two label distributions: ``EMD = sum_c |p(c) - q(c)|``, in [0, 2] (FedEgo).

    Args:
        p: float ``[num_classes]`` that sums to 1.
        q: the same.

    Returns:
        Scalar: 0 where they agree, 2 where their supports are disjoint.

    Raises:
        ValueError: if the shapes differ.

    Example:
        >>> earth_mover(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
        tensor(2.)

    Source: Zhao et al., https://arxiv.org/abs/1806.00582; FedEgo, Eq. 15
    """
    if p.shape != q.shape or p.dim() != 1:
        raise ValueError(
            f"Expected p and q to have one shape [num_classes], "
            f"but got {list(p.shape)} and {list(q.shape)}"
        )
    return (p - q).abs().sum()


def mixing_coefficient(p: Tensor, q: Tensor, *, gamma: float = 0.5) -> Tensor:
    """How much of the global layers a client takes: ``lambda = (EMD(p, q) / 2)^gamma``.

    FedEgo, Eq. 15: the further a client's labels are from the global ones, the more it takes; a
    larger `gamma` takes less.

    Args:
        p: the client's label distribution, float ``[num_classes]``.
        q: the global one.
        gamma: exponent, above 0.

    Returns:
        Scalar in [0, 1]: 0 where they agree, 1 where their supports are disjoint.

    Raises:
        ValueError: if `gamma` is not above 0, or the shapes differ.

    Example:
        >>> mixing_coefficient(torch.tensor([1.0, 0.0]), torch.tensor([0.75, 0.25]), gamma=0.5)
        tensor(0.5000)

    Source: Zhang et al., FedEgo, https://arxiv.org/abs/2208.13685, Eq. 15
    """
    if not gamma > 0:
        raise ValueError(f"Expected gamma to be > 0, but got {gamma}")
    return (earth_mover(p, q) / 2).clamp(0, 1) ** gamma

"""Penalties on the distance to a reference model."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ..checks import check_like
from ..kinds import explained
from ..sparse.rows import widened


@explained
def proximal(params: Mapping[str, Tensor], reference: Mapping[str, Tensor]) -> Tensor:
    """Half the squared distance to a reference model: ``1/2 ||params - reference||^2``.

    FedProx minimises ``loss + mu * proximal(params, received)``. Only floating-point tensors are
    included. The reference gets no gradient.

    Args:
        params: dict from name to tensor, the model in training.
        reference: dict from name to tensor, the model to stay near. This dict contains a tensor of
            equal name and equal shape for every tensor in `params`.

    Returns:
        A scalar, in float32 if the models are in half precision.

    Raises:
        ValueError: if a name in `params` is missing from `reference`, or if the shapes of two
            tensors with equal names differ.

    Example:
        >>> proximal({"w": torch.tensor([3.0])}, {"w": torch.tensor([1.0])})
        tensor(2.)

    Source: Li et al. 2020, https://arxiv.org/abs/1812.06127, Eq. 2
    """
    terms = [each.square().sum() for each in _differences(params, reference)]
    return torch.stack(terms).sum() / 2 if terms else torch.zeros(())


def distance_per_entry(params: Mapping[str, Tensor], reference: Mapping[str, Tensor]) -> Tensor:
    """Distance to a reference model, per tensor and entry: ``sum_p ||theta_p - ref_p|| / n_p``.

    FedEgo's variant of FedProx adds this penalty to the loss with an adaptive weight. Tensor p has
    n_p entries. If a tensor equals its reference, the tensor's gradient is 0.

    Args:
        params: dict from name to tensor, the model in training.
        reference: dict from name to tensor, the model to stay near. This dict contains a tensor of
            equal name and equal shape for every tensor in `params`.

    Returns:
        A scalar, in float32 if the models are in half precision.

    Raises:
        ValueError: if a name in `params` is missing from `reference`, or if the shapes of two
            tensors with equal names differ.

    Example:
        >>> distance_per_entry({"w": torch.tensor([3.0, 4.0])}, {"w": torch.zeros(2)})
        tensor(2.5000)

    Source: Zhang et al., FedEgo, https://arxiv.org/abs/2208.13685
    """
    terms = [each.norm() / max(each.numel(), 1) for each in _differences(params, reference)]
    return torch.stack(terms).sum() if terms else torch.zeros(())


def _differences(params: Mapping[str, Tensor], reference: Mapping[str, Tensor]) -> list[Tensor]:
    """The differences of the floating-point tensors, after a check of all shapes."""
    check_like("reference", reference, params)
    floats = {name: value for name, value in params.items() if value.is_floating_point()}
    return [widened(value - reference[name].detach()) for name, value in floats.items()]

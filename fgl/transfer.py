"""Copies of tensors between the CPU and another device; tensors on the CPU need no copy."""

import torch
from torch import Tensor


def to_host(*tensors: Tensor) -> list[Tensor]:
    """Copy tensors to the CPU; tensors on a GPU are copied together, with a single wait.

    Args:
        tensors: tensors of any shapes and dtypes. All tensors on a GPU are copied as float64, so
            integers on a GPU must be below 2^53 in magnitude.

    Returns:
        The copied tensors, with the shapes and dtypes of `tensors`.

    Example:
        >>> to_host(torch.tensor(3), torch.tensor([0.5, 1.5]))
        [tensor(3), tensor([0.5000, 1.5000])]
    """
    on_device = [tensor for tensor in tensors if tensor.is_cuda]
    if not on_device:
        return list(tensors)
    values = torch.cat([tensor.double().flatten() for tensor in on_device]).cpu()
    parts = iter(values.split([tensor.numel() for tensor in on_device]))
    return [
        next(parts).view(tensor.shape).to(tensor.dtype) if tensor.is_cuda else tensor
        for tensor in tensors
    ]


def to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Copy a tensor to a device; the CPU does not wait for a copy to a GPU.

    Example:
        >>> to_device(torch.ones(2), "cpu")
        tensor([1., 1.])
    """
    if torch.device(device).type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    pinned = tensor if tensor.is_pinned() else tensor.pin_memory()
    return pinned.to(device, non_blocking=True)

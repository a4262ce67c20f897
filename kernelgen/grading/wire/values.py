"""Walking arguments and results: lists, tuples and dicts with tensors in them."""

from collections.abc import Callable
from typing import Any

import torch

from kernelgen.grading.wire.transport import span
from kernelgen.grading.wire.tree import sorted_keys


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Return every tensor of a value, in the order in which tree.describe lists them."""
    found: list[torch.Tensor] = []

    def take(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor.detach())
        return tensor

    map_tensors(value, take)
    return found


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return the value with every tensor in it replaced; containers are new, the rest is shared."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list):
        return [map_tensors(item, change) for item in value]
    if isinstance(value, tuple):
        return tuple(map_tensors(item, change) for item in value)
    if isinstance(value, dict):
        changed = {key: map_tensors(value[key], change) for key in sorted_keys(value)}
        return {key: changed[key] for key in value}
    return value


def moved(value: Any, device: str) -> Any:
    """Move tensors to a device and leave their dtype alone: an index stays an integer."""
    return map_tensors(value, lambda tensor: tensor.detach().to(device))


def copied(value: Any) -> Any:
    """Copy every tensor."""
    return map_tensors(value, torch.clone)


def doubled(value: Any) -> Any:
    """Turn floats into float64, and copy everything: a model may write into its arguments."""

    def double(tensor: torch.Tensor) -> torch.Tensor:
        # With what lies between its elements: a model may read there.
        memory = span(tensor).view(tensor.dtype)
        dtype = torch.float64 if tensor.is_floating_point() else tensor.dtype
        return memory.to(dtype, copy=True).as_strided(tensor.shape, tensor.stride())

    return map_tensors(value, double)


def rows_of(value: Any, start: int, stop: int, total: int) -> Any:
    """Take rows of every tensor that has `total` of them."""

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[start:stop] if tensor.dim() and len(tensor) == total else tensor

    return map_tensors(value, cut)

"""Random parameters for the reference, and their way into the candidate.

A module's own initialisation hides mistakes: GroupNorm's weight is 1 and its bias 0, so a kernel
that drops both is right on it. Every parameter and buffer is therefore drawn anew, at the scale of
its own initialisation and away from 0 and 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def state_of(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Return parameters, then buffers, each once, with their names, as registered."""
    parameters = [(name, tensor.detach()) for name, tensor in module.named_parameters()]
    return parameters + [(name, tensor.detach()) for name, tensor in module.named_buffers()]


def randomise(module: torch.nn.Module, generator: torch.Generator) -> None:
    """Draw every float parameter and every constant float buffer anew, in place.

    - A tensor of equal values c (the usual 0 or 1 of a norm's affine and statistics) becomes
      c + s*u with u uniform in [0.1, 0.5] and a random sign s: away from 0 and 1, and a variance
      that starts at 1 stays positive.
    - Any other parameter is drawn uniform with its own mean and standard deviation.
    - Any other buffer (a table, a mask) stays: its values mean something.
    """
    import torch

    buffers = {name for name, _ in module.named_buffers()}
    with torch.no_grad():
        for name, tensor in state_of(module):
            if not tensor.is_floating_point() or tensor.numel() == 0:
                continue
            low, high = float(tensor.min()), float(tensor.max())
            if low == high:
                size = 0.1 + 0.4 * _uniform(tensor, generator)
                sign = torch.where(_uniform(tensor, generator) < 0.5, -1.0, 1.0)  # noqa: PLR2004
                tensor.copy_(low + sign * size)
            elif name not in buffers:
                mean, deviation = float(tensor.double().mean()), float(tensor.double().std())
                half_width = deviation * 3.0**0.5
                tensor.copy_(mean + half_width * (2.0 * _uniform(tensor, generator) - 1.0))


def _uniform(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    import torch

    return torch.rand(like.shape, generator=generator, device=like.device, dtype=torch.float32)


def give(
    module: torch.nn.Module, names: tuple[str, ...], tensors: list[torch.Tensor]
) -> tuple[dict[str, str], tuple[str, ...], tuple[str, ...]]:
    """Copy the reference's tensors into a candidate: by name, else by shape and order.

    Args:
        module: the candidate's ModelNew, already on its device.
        names: of the reference's parameters and buffers.
        tensors: their values, in the same order.

    Returns:
        candidate's name -> reference's name; the reference's names that found no place; the
        candidate's names that got nothing. Those two carry the shape, as `gn.weight (64,)`.
    """
    import torch

    own = dict(state_of(module))
    mapping: dict[str, str] = {}
    waiting: list[tuple[str, torch.Tensor]] = []
    with torch.no_grad():
        for name, tensor in zip(names, tensors, strict=True):
            if name in own and own[name].shape == tensor.shape:
                own[name].copy_(tensor)
                mapping[name] = name
            else:
                waiting.append((name, tensor))
        missing = []
        for name, tensor in waiting:
            free = (
                mine
                for mine, value in own.items()
                if mine not in mapping
                and value.shape == tensor.shape
                and value.is_floating_point() == tensor.is_floating_point()
            )
            place = next(free, None)
            if place is None:
                missing.append(f"{name} {tuple(tensor.shape)}")
            else:
                own[place].copy_(tensor)
                mapping[place] = name
    alone = tuple(f"{name} {tuple(t.shape)}" for name, t in own.items() if name not in mapping)
    return mapping, tuple(missing), alone

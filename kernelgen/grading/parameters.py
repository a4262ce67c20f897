"""Random parameters for the reference, and their way into the candidate.

A module's own initialisation hides mistakes: GroupNorm's weight is 1 and its bias 0, so a kernel
that drops both is right on it. Every parameter and buffer is therefore drawn anew, at the scale of
its own initialisation and away from 0 and 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import torch


def state_of(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Return parameters, buffers, then tensors that are plain attributes, each once, with names."""
    import torch

    registered = [*module.named_parameters(), *module.named_buffers()]
    found = [(name, tensor.detach()) for name, tensor in registered]
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor):
                found.append((f"{path}.{name}" if path else name, value.detach()))
    return found


def randomise(module: torch.nn.Module, generator: torch.Generator) -> None:
    """Draw float parameters, and float buffers that are all 0 or all 1, anew and in place.

    - A tensor of equal values c (the usual 0 or 1 of a norm's affine and statistics) becomes
      c + d*s*u with u uniform in [0.1, 0.5], a random sign s, and d = |c|, or 1 where c is 0: away
      from 0 and 1, and a variance that starts at 1 stays positive.
    - Any other parameter is drawn uniform with its own mean and standard deviation.
    - Any other buffer (a table, a small constant) and any parameter with inf or NaN in it (a mask)
      stays: its values mean something.
    """
    import torch

    with torch.no_grad():
        for _, parameter in module.named_parameters():
            if parameter.is_floating_point() and parameter.numel():
                _redraw(parameter, generator)
        for _, buffer in module.named_buffers():
            if buffer.is_floating_point() and buffer.numel():
                low, high = float(buffer.min()), float(buffer.max())
                if low == high and low in (0.0, 1.0):
                    _redraw(buffer, generator)


def _redraw(tensor: torch.Tensor, generator: torch.Generator) -> None:
    import torch

    low, high = float(tensor.min()), float(tensor.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        return
    if low == high:
        size = (0.1 + 0.4 * _uniform(tensor, generator)) * (abs(low) or 1.0)
        sign = torch.where(_uniform(tensor, generator) < 0.5, -1.0, 1.0)  # noqa: PLR2004
        tensor.copy_(low + sign * size)
    else:
        mean, deviation = float(tensor.double().mean()), float(tensor.double().std())
        half_width = deviation * 3.0**0.5
        tensor.copy_(mean + half_width * (2.0 * _uniform(tensor, generator) - 1.0))


def _uniform(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    import torch

    return torch.rand(like.shape, generator=generator, device=like.device, dtype=torch.float32)


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the reference's tensors.

    Attributes:
        mapping: candidate's name -> the reference's name whose values it got.
        missing: the reference's names that found no place, with shape, as `gn.weight (64,)`.
        own: the candidate's parameters and buffers that got nothing, likewise.
    """

    mapping: dict[str, str]
    missing: tuple[str, ...]
    own: tuple[str, ...]


def give(module: torch.nn.Module, names: tuple[str, ...], tensors: list[torch.Tensor]) -> Given:
    """Copy the reference's tensors into a candidate: by name, else by shape and order.

    A tensor whose full name is not there goes to one of its shape, first to one with the same last
    name (`bias` for `norm.bias`), then to the first that is free, then to the only one with as many
    elements. Plain attributes take part by their full name alone.

    Args:
        module: the candidate's ModelNew, already on its device.
        names: of the reference's parameters and buffers.
        tensors: their values, in the same order.
    """
    import torch

    own = dict(state_of(module))
    registered = {name for name, _ in [*module.named_parameters(), *module.named_buffers()]}
    wanted = dict(zip(names, tensors, strict=True))
    mapping: dict[str, str] = {}

    def free(fits: Callable[[str, torch.Tensor], bool]) -> list[str]:
        places = [name for name in own if name in registered and name not in mapping]
        return [name for name in places if fits(name, own[name])]

    def rounds(name: str, tensor: torch.Tensor) -> Iterator[list[str]]:
        last = name.rpartition(".")[2]
        yield [name] if name in own and name not in mapping and _alike(own[name], tensor) else []
        yield free(lambda mine, value: mine.rpartition(".")[2] == last and _alike(value, tensor))
        yield free(lambda _, value: _alike(value, tensor))
        same_count = free(lambda _, value: value.numel() == tensor.numel())
        yield same_count if len(same_count) == 1 else []

    with torch.no_grad():
        # Every tensor has its turn in one round before any has in the next, so that none takes the
        # place of another that fits it better.
        for number in range(4):
            for name in [name for name in wanted if name not in mapping.values()]:
                places = next(itertools.islice(rounds(name, wanted[name]), number, None))
                if places:
                    own[places[0]].copy_(wanted[name].reshape(own[places[0]].shape))
                    mapping[places[0]] = name
    missing = [name for name in wanted if name not in mapping.values()]
    alone = [name for name in own if name in registered and name not in mapping]
    return Given(
        mapping=mapping,
        missing=tuple(f"{name} {tuple(wanted[name].shape)}" for name in missing),
        own=tuple(f"{name} {tuple(own[name].shape)}" for name in alone),
    )


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.is_floating_point() == other.is_floating_point()

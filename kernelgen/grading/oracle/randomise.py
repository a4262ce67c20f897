"""Random parameters for the reference.

A module's own initialisation hides mistakes: GroupNorm's weight is 1 and its bias 0, so a kernel
that drops both is right on it. Every parameter and buffer is therefore drawn anew, at the scale of
its own initialisation and away from 0 and 1.
"""

from __future__ import annotations

import math

import torch


def randomise(module: torch.nn.Module, generator: torch.Generator) -> None:
    """Draw float parameters, and float buffers that are all 0 or all 1, anew and in place.

    - A tensor of equal values c (the usual 0 or 1 of a norm's affine and statistics) becomes
      c + d*s*u with u uniform in [0.1, 0.5], a random sign s, and d = |c|, or 1 where c is 0: away
      from 0 and 1, and a variance that starts at 1 stays positive.
    - Any other parameter is drawn uniform with its own mean and standard deviation.
    - Any other buffer (a table, a small constant) and any parameter with inf or NaN in it (a mask)
      stays: its values mean something.
    """
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
    return torch.rand(like.shape, generator=generator, device=like.device, dtype=torch.float32)

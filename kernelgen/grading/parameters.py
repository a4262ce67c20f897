"""Random parameters for the reference, and their way into the candidate.

A module's own initialisation hides mistakes: GroupNorm's weight is 1 and its bias 0, so a kernel
that drops both is right on it. Every parameter and buffer is therefore drawn anew, at the scale of
its own initialisation and away from 0 and 1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from kernelgen.grading.definition_order import Definitions
from kernelgen.grading.parameter_matching import Slot, match
from kernelgen.grading.parameter_names import Fit

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


class Recipients:
    """The tensors of a candidate that hold the reference's values, and which holds which.

    Args:
        places: a tensor, the number of the reference's whose values it holds, and how.
        all_tensors: of the candidate.
    """

    def __init__(
        self, places: list[tuple[torch.Tensor, int, Fit]], all_tensors: list[torch.Tensor]
    ) -> None:
        self._places, self._all = places, all_tensors

    def fill(self, values: list[torch.Tensor]) -> None:
        """Copy the reference's values into the tensors, in place."""
        import torch

        with torch.no_grad():
            for place, number, how in self._places:
                value = values[number]
                turned = value.t() if how is Fit.TRANSPOSED else value.reshape(place.shape)
                place.copy_(turned)

    def count_a_change(self) -> None:
        """Have torch count a change of every tensor, as after a write in place."""
        from torch.autograd.graph import increment_version

        for tensor in self._all:
            increment_version(tensor)


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the reference's tensors.

    Attributes:
        mapping: candidate's name -> the reference's name whose values it got, with `, transposed`
            after it where they were.
        missing: the reference's names that found no place, with shape, as `gn.weight (64,)`.
        own: the candidate's parameters and buffers that got nothing, likewise.
        by_order: the pairs that no name settles, as `b <- linear.bias`.
        misfits: a pair each of `missing` and `own` with as many elements, and a shape that does not
            say which element is which.
        recipients: the candidate's tensors that got something.
    """

    recipients: Recipients
    mapping: dict[str, str]
    missing: tuple[str, ...]
    own: tuple[str, ...]
    by_order: tuple[str, ...] = ()
    misfits: tuple[tuple[str, str], ...] = ()


def give(
    module: torch.nn.Module,
    names: tuple[str, ...],
    tensors: list[torch.Tensor],
    ranks: tuple[int, ...],
    definitions: Definitions,
) -> Given:
    """Copy the reference's tensors into a candidate: by name, else by shape and order.

    parameter_matching.py says which goes where. The candidate's plain attributes take part by their
    full name alone.

    Args:
        module: the candidate's ModelNew, already on its device.
        names: of the reference's parameters and buffers, as torch lists them.
        tensors: their values, in the same order.
        ranks: their places in the order in which the reference defines them.
        definitions: recorded while the candidate was constructed.
    """
    own = dict(state_of(module))
    registered = {name for name, _ in [*module.named_parameters(), *module.named_buffers()]}
    wanted = dict(zip(names, tensors, strict=True))
    found = match(
        _slots(wanted, ranks, set(wanted)),
        _slots(own, definitions.ranks(module, tuple(own)), registered),
    )
    numbers = {name: number for number, name in enumerate(names)}
    recipients = Recipients(
        [(own[pair.own.name], numbers[pair.wanted.name], pair.how) for pair in found.pairs],
        list(own.values()),
    )
    recipients.fill(tensors)
    return Given(
        recipients=recipients,
        mapping=dict(str(pair).split(" <- ", 1) for pair in found.pairs),
        missing=tuple(str(slot) for slot in found.missing),
        own=tuple(str(slot) for slot in found.alone),
        by_order=tuple(str(pair) for pair in found.in_doubt()),
        misfits=tuple((str(slot), str(mine)) for slot, mine in found.misfits()),
    )


def _slots(
    tensors: dict[str, torch.Tensor], ranks: tuple[int, ...], registered: set[str]
) -> tuple[Slot, ...]:
    return tuple(
        Slot(
            name=name,
            shape=tuple(tensor.shape),
            floating=tensor.is_floating_point(),
            rank=rank,
            by_name=name not in registered,
        )
        for (name, tensor), rank in zip(tensors.items(), ranks, strict=True)
    )

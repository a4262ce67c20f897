"""The way of the reference's parameters and buffers into the candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kernelgen.grading.candidate.parameter_matching import Slot, match
from kernelgen.grading.candidate.parameter_names import Fit
from kernelgen.grading.wire.module_state import Definitions, state_of

if TYPE_CHECKING:
    import torch


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

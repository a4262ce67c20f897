"""The reference's parameters and buffers into the candidate's, as matching.py pairs them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from kernelgen.grading.candidate.matching import Pair, Slot, match
from kernelgen.grading.wire.gradients import Gradient
from kernelgen.grading.wire.messages import ParametersGiven, ReferenceState
from kernelgen.grading.wire.module_state import Definitions, Initial, state_of


class Recipients:
    """The tensors of a candidate that hold the reference's values, and which holds which.

    Args:
        places: a tensor, the number of the reference's whose values it holds, and the pair.
    """

    def __init__(
        self, places: list[tuple[torch.Tensor, int, Pair]], all_tensors: list[torch.Tensor]
    ) -> None:
        self._places, self._all = places, all_tensors

    def fill(self, values: list[torch.Tensor]) -> None:
        """Copy the reference's values into the tensors, in place."""
        with torch.no_grad():
            for place, number, pair in self._places:
                to = pair.part(place)
                to.copy_(values[number].reshape(to.shape))

    def held(self, module: torch.nn.Module, numbers: tuple[int, ...]) -> dict[int, torch.Tensor]:
        """Return what the candidate has now for some of the reference's tensors, in their shapes.

        A forward may have put another tensor under a name.
        """
        own = dict(state_of(module))
        found = {}
        for _, number, pair in self._places:
            tensor = own.get(pair.own.name)
            if number in numbers and tensor is not None:
                turned = pair.part(tensor)
                if turned.numel() == math.prod(pair.wanted.shape):
                    found[number] = turned.reshape(pair.wanted.shape)
        return found

    def gradients(
        self, module: torch.nn.Module, gradient: Gradient, names: tuple[str, ...]
    ) -> dict[str, torch.Tensor]:
        """Return gradients of the reference's parameters of these names, in their shapes.

        One that has no parameter of the candidate's is left out.
        """
        own = dict(module.named_parameters())
        found: dict[str, torch.Tensor] = {}
        for _, _, pair in self._places:
            parameter, name = own.get(pair.own.name), pair.wanted.name
            if parameter is not None and name in names:
                part = pair.part(gradient(parameter)).reshape(pair.wanted.shape)
                found[name] = found[name] + part if name in found else part
        return found

    def count_a_change(self) -> None:
        """Have torch count a change of every tensor, as after a write in place."""
        from torch.autograd.graph import increment_version

        for tensor in self._all:
            if not tensor.is_inference():
                increment_version(tensor)


def named_alike(
    module: torch.nn.Module, values: list[torch.Tensor], names: tuple[str, ...]
) -> bool:
    """Whether equal names alone say where each of the reference's tensors goes."""
    shapes = {name: tensor.shape for name, tensor in state_of(module)}
    pairs = zip(names, values, strict=True)
    return all(shapes.get(name) == value.shape for name, value in pairs)


def give(
    module: torch.nn.Module,
    values: list[torch.Tensor],
    reference: ReferenceState,
    definitions: Definitions,
    initial: tuple[Mapping[str, Initial], tuple[str, ...]] = ({}, ()),
) -> tuple[Recipients, ParametersGiven]:
    """Copy the reference's tensors into a candidate: by name, by initial value, by shape and order.

    The candidate's plain attributes take part by their full name or their initial value alone.

    Args:
        module: the candidate's ModelNew, already on its device.
        values: of the reference's parameters and buffers.
        reference: what is known of them, in the same order.
        definitions: recorded while the candidate was constructed.
        initial: the initial values of the candidate's tensors, and the reference's in order.
    """
    own = dict(state_of(module))
    registered = {name for name, _ in [*module.named_parameters(), *module.named_buffers()]}
    names = reference.names
    wanted = dict(zip(names, values, strict=True))
    drawn, digests = initial
    began = dict(zip(names, map(Initial, digests), strict=bool(digests)))
    found = match(
        _slots(wanted, reference.ranks, set(wanted), began),
        _slots(own, definitions.ranks(module, tuple(own)), registered, drawn),
        reference.tied,
    )
    numbers = {name: number for number, name in enumerate(names)}
    recipients = Recipients(
        [(own[pair.own.name], numbers[pair.wanted.name], pair) for pair in found.pairs],
        list(own.values()),
    )
    recipients.fill(values)
    return recipients, ParametersGiven(
        mapping=dict(str(pair).split(" <- ", 1) for pair in found.pairs),
        missing=tuple(str(slot) for slot in found.missing),
        own=tuple(str(slot) for slot in found.alone),
        by_order=tuple(str(pair) for pair in found.in_doubt()),
        misfits=tuple((str(slot), str(mine)) for slot, mine in found.misfits()),
    )


def _slots(
    tensors: dict[str, torch.Tensor],
    ranks: tuple[int, ...],
    registered: set[str],
    initial: Mapping[str, Initial],
) -> tuple[Slot, ...]:
    return tuple(
        Slot(
            name=name,
            shape=tuple(tensor.shape),
            floating=tensor.is_floating_point(),
            rank=rank,
            by_name=name not in registered,
            initial=initial.get(name, Initial()),
        )
        for (name, tensor), rank in zip(tensors.items(), ranks, strict=True)
    )

"""The tensors of a module, the order in which its constructor defines them, how they begin.

torch lists a module's own parameters before those of its submodules. A person who writes them out
as plain parameters goes by the text of `__init__` instead, where the submodules often come first.

Digests of the values that constructors draw tell renamed parameters. Reference and candidate are
constructed under one seed, which is no secret. Where a candidate draws as the reference does, equal
values then mean the same parameter.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import weakref
from array import array
from collections.abc import Iterator

import msgspec
import torch

# Of a large tensor, so many elements at even distances speak for all.
_SAMPLES = 1024


class Definitions:
    """What was registered while constructors ran, and when: see `recorded_definitions`."""

    def __init__(self) -> None:
        self._count = 0
        # By identity, with a reference that tells whether the module is still the same one. It
        # does not keep the module: a constructor may make large ones and drop them.
        self._noted: dict[tuple[int, str], tuple[weakref.ref[torch.nn.Module], int]] = {}

    def note(self, module: torch.nn.Module, name: str, what: object) -> None:
        """Take in that a parameter, buffer or submodule got a name; the first time counts."""
        del what
        if self._number(module, name) is None:
            self._noted[id(module), name] = (weakref.ref(module), self._count)
        self._count += 1

    def ranks(self, module: torch.nn.Module, names: tuple[str, ...]) -> tuple[int, ...]:
        """Return each tensor's place in the order of definition, from 0.

        What was not seen, such as the parameters of a module that was copied, is placed with the
        submodule that it is part of, else after all others; among equals torch's order decides.
        """
        parts = dict(module.named_modules())

        def when(name: str) -> float:
            while name:
                path, _, last = name.rpartition(".")
                part = parts.get(path)
                number = None if part is None else self._number(part, last)
                if number is not None:
                    return number
                name = path
            return math.inf

        moments = [when(name) for name in names]
        order = sorted(range(len(names)), key=lambda index: (moments[index], index))
        places = {index: place for place, index in enumerate(order)}
        return tuple(places[index] for index in range(len(names)))

    def _number(self, module: torch.nn.Module, name: str) -> int | None:
        known, number = self._noted.get((id(module), name), (None, 0))
        return number if known is not None and known() is module else None


@contextlib.contextmanager
def recorded_definitions() -> Iterator[Definitions]:
    """Record what modules register as long as the context lasts."""
    from torch.nn.modules import module as hooks

    definitions = Definitions()
    handles = [
        hooks.register_module_parameter_registration_hook(definitions.note),
        hooks.register_module_buffer_registration_hook(definitions.note),
        hooks.register_module_module_registration_hook(definitions.note),
    ]
    try:
        yield definitions
    finally:
        for handle in handles:
            handle.remove()


def state_of(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Return parameters, buffers, then tensors that are plain attributes, each once, with names."""
    registered = [*module.named_parameters(), *module.named_buffers()]
    found = [(name, tensor.detach()) for name, tensor in registered]
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor):
                found.append((f"{path}.{name}" if path else name, value.detach()))
    return found


class Initial(msgspec.Struct, frozen=True):
    """Digests of a tensor's elements in order, and in the order of its transposed copy.

    "" for what says nothing: a constant, such as a norm's ones, and what is no matrix's.
    """

    plain: str = ""
    turned: str = ""


def initial_values(module: torch.nn.Module) -> dict[str, Initial]:
    """Return the digests of a new module's tensors, by name."""
    return {
        name: Initial(_digest(tensor), _digest(tensor.t()) if _is_matrix(tensor) else "")
        for name, tensor in state_of(module)
    }


def _is_matrix(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 2 and 1 not in tensor.shape  # noqa: PLR2004 (rows and columns)


def _digest(tensor: torch.Tensor) -> str:
    count = tensor.numel()
    known = tensor.layout is torch.strided and tensor.device.type != "meta"
    if not (known and tensor.is_floating_point() and count > 1):
        return ""
    samples = min(count, _SAMPLES)
    flat = torch.arange(samples, device=tensor.device) * (count - 1) // (samples - 1)
    # Not by way of reshape, which would copy a transposed tensor.
    values = tensor[torch.unravel_index(flat, tensor.shape)].float().tolist()
    if min(values) == max(values):
        return ""
    return hashlib.sha256(array("f", values).tobytes()).hexdigest()[:32]

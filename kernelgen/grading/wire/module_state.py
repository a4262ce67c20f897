"""The tensors of a module, the order in which its constructor defines them, how they begin.

torch lists a module's own parameters before those of its submodules. A person who writes them out
as plain parameters goes by the text of `__init__` instead, where the submodules often come first.

Digests of the values that constructors draw tell renamed parameters. Reference and candidate are
constructed under one seed, which is no secret. Where a candidate draws as the reference does, equal
values then mean the same parameter.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import enum
import hashlib
import math
import types
import weakref
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar

import msgspec
import torch

ModuleT = TypeVar("ModuleT", bound=torch.nn.Module)
# Of a large tensor, so many elements at even distances speak for all.
_SAMPLES = 1024
# Attributes that every module has.
_TORCHS_OWN = frozenset(vars(torch.nn.Module()))


class Definitions:
    """Definitions while constructors ran, in order: see `recorded_definitions`."""

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
    with (
        hooks.register_module_parameter_registration_hook(definitions.note),
        hooks.register_module_buffer_registration_hook(definitions.note),
        hooks.register_module_module_registration_hook(definitions.note),
    ):
        yield definitions


def state_of(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Return parameters, buffers, then tensors held elsewhere, each once, with names.

    Complex ones, which cannot be sent, are none of them: they are what a seed gives.
    """
    found = [*_registered(module), *_held_tensors(module).items()]
    return [(name, tensor.detach()) for name, tensor in found if not tensor.is_complex()]


def _registered(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]


def tied_names(module: torch.nn.Module) -> dict[str, str]:
    """Return the other names of parameters that have several, each with the first."""
    first: dict[int, str] = {}
    named = module.named_parameters(remove_duplicate=False)
    names = {name: first.setdefault(id(tensor), name) for name, tensor in named}
    return {name: other for name, other in names.items() if name != other}


def move(module: torch.nn.Module, device: str, only: Collection[str] | None = None) -> None:
    """Move a module, and of the tensors that `to` leaves where they are all, or those of names."""
    # Tensors stay the objects that they are: a list may hold a buffer a second time.
    for path, tensor in [*module.named_buffers(), *_held_tensors(module).items()]:
        if tensor.device.type != device and (only is None or path in only):
            tensor.data = tensor.data.to(device)
    module.to(device)


def changed_copy(module: ModuleT, change: Callable[[torch.Tensor], torch.Tensor]) -> ModuleT:
    """Return a deep copy with every tensor changed, those too that autograd has computed."""
    # By the methods that give names: `buffers` and `modules` are likely names of attributes.
    held = [*dict(module.named_buffers()).values(), *_held_tensors(module).values()]
    memo: dict[int, Any] = {id(tensor): change(tensor.detach()) for tensor in held}
    for _, own in module.named_parameters():
        memo[id(own)] = torch.nn.Parameter(change(own.detach()), own.requires_grad)
    return copy.deepcopy(module, memo)


def held_values(module: torch.nn.Module) -> list[str]:
    """Return what a module holds beside `state_of`'s registered, as texts that equal values share.

    Objects that cannot be looked into are equal only to themselves.
    """
    return [
        f"{path}: {_samples(value) if isinstance(value, torch.Tensor) else repr(value)}"
        for path, value in [*_held(module), *(o for o in _registered(module) if o[1].is_complex())]
        if not isinstance(value, weakref.ref)
    ]


def _held_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {path: value for path, value in _held(module) if isinstance(value, torch.Tensor)}


def _held(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield path and value of what a module and its parts hold beside what is registered.

    Containers and objects are looked into, functions and whatever else can be called are not.
    """
    known = [*_registered(module), *module.named_modules()]
    seen = {id(one) for _, one in known}

    def look(path: str, value: Any) -> Iterator[tuple[str, Any]]:
        if id(value) in seen:
            return
        seen.add(id(value))
        items = _items(value)
        if items is None:
            yield path, value
        for key, item in items or ():
            yield from look(f"{path}.{key}", item)

    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if name not in _TORCHS_OWN:
                yield from look(f"{path}.{name}" if path else name, value)


def _items(value: Any) -> Iterable[tuple[Any, Any]] | None:
    if isinstance(value, list | tuple | collections.deque):
        return enumerate(value)
    if isinstance(value, dict):
        return value.items()
    closed = isinstance(value, torch.Tensor | enum.Enum | types.ModuleType)
    if closed or (callable(value) and not isinstance(value, torch.nn.Module)):
        return None
    return vars(value).items() if hasattr(value, "__dict__") else None


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
    values = _samples(tensor) if tensor.is_floating_point() else []
    if not values or min(values) == max(values):
        return ""
    return hashlib.sha256(array("f", values).tobytes()).hexdigest()[:32]


def _samples(tensor: torch.Tensor) -> list[float]:
    count = tensor.numel()
    if tensor.is_complex():
        return _samples(torch.view_as_real(tensor.detach().resolve_conj()))
    if tensor.layout is not torch.strided or tensor.device.type == "meta" or not count:
        return []
    samples = min(count, _SAMPLES)
    flat = torch.arange(samples, device=tensor.device) * (count - 1) // max(1, samples - 1)
    # Not by way of reshape, which would copy a transposed tensor.
    found: list[float] = tensor.detach()[torch.unravel_index(flat, tensor.shape)].float().tolist()
    return found

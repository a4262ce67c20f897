"""Kernels that are the same but for the names of what they read."""

from collections.abc import Iterator
from typing import Any

import msgspec

from kernelgen.engines.stage import Accumulator, Kernel, Operand, Step

# Fields with words of other kinds than names of operands and steps.
_WORDS = frozenset(
    ("aten", "by", "dtype", "fast", "kind", "operator", "pattern", "type", "value", "way")
)


def with_plain_names(stage: Kernel) -> Kernel:
    """Return a stage whose operands and steps are numbered, and whose kernel has no own name.

    Stages that become the same text so have the same kernel, whatever they call what they read.
    """
    names = {name: f"name_{number}" for number, name in enumerate(names_in(stage))}
    renamed: Kernel = _renamed(stage, names)
    return msgspec.structs.replace(renamed, name="kernel")


def names_in(value: object) -> Iterator[str]:
    """Yield the names of the operands, steps, accumulators and outcomes in a stage."""
    match value:
        case Operand() | Step() | Accumulator():
            yield value.name
        case tuple():
            for item in value:
                yield from names_in(item)
        case dict():  # a segment's outcome
            yield from value
        case msgspec.Struct():
            yield from names_in(msgspec.structs.astuple(value))


def _renamed(value: Any, names: dict[str, str]) -> Any:
    match value:
        case str():
            return names.get(value, value)
        case tuple():
            return tuple(_renamed(item, names) for item in value)
        case Step():  # whose arguments have an operator's names
            arguments = {name: _renamed(given, names) for name, given in value.arguments.items()}
            return msgspec.structs.replace(value, name=names[value.name], arguments=arguments)
        case dict():
            return {names[name]: _renamed(found, names) for name, found in value.items()}
        case msgspec.Struct():
            fields = msgspec.structs.asdict(value).items()
            changed = {key: _renamed(own, names) for key, own in fields if key not in _WORDS}
            return msgspec.structs.replace(value, **changed)
        case _:
            return value

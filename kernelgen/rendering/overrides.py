"""`--set key=value`: which number of the schedule or constant a key stands for, and its value."""

import math
from collections.abc import Mapping
from difflib import get_close_matches

import msgspec
import yaml

from kernelgen.engines.schedule import Schedule
from kernelgen.errors import UserError
from kernelgen.problem.record import ConstantValue


def sort_overrides(
    given: Mapping[str, str], schedule: tuple[str, ...] | None, constants: tuple[str, ...]
) -> dict[str, dict[str, ConstantValue]]:
    """Return overrides by what they replace, `schedule` or `constants`; lists are tuples.

    A key may have `schedule.` or `constants.` in front; values are YAML. Where the
    numbers of the schedule are not known yet, keys that are nothing else are left out.

    Raises:
        UserError: a key is unknown or ambiguous, or a value is not YAML.
    """
    places = {"schedule": schedule or (), "constants": constants}
    sorted_: dict[str, dict[str, ConstantValue]] = {place: {} for place in places}
    for key, text in given.items():
        prefix, dot, rest = key.partition(".")
        name = rest if dot and prefix in places else key
        homes = [p for p, names in places.items() if name in names and (name == key or p == prefix)]
        if not homes:
            if schedule is None:
                continue
            known = (*schedule, *constants)
            hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            raise UserError(f"--set {key}: unknown key{hint}")
        if len(homes) > 1:
            ways = " or ".join(f"{home}.{name}" for home in homes)
            raise UserError(f"--set {key}: ambiguous; write {ways}")
        sorted_[homes[0]][name] = _value(key, text)
    return sorted_


def _value(key: str, text: str) -> ConstantValue:
    try:
        return _frozen(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError) as error:  # a ValueError is a date that does not exist
        raise UserError(f"--set {key}: {text!r} is not a YAML value") from error
    except TypeError as error:
        raise UserError(f"--set {key}: {text!r} is {error}") from error


def _frozen(value: object) -> ConstantValue:
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, bool | int | float | str):
        return value
    raise TypeError("neither a number, text, true or false, nor a list of these")


def override_schedule(schedule: Schedule, values: dict[str, ConstantValue]) -> Schedule:
    """Return a schedule with numbers replaced.

    Raises:
        UserError: a value is not a whole number, or the schedule would be illegal.
    """
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise UserError(f"--set {key}: expected a whole number, not {value!r}")
    try:
        return msgspec.structs.replace(schedule, **values)
    except ValueError as error:
        raise UserError(f"--set: {error}") from error


def override_constants(
    constants: dict[str, ConstantValue], values: dict[str, ConstantValue]
) -> dict[str, ConstantValue]:
    """Return constants with some replaced by values of the same kind.

    What a constant means is not known. One that is positive in the problem is most often a size,
    so it has to stay positive; a problem file may say otherwise.

    Raises:
        UserError: a value is of another kind than the constant.
    """
    for key, value in values.items():
        known = constants[key]
        if not _fits(value, known):
            raise UserError(f"--set {key}: expected {_kind(known)}, not {value!r}")
    return {**constants, **values}


def _fits(value: ConstantValue, known: ConstantValue) -> bool:
    if isinstance(known, float):
        return type(value) in {int, float} and _has_literal(value)
    if type(value) is not type(known):
        return False
    if _is_size(known):
        return _is_size(value)
    if isinstance(value, tuple) and _are_sizes(known):
        return all(_is_size(item) for item in value)
    return _has_literal(value)


def _is_size(value: ConstantValue) -> bool:
    return type(value) is int and value > 0


def _are_sizes(known: ConstantValue) -> bool:
    return isinstance(known, tuple) and known != () and all(_is_size(item) for item in known)


def _has_literal(value: ConstantValue) -> bool:
    """Whether Python can write a constant down: it holds no NaN or infinity."""
    if isinstance(value, tuple):
        return all(_has_literal(item) for item in value)
    return not isinstance(value, float) or math.isfinite(value)


def _kind(value: ConstantValue) -> str:
    if _is_size(value):
        return "a positive whole number"
    if _are_sizes(value):
        return "a list of positive whole numbers such as [3, 4]"
    kinds: dict[type, str] = {
        bool: "true or false",
        int: "a whole number",
        float: "a finite number",
        str: "text",
        tuple: "a list such as [3, 4]",
    }
    return kinds[type(value)]


def did_you_mean(key: str, known: tuple[str, ...]) -> str:
    """Return `; did you mean ...?` with the names closest to a key, or nothing."""
    close = get_close_matches(key, known, n=3)
    return f"; did you mean {' or '.join(close)}?" if close else ""

"""`--set key=value`: which number, parameter or constant a key stands for, and its value."""

import math
from collections.abc import Mapping
from typing import cast

import msgspec
import yaml

from kernelgen.errors import UserError
from kernelgen.problem.record import ConstantValue, TemplateValue
from kernelgen.rendering.parameters import did_you_mean
from kernelgen.rendering.schedule import Schedule


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """Overrides sorted by what they replace; all values are plain YAML, lists as tuples."""

    schedule: dict[str, TemplateValue]
    parameters: dict[str, TemplateValue]
    constants: dict[str, TemplateValue]


def sort_overrides(
    given: Mapping[str, str],
    schedule: tuple[str, ...] | None,
    parameters: tuple[str, ...],
    constants: tuple[str, ...],
) -> Overrides:
    """Return what each override replaces.

    A key may have `schedule.`, `template.` or `constants.` in front; values are YAML. Where the
    numbers of the schedule are not known yet, keys that are nothing else are left out.

    Raises:
        UserError: a key is unknown or ambiguous, or a value is not YAML.
    """
    places = {"schedule": schedule or (), "template": parameters, "constants": constants}
    sorted_: dict[str, dict[str, TemplateValue]] = {place: {} for place in places}
    for key, text in given.items():
        prefix, dot, rest = key.partition(".")
        name = rest if dot and prefix in places else key
        homes = [p for p, names in places.items() if name in names and (name == key or p == prefix)]
        if not homes:
            if schedule is None:
                continue
            known = (*schedule, *parameters, *constants)
            hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            raise UserError(f"--set {key}: unknown key{hint}")
        if len(homes) > 1:
            ways = " or ".join(f"{home}.{name}" for home in homes)
            raise UserError(f"--set {key}: ambiguous; write {ways}")
        sorted_[homes[0]][name] = _value(key, text)
    return Overrides(
        schedule=sorted_["schedule"],
        parameters=sorted_["template"],
        constants=sorted_["constants"],
    )


def _value(key: str, text: str) -> TemplateValue:
    try:
        return _frozen(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError) as error:  # a ValueError is a date that does not exist
        raise UserError(f"--set {key}: {text!r} is not a YAML value") from error
    except TypeError as error:
        raise UserError(f"--set {key}: {text!r} is {error}") from error


def _frozen(value: object) -> TemplateValue:
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, dict):
        return {str(key): _frozen(item) for key, item in value.items()}
    if isinstance(value, bool | int | float | str):
        return value
    raise TypeError("neither a number, text, true or false, a list nor a mapping")


def override_schedule(schedule: Schedule, values: dict[str, TemplateValue]) -> Schedule:
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
    constants: dict[str, ConstantValue], values: dict[str, TemplateValue]
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
    # No mapping is left: a mapping fits no constant.
    return {**constants, **cast("dict[str, ConstantValue]", values)}


def _fits(value: TemplateValue, known: ConstantValue) -> bool:
    if isinstance(known, float):
        return type(value) in {int, float} and _has_literal(value)
    if type(value) is not type(known):
        return False
    if _is_size(known):
        return _is_size(value)
    if isinstance(value, tuple) and _are_sizes(known):
        return all(_is_size(item) for item in value)
    return _has_literal(value)


def _is_size(value: TemplateValue) -> bool:
    return type(value) is int and value > 0


def _are_sizes(known: ConstantValue) -> bool:
    return isinstance(known, tuple) and known != () and all(_is_size(item) for item in known)


def _has_literal(value: TemplateValue) -> bool:
    """Whether Python can write a constant down: it holds no NaN, infinity or mapping."""
    if isinstance(value, tuple):
        return all(_has_literal(item) for item in value)
    return not isinstance(value, dict) and (not isinstance(value, float) or math.isfinite(value))


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

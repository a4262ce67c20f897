"""The templates by name, each with its typed parameters as the YAML gives them."""

from difflib import get_close_matches
from typing import Literal, get_args, get_origin, get_type_hints

import msgspec

from kernelgen.errors import ProblemError, UserError
from kernelgen.problem.record import Problem, TemplateChoice, TemplateValue

SYMBOLS = {"add": "+", "subtract": "-", "multiply": "*"}


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of an epilogue: `value <symbol>= operand`, element by element."""

    symbol: str
    operand: str


class SegmentNorm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`segment_norm`: normalise groups of channels, or single channels, of each sample.

    Attributes:
        normalises: what shares a mean and a variance; groups are nn.GroupNorm, channels are
            nn.InstanceNorm1d, 2d or 3d without running statistics.
        affine: `channel` if a weight and a bias a channel follow, else `none`.
    """

    normalises: Literal["groups", "channels"]
    affine: Literal["channel", "none"]

    def __post_init__(self) -> None:
        if (self.normalises == "groups") != (self.affine == "channel"):
            raise ValueError("groups go with affine: channel, and channels with affine: none")

    @property
    def steps(self) -> tuple[Step, ...]:
        """No steps follow."""
        return ()


class LinearSegmentNorm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`linear_segment_norm`: nn.Linear, then each row normalised, then an epilogue.

    Attributes:
        epilogue: steps in order, each one operation and the forward parameter that it takes.
    """

    epilogue: tuple[dict[str, str], ...]

    def __post_init__(self) -> None:
        for step in self.epilogue:
            if len(step) != 1 or not set(step) <= set(SYMBOLS):
                raise ValueError(
                    f"each step of epilogue is one of {', '.join(SYMBOLS)} with the name of an "
                    f"input, such as `add: y`, not {step}"
                )

    @property
    def steps(self) -> tuple[Step, ...]:
        """The epilogue's steps."""
        return tuple(
            Step(symbol=SYMBOLS[operation], operand=operand)
            for step in self.epilogue
            for operation, operand in step.items()
        )


Parameters = SegmentNorm | LinearSegmentNorm
_TEMPLATES: dict[str, type[SegmentNorm] | type[LinearSegmentNorm]] = {
    "segment_norm": SegmentNorm,
    "linear_segment_norm": LinearSegmentNorm,
}


def template_parameters(problem: Problem, choice: TemplateChoice) -> Parameters:
    """Return the parameters of a problem's template, as its file gives them.

    Raises:
        ProblemError: no such template, or parameters that it does not take.
    """
    kind = _TEMPLATES.get(choice.name)
    if kind is None:
        message = f"no template {choice.name!r}; there are {', '.join(_TEMPLATES)}"
        raise ProblemError(problem.path, None, "template.name", message)
    for key, value in choice.parameters.items():
        if key not in kind.__struct_fields__:
            takes = f"{choice.name} takes {', '.join(kind.__struct_fields__)}"
            hint = did_you_mean(key, kind.__struct_fields__)
            raise ProblemError(problem.path, None, f"template.parameters.{key}", takes + hint)
        if mistake := _mistake(kind, key, value):
            raise ProblemError(problem.path, None, f"template.parameters.{key}", mistake)
    try:
        return msgspec.convert(choice.parameters, kind)
    except msgspec.ValidationError as error:
        raise ProblemError(problem.path, None, "template.parameters", str(error)) from error


def override_parameters(parameters: Parameters, values: dict[str, TemplateValue]) -> Parameters:
    """Return parameters with some replaced.

    Args:
        parameters: of the problem's template.
        values: keys that the template takes to what `--set` gave.

    Raises:
        UserError: a value is none that the parameter takes, or goes ill with the other parameters.
    """
    kind = type(parameters)
    for key, value in values.items():
        if mistake := _mistake(kind, key, value):
            raise UserError(f"--set {key}: {mistake}")
    try:
        return msgspec.convert({**msgspec.structs.asdict(parameters), **values}, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"--set {', '.join(values)}: {error}") from error


def _mistake(kind: type[Parameters], key: str, value: TemplateValue) -> str:
    """Return what was expected of a parameter and what was found, or nothing if it fits."""
    hint = get_type_hints(kind)[key]
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError:
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        expected = " or ".join(choices) or "a list of steps such as [{add: y}, {multiply: y}]"
        return f"expected {expected}, not {value!r}"
    return ""


def did_you_mean(key: str, known: tuple[str, ...]) -> str:
    """Return `; did you mean ...?` with the names closest to a key, or nothing."""
    close = get_close_matches(key, known, n=3)
    return f"; did you mean {' or '.join(close)}?" if close else ""

"""The templates by name, each with its typed parameters as the YAML gives them."""

from difflib import get_close_matches
from typing import Literal

import msgspec

from kernelgen.errors import ProblemError
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


def template_parameters(
    problem: Problem, choice: TemplateChoice, overrides: dict[str, TemplateValue]
) -> Parameters:
    """Return the parameters of a problem's template.

    Raises:
        ProblemError: no such template, or parameters that it does not take.
    """
    kind = _TEMPLATES.get(choice.name)
    if kind is None:
        message = f"no template {choice.name!r}; there are {', '.join(_TEMPLATES)}"
        raise ProblemError(problem.path, None, "template.name", message)
    values = {**choice.parameters, **overrides}
    for key in values:
        if key not in kind.__struct_fields__:
            raise ProblemError(
                problem.path,
                None,
                f"template.parameters.{key}",
                f"{choice.name} takes {', '.join(kind.__struct_fields__)}"
                + did_you_mean(key, kind.__struct_fields__),
            )
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise ProblemError(problem.path, None, "template.parameters", str(error)) from error


def did_you_mean(key: str, known: tuple[str, ...]) -> str:
    """Return `; did you mean ...?` with the names closest to a key, or nothing."""
    close = get_close_matches(key, known, n=3)
    return f"; did you mean {' or '.join(close)}?" if close else ""

"""Which precision a candidate's errors look like: the name that a verdict gives to them.

Tensor cores round their operands; oracle/effective_precision.py measures what that does to a
result. Size alone may lie: a long sum in plain fp32, one element after the other, can be as far off
as one of TF32 operands. So a name below fp32 is given where the error runs along with the one that
the rounding causes, element by element, or where the sizes lie so far apart that fp32 cannot reach
them in any order.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from kernelgen.grading.verdict import EffectivePrecision

CANNOT_BE_TOLD: Final = "cannot be told"
BETTER_THAN_FP32: Final = "better than fp32"
FP32_LIKE: Final = "fp32-like"
BETWEEN: Final = "between fp32 and TF32"
WORSE_THAN_BF16: Final = "worse than bf16"

# Rounding a result to float32 is off by this much, whatever was computed.
_UNIT = 2.0**-25
# Two sizes within this factor may have one cause.
_NEAR = 3.0
# With TF32's errors so many times as large, no order of an fp32 sum reaches them.
_SEPARATE = 500.0
# The least resemblance, and how unlikely it has to be by chance, in standard deviations.
_LEAST_RESEMBLANCE = 0.5
_DEVIATIONS = 4.0
# fp16 has TF32's mantissa: only a plainly better fit, where its range matters, tells them apart.
_PLAINLY = 0.05


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """How large errors are, in units of the root mean square of the exact result.

    Attributes:
        rms, median, largest: of their absolute values.
        resemblance: of rounded operands': correlation, -1 to 1, of the candidate's errors with
            these, both without the part that is a multiple of the exact result.
    """

    rms: float
    median: float
    largest: float
    resemblance: float = 0.0

    def near(self, other: Errors) -> bool:
        """Whether rms and median differ by no more than a factor: a few wrong elements do not."""
        pairs = ((self.rms, other.rms), (self.median, other.median))
        return all(b > 0.0 and 1 / _NEAR <= a / b <= _NEAR for a, b in pairs)


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """All that was measured on one call.

    Attributes:
        elements: of float32 outputs.
        mine, fp32: errors of the candidate and of the pinned fp32 reference.
        rounded: format and the errors of operands rounded to it; TF32 twice. A format whose
            result is not finite is missing.
    """

    elements: int
    mine: Errors
    fp32: Errors
    rounded: tuple[tuple[str, Errors], ...]

    def errors(self, name: str) -> Errors | None:
        """Return the errors of a format's operands, or None where they are not finite."""
        return next((errors for found, errors in self.rounded if found == name), None)

    def resembled(self) -> tuple[str, Errors] | None:
        """Return the format whose errors the candidate's run along with, if there is one."""
        least = max(_LEAST_RESEMBLANCE, _DEVIATIONS / math.sqrt(self.elements))
        alike = [
            (name, errors)
            for name, errors in self.rounded
            if errors.resemblance >= least
            and errors.rms / _NEAR <= self.mine.rms <= errors.rms * _NEAR
        ]

        def fit(one: tuple[str, Errors]) -> float:
            return one[1].resemblance - (_PLAINLY if one[0] == "fp16" else 0.0)

        return max(alike, key=fit, default=None)


def name_of(figures: Figures) -> str:
    """Return the name of the precision that a candidate's errors look like."""
    alike = figures.resembled()
    if alike is not None:
        return f"{alike[0]}-like"
    # In a copy nothing was rounded: there is nothing to be better than.
    if figures.fp32.rms > 0.0 and figures.mine.rms <= figures.fp32.rms / _NEAR:
        return BETTER_THAN_FP32
    a_copy = figures.mine.rms == figures.fp32.rms == 0.0
    tf32, bf16 = figures.errors("TF32"), figures.errors("bf16")
    if a_copy or tf32 is None or bf16 is None:
        return CANNOT_BE_TOLD
    return _by_size(figures.mine, max(figures.fp32.rms, _UNIT), tf32, bf16)


def _by_size(mine: Errors, fp32_rms: float, tf32: Errors, bf16: Errors) -> str:
    if tf32.rms < _NEAR**2 * fp32_rms:
        return CANNOT_BE_TOLD
    if mine.rms <= math.sqrt(fp32_rms * tf32.rms):
        return FP32_LIKE
    if mine.rms > _NEAR * max(tf32.rms, bf16.rms):
        return WORSE_THAN_BF16
    if tf32.rms < _SEPARATE * fp32_rms:
        return CANNOT_BE_TOLD
    if mine.largest < tf32.largest / _NEAR:
        return BETWEEN
    formats = {"TF32-like": tf32, "bf16-like": bf16}
    near = [name for name, errors in formats.items() if mine.near(errors)]
    closest = min(near, key=lambda name: abs(math.log(mine.rms / formats[name].rms)), default="")
    return closest or CANNOT_BE_TOLD


def explanation(effective: EffectivePrecision) -> str:
    """Return the line that explains wrong values by rounded operands, or ""."""
    name = effective.name.removesuffix("-like")
    if name not in ("TF32", "bf16", "fp16") or effective.error is None:
        return ""
    error = f"the error, {effective.error:.1e} of the signal,"
    if effective.resemblance is not None:
        return f"{error} is what {name} operands give"
    return (
        f"{error} is as large as one of {name} operands or results, though it is not theirs alone"
    )


def warning(effective: EffectivePrecision | None) -> str:
    """Return what to warn of where a candidate agrees and computes with less than fp32, or ""."""
    fine = (CANNOT_BE_TOLD, BETTER_THAN_FP32, FP32_LIKE)
    if effective is None or effective.name in fine:
        return ""
    return (
        f"the effective precision is {effective.name}: {in_words(effective)}; "
        "the problem's tolerance allows it"
    )


def in_words(effective: EffectivePrecision) -> str:
    """Return the measured errors, such as `off by 2.9e-04 of the signal, fp32 torch 1.7e-07`."""
    figures = (
        ("off by", effective.error),
        ("fp32 torch", effective.fp32_error),
        ("TF32 operands", effective.tf32_error),
        ("bf16 operands", effective.bf16_error),
    )
    known = [f"{what} {value:.1e}" for what, value in figures if value is not None]
    if not known:
        return "nothing could be measured"
    known[0] += " of the signal" if effective.error is not None else ""
    return f"{', '.join(known)} (case {effective.case})"

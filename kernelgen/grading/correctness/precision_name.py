"""Which precision a candidate's errors look like: the name that a verdict gives to them.

Tensor cores round their operands; oracle/effective_precision.py measures what that does to a
result. Size alone may lie: a long sum in plain fp32, one element after the other, can be as far off
as one of TF32 operands. So a format is named where the error runs along with the one that its
rounding causes, element by element. Less than fp32, of no format, is said where the sizes lie so
far apart that fp32 cannot reach them in any order.
"""

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from kernelgen.grading.verdict import EffectivePrecision

CANNOT_BE_TOLD: Final = "cannot be told"
BETTER_THAN_FP32: Final = "better than fp32"
FP32_LIKE: Final = "fp32-like"
LESS_THAN_FP32: Final = "less than fp32"

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


class Rounded(msgspec.Struct, frozen=True, kw_only=True):
    """The errors of operands rounded to a format, in units of the exact result's rms.

    Attributes:
        rms: their root mean square.
        resemblance: correlation, -1 to 1, of the candidate's errors with these, both without the
            part that is a multiple of the exact result.
    """

    format: str
    rms: float
    resemblance: float


def resembled(rms: float, elements: int, rounded: Sequence[Rounded]) -> Rounded | None:
    """Return the format whose errors the candidate's, of this rms, run along with, if any do."""
    least = max(_LEAST_RESEMBLANCE, _DEVIATIONS / math.sqrt(elements))
    alike = [
        one
        for one in rounded
        if one.resemblance >= least and one.rms / _NEAR <= rms <= one.rms * _NEAR
    ]

    def fit(one: Rounded) -> float:
        return one.resemblance - (_PLAINLY if one.format == "fp16" else 0.0)

    return max(alike, key=fit, default=None)


def name_by_size(rms: float, fp32_rms: float, tf32_rms: float | None) -> str:
    """Return the name of a precision whose errors resemble no format's; None is not finite."""
    # In a copy nothing was rounded: there is nothing to be better than.
    if fp32_rms > 0.0 and rms <= fp32_rms / _NEAR:
        return BETTER_THAN_FP32
    least = max(fp32_rms, _UNIT)
    if tf32_rms is None or rms == fp32_rms == 0.0 or tf32_rms < _NEAR**2 * least:
        return CANNOT_BE_TOLD
    if rms <= math.sqrt(least * tf32_rms):
        return FP32_LIKE
    return LESS_THAN_FP32 if tf32_rms >= _SEPARATE * least else CANNOT_BE_TOLD


def explanation(effective: EffectivePrecision) -> str:
    """Return the line that explains wrong values by rounded operands, or ""."""
    if effective.resemblance is None:
        return ""
    name = effective.name.removesuffix("-like")
    return f"the error, {effective.error:.1e} of the signal, is what {name} operands give"


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

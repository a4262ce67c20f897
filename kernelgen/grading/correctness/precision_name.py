"""Which precision a candidate's results look like: the name that a verdict gives to its errors.

Tensor cores round their operands. What that does to a problem's result was measured
(effective_precision.py); here a candidate's error is held beside it. Size alone may lie: the sum of
many elements taken in plain fp32, one after the other, can be as far off as one of TF32 operands.
So a name below fp32 is given where the error runs along with the one that the rounding causes,
element by element, or where the sizes lie so far apart that fp32 cannot reach them in any order.
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
# Below: the reference's own error times this is still better than fp32.
_BETTER = 1 / 3
# A problem where TF32 operands cost less than this, in errors of fp32, tells nothing by size.
_TELLING = 8.0
# With as much, no order of an fp32 sum reaches the errors of TF32 operands.
_SEPARATE = 500.0
# How near two sizes have to be for one to explain the other.
_NEAR = 4.0
_NEAR_BY_SIZE = 3.0
# The least resemblance, and how unlikely it has to be by chance, in standard deviations.
_LEAST_RESEMBLANCE = 0.5
_DEVIATIONS = 4.0
# fp16 has TF32's mantissa: only a plainly better fit, where its range matters, tells them apart.
_PLAINLY = 0.05


class ErrorSize(msgspec.Struct, frozen=True, kw_only=True):
    """How large errors are, in units of the root mean square of the exact result.

    Attributes:
        rms, median, largest: of their absolute values.
    """

    rms: float
    median: float
    largest: float


class RoundedOperands(msgspec.Struct, frozen=True, kw_only=True):
    """What rounding inputs and parameters to a format does to the result, computed in float64.

    Attributes:
        format: `TF32`, `bf16` or `fp16`.
        size: of the errors that it causes.
        beside: rms of those errors, and of the candidate's, without the part that is a multiple of
            the exact result.
        resemblance: correlation, -1 to 1, of the candidate's errors with them, both without that
            part: a wrong constant factor resembles nothing.
    """

    format: str
    size: ErrorSize
    beside: tuple[float, float]
    resemblance: float


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """All that was measured on one call.

    Attributes:
        elements: of float32 outputs.
        mine, fp32: errors of the candidate and of the pinned fp32 reference.
        rounded: TF32 first.
    """

    elements: int
    mine: ErrorSize
    fp32: ErrorSize
    rounded: tuple[RoundedOperands, ...]

    def size(self, name: str) -> ErrorSize | None:
        """Return the errors of a format's operands, or None where they are not finite."""
        return next((one.size for one in self.rounded if one.format == name), None)

    def resembled(self) -> RoundedOperands | None:
        """Return the format whose errors the candidate's run along with, if there is one."""
        best: RoundedOperands | None = None
        for one in self.rounded:
            if self._resembles(one) and (
                best is None or one.resemblance > best.resemblance + _PLAINLY
            ):
                best = one
        return best

    def _resembles(self, one: RoundedOperands) -> bool:
        caused, mine = one.beside
        if one.resemblance < _LEAST_RESEMBLANCE or self.elements <= 3:  # noqa: PLR2004 (Fisher's)
            return False
        # Fisher's transformation: of a few elements, errors may be alike by chance.
        certain = math.atanh(min(one.resemblance, 1 - 1e-12)) * math.sqrt(self.elements - 3)
        return certain >= _DEVIATIONS and caused / _NEAR <= mine <= caused * _NEAR


def name_of(figures: Figures) -> str:
    """Return the name of the precision that a candidate's errors look like."""
    mine, measured = figures.mine.rms, figures.fp32.rms
    alike = figures.resembled()
    if alike is not None:
        return f"{alike.format}-like"
    # In a copy nothing was rounded: there is nothing to be better than.
    return BETTER_THAN_FP32 if measured > 0.0 and mine <= _BETTER * measured else _by_size(figures)


def _by_size(figures: Figures) -> str:
    mine, fp32 = figures.mine.rms, max(figures.fp32.rms, _UNIT)
    tf32, bf16 = figures.size("TF32"), figures.size("bf16")
    a_copy = mine == 0.0 and figures.fp32.rms == 0.0
    if a_copy or tf32 is None or bf16 is None or tf32.rms < _TELLING * fp32:
        return CANNOT_BE_TOLD
    if mine <= math.sqrt(fp32 * tf32.rms):
        return FP32_LIKE
    if mine > _NEAR * max(tf32.rms, bf16.rms):
        return WORSE_THAN_BF16
    return _by_shape(figures.mine, tf32, bf16) if tf32.rms >= _SEPARATE * fp32 else CANNOT_BE_TOLD


def _by_shape(mine: ErrorSize, tf32: ErrorSize, bf16: ErrorSize) -> str:
    if mine.largest < tf32.largest / _NEAR_BY_SIZE:
        return BETWEEN
    near = [
        (abs(math.log(mine.rms / size.rms)), name)
        for name, size in (("TF32", tf32), ("bf16", bf16))
        if _of_one_shape(mine, size)
    ]
    return f"{min(near)[1]}-like" if near else CANNOT_BE_TOLD


def _of_one_shape(mine: ErrorSize, size: ErrorSize) -> bool:
    """Whether most elements are off by as much: one that is plainly wrong is no matter of rounding.

    The largest of a few errors says little, so it may be off by more.
    """
    pairs = (
        (mine.rms, size.rms, 1.0),
        (mine.median, size.median, 1.0),
        (mine.largest, size.largest, _NEAR_BY_SIZE),
    )
    return all(
        other > 0.0 and 1 / (_NEAR_BY_SIZE * room) <= own / other <= _NEAR_BY_SIZE * room
        for own, other, room in pairs
    )


def explanation(effective: EffectivePrecision) -> str:
    """Return the line that explains wrong values by rounded operands, or ""."""
    formats = {f"{name}-like": name for name in ("TF32", "bf16", "fp16")}
    name = formats.get(effective.name)
    if name is None or effective.error is None:
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

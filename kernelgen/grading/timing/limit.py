"""The least time that a problem takes on a device, and how near a candidate comes to it.

A roofline of two roofs (Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009): the bytes that
have to move over the bandwidth of a copy, and the operations of the matrix products over the rate
of the cheapest arithmetic that is accurate enough. `docs/limits.md` says what that means.
"""

from typing import TYPE_CHECKING

import msgspec

from kernelgen.grading.timing.times import Limit
from kernelgen.hardware.calibration import Calibration, MatrixFormat
from kernelgen.problem.record import Device, Problem

if TYPE_CHECKING:
    from kernelgen.grading.wire.messages import CaseOpened
    from kernelgen.planning.cost import PlanCost

# Above the fastest rate that was ever measured, clocks of another day included.
FASTER_THAN_MEASURED = 1.2
# The largest error of a long sum of products, in units of its root mean square, is about so many
# times the rounding error of a factor (5.1e-4 for TF32 over 8192 products: 3.1 times 2^-11).
_ERRORS = 3.0
_CONFIRMED = "the candidate takes less time than {}, and the supervisor's clock confirms it: "


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Least work of one call of a problem's main case.

    Attributes:
        minimal_bytes: to be moved through the device's memory.
        flops: operations of matrix products, a multiply and an add counted as two.
        operand_bits: significant bits of the narrowest float among inputs and parameters: 24 for
            fp32; factors that have no more need no more.
        tolerance: of the problem.
        bytes_declared, flops_declared: whether the problem says so, or it was counted.
    """

    minimal_bytes: int
    flops: int = 0
    operand_bits: int = 24
    tolerance: float = 1e-5
    bytes_declared: bool = False
    flops_declared: bool = False


class Arithmetic(msgspec.Struct, frozen=True, kw_only=True):
    """A way to multiply fp32 matrices.

    Attributes:
        name: for a reader.
        format: of the products that it is made of.
        products: how many of them one product takes.
        bits: significant bits of a factor that it keeps.
    """

    name: str
    format: MatrixFormat
    products: int
    bits: int


# A factor as a sum of two halves, and three products of halves, the smallest left out: Ootomo and
# Yokota, Recovering single precision accuracy from Tensor Cores while surpassing the FP32
# theoretical peak performance, IJHPCA 36(4), 2022. Two fp16 keep 22 bits, two bf16 16.
_ARITHMETICS = (
    Arithmetic(name="fp32", format="fp32", products=1, bits=24),
    Arithmetic(name="TF32", format="tf32", products=1, bits=11),
    Arithmetic(name="fp16", format="fp16", products=1, bits=11),
    Arithmetic(name="bf16", format="bf16", products=1, bits=8),
    Arithmetic(name="three fp16 products", format="fp16", products=3, bits=22),
    Arithmetic(name="three bf16 products", format="bf16", products=3, bits=16),
)


def accurate_enough(work: Work) -> tuple[Arithmetic, ...]:
    """Return the arithmetics that a problem's tolerance admits, fp32 always among them.

    One that keeps b bits of a factor errs by about 3 * 2^-b; that may be the tolerance. Where the
    factors have no more bits than it keeps, it loses none.
    """
    return tuple(
        way
        for way in _ARITHMETICS
        if way.name == "fp32"
        or _ERRORS * 2.0**-way.bits <= work.tolerance
        or (way.products == 1 and way.bits >= work.operand_bits)
    )


def formats_for(work: Work) -> tuple[MatrixFormat, ...]:
    """Return the formats whose rates a problem's limit may rest on; none without operations."""
    if work.flops == 0:
        return ()
    return tuple(dict.fromkeys(way.format for way in accurate_enough(work)))


def limit_of(candidate_ms: float, work: Work, calibration: Calibration) -> Limit | None:
    """Return the limit, and how near a time comes to it; None if nothing is known to take time."""
    moving_ms = work.minimal_bytes / (calibration.copy_gbps.median * 1e6)
    found = _fastest(work, calibration)
    computing_ms = found[1] if found else 0.0
    limit_ms = max(moving_ms, computing_ms)
    if limit_ms <= 0.0:
        return None
    name, flops_per_s = (found[0].name, work.flops / (computing_ms * 1e-3)) if found else ("", None)
    return Limit(
        limit_ms=limit_ms,
        fraction=limit_ms / candidate_ms,
        bound="arithmetic" if computing_ms > moving_ms else "memory",
        source="declared" if work.bytes_declared or work.flops_declared else "counted",
        minimal_bytes=work.minimal_bytes,
        minimal_flops=work.flops,
        copy_gbps=calibration.copy_gbps.median,
        flops_per_s=flops_per_s,
        rate=name,
    )


def _fastest(work: Work, calibration: Calibration) -> tuple[Arithmetic, float] | None:
    """Return the arithmetic that takes least, and its ms; None without operations or rates."""
    if work.flops == 0:
        return None
    measured = [
        (way, work.flops * way.products / rate.median * 1e3)
        for way in accurate_enough(work)
        if (rate := calibration.flops_per_s(way.format)) is not None
    ]
    return min(measured, key=lambda one: one[1], default=None)


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """The least time of any call, and the message for a claim below it.

    Attributes:
        floor_ms: the time.
        reason: completes "by its clock a call takes ...;".
        warning: for a time below it that the supervisor's clock confirms.
    """

    floor_ms: float
    reason: str
    warning: str


def floor_of(moving_ms: float, work: Work, calibration: Calibration | None) -> Floor:
    """Return the floor: the time for the bytes, or for declared operations if that is longer.

    Counted operations are no floor: they say how the reference computes, and there may be a way
    with fewer. Nor are declared ones on a CPU, whose rate depends on what else runs.
    """
    computing_ms = _computing_ms(work, calibration)
    if computing_ms > moving_ms:
        return Floor(
            floor_ms=computing_ms,
            reason=f"the {work.flops} operations that the problem declares take "
            f"{computing_ms:.3g} ms on this device at its fastest rate",
            warning=_CONFIRMED.format("the operations that the problem declares take")
            + "it declares more than is needed",
        )
    told = f"{work.minimal_bytes} bytes"
    what, why = "all inputs and outputs", "the problem does not need all of its inputs"
    if work.bytes_declared:
        told += " that the problem declares"
        what, why = "the bytes that the problem declares", "it declares more than is needed"
    return Floor(
        floor_ms=moving_ms,
        reason=f"moving its {told} takes {moving_ms:.3g} ms on this device",
        warning=_CONFIRMED.format(f"moving {what} would") + why,
    )


def _computing_ms(work: Work, calibration: Calibration | None) -> float:
    """Return the time that declared operations take at the fastest rate of any format."""
    if calibration is None or calibration.device.device != "cuda":
        return 0.0
    fastest = max((rate.flops_per_s.best for rate in calibration.matrix), default=0.0)
    if not work.flops_declared or fastest == 0.0:
        return 0.0
    return work.flops / (FASTER_THAN_MEASURED * fastest) * 1e3


def work_of(counted: "CaseOpened | PlanCost", problem: Problem, device: Device) -> Work:
    """Return what a main case has to do: what the problem declares, else what was counted."""
    declared = problem.minimal_on(device)
    return Work(
        minimal_bytes=counted.minimal_bytes if declared.bytes is None else declared.bytes,
        flops=counted.flops if declared.flops is None else declared.flops,
        operand_bits=counted.operand_bits,
        tolerance=problem.tolerance,
        bytes_declared=declared.bytes is not None,
        flops_declared=declared.flops is not None,
    )

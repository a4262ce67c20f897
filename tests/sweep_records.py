"""Sweeps made by hand, for the tests of tables, records and plots."""

from pathlib import Path

from kernelgen.grading.timing.times import Speedup
from kernelgen.grading.verdict import Owner, Status
from kernelgen.report.json_report import encode
from kernelgen.sweep.record import PointTime, Sweep, SweepPoint

SWEEPS = Path(__file__).parent.parent / "benchmarks" / "sweeps"
KIB, MIB = 1 << 10, 1 << 20


def timed(segment: int, tensor: int, fraction: float | None = 0.5, vs: float = 1.2) -> SweepPoint:
    """Return a point that passed, at this share of the limit, so many times as fast as eager."""
    time = PointTime(
        solution_ms=2.0,
        baselines_ms={"eager": 2.0 * vs, "compile": 2.02},
        speedup={
            "eager": Speedup(median=vs, ci95=(vs - 0.01, vs + 0.01)),
            "compile": Speedup(median=1.01, ci95=(0.99, 1.02)),
        },
        minimal_bytes=2 * tensor,
        gbps=2 * tensor / 2e6,
        limit_ms=None if fraction is None else 2.0 * fraction,
        fraction=fraction,
        bound=None if fraction is None else "memory",
    )
    return SweepPoint(
        labels={"segment": segment, "tensor": tensor},
        constants={"batch_size": tensor // segment, "features": segment // 4},
        solution_sha256="ab" * 32,
        status=Status.PASSED,
        owner=Owner.CANDIDATE,
        time=time,
    )


def failed(segment: int, tensor: int, status: Status, owner: Owner, reason: str) -> SweepPoint:
    """Return a point that did not pass."""
    return SweepPoint(
        labels={"segment": segment, "tensor": tensor},
        constants={"batch_size": tensor // segment, "features": segment // 4},
        solution_sha256="cd" * 32,
        status=status,
        owner=owner,
        reason=reason,
    )


def sweep_of(*points: SweepPoint, planned: int | None = None) -> Sweep:
    """Return a sweep of these points."""
    return Sweep(
        schema=1,
        environment={"torch": "2.11.0"},
        problem="softmax",
        problem_sha256="ef" * 32,
        backend="cuda",
        series="segment",
        x="tensor",
        planned=len(points) if planned is None else planned,
        points=points,
        device="NVIDIA H200",
        method="CUDA events, new inputs for every call",
    )


MIXED = sweep_of(
    timed(4 * KIB, MIB, 0.5),
    timed(4 * KIB, 16 * MIB, 0.88),
    failed(4 * KIB, 256 * MIB, Status.WRONG_VALUES, Owner.CANDIDATE, "3 of 8\nelements\x1b[2J"),
    timed(4 * KIB, 2048 * MIB, 0.93, vs=0.8),
    timed(MIB, MIB, None),
    timed(MIB, 16 * MIB, 1.25),
)


def recorded(folder: Path, found: Sweep = MIXED) -> str:
    """Write a sweep's record and return its path."""
    file = folder / "run.json"
    file.write_text(encode(found), encoding="utf-8")
    return str(file)

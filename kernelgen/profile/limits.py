"""What limits a kernel, by one rule, and the table of it, made from records.

docs/profile.md states the rule: the unit that is busiest. It takes no more than what ncu counted:
two kernels of which neither is at a limit differ by what their warps wait for, which is in the
profile. In the table, times and shares of the limit are those of `kernelgen grade`, counters those
of `kernelgen profile`: two records, each of the text that the solution had then.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelgen.grading.kernels.names import parse_kernel_name
from kernelgen.grading.timing.times import Conditions
from kernelgen.grading.verdict import Run, Verdict
from kernelgen.hardware.conditions import POWER_CAP
from kernelgen.profile.metrics import SHARES
from kernelgen.profile.record import Counters, KernelProfile, Profile, read_profile
from kernelgen.report.columns import decimal
from kernelgen.report.markdown import CHANGED, escaped, has_changed, row, rule
from kernelgen.report.readme import read_runs

# A copy, which does nothing else, reaches 89 % of the peak on an H200 (4.26 of 4.8 TB/s): from a
# little below that on, DRAM is the limit.
_NEAR_PEAK_PCT = 85.0
# Where a copy's own rate was measured, this much of it is its limit: kernels that also compute
# rarely come closer.
_NEAR_COPY = 0.92
# NVIDIA's sections take a unit above this for a limit, and one below the other for idle.
_BUSY_PCT = 80.0
_IDLE_PCT = 60.0
# A part that is this much of its unit's share is what makes the unit busy: shares are of cycles in
# which an SM had work, or of all cycles, and come from different runs of the kernel.
_MOST_OF_IT = 0.9
# NVML tells clocks in steps of 15 MHz, and a mean of a short kernel is uncertain by a few percent.
_LOWERED = 0.9

DRAM = "DRAM"
_L2 = "L2"
_TENSOR_CORES = "tensor cores"
_PIPES = (_TENSOR_CORES, "FMA", "ALU", "XU", "issue")

# Kernels that take less are told together.
_LEAST_SHARE = 0.05

_NOTHING = "No profile on this GPU has been recorded yet."
_UNKNOWN = "-"
_UNKNOWN_NOTE = (
    f"`{_UNKNOWN}` Not counted: by an ncu that does not know the counter, before it was asked for, "
    "or because `kernelgen grade` has no time of it."
)
_CHANGED_NOTE = (
    f"{CHANGED} Recorded with an earlier state of the solution, not the one that is here now: "
    "behind its name the counters, behind the time what `kernelgen grade` measured."
)


_OF_SOLUTION = ("solution", "time ms", "of its limit", "bound")
_OF_KERNEL = ("kernel", "us", "of the time %")
_TEXTS = {"solution", "bound", "kernel", "limited by"}


def limited_by(kernel: KernelProfile, profile: Profile) -> str:
    """Return what limits a kernel of a profile, such as `DRAM` or `tensor cores, power`."""
    counters = kernel.counters
    if profile.copy_gbps is not None and kernel.dram_gbps is not None:
        at_limit = kernel.dram_gbps >= _NEAR_COPY * profile.copy_gbps
    else:
        at_limit = (counters.dram_pct or 0.0) >= _NEAR_PEAK_PCT
    if at_limit:
        return DRAM
    if _at_tensor_limit(counters):
        return _with_clock(_TENSOR_CORES, counters, profile.conditions)
    if counters.blocks is not None and counters.blocks < profile.facts.sm_count:
        return "too few blocks"
    shares = (
        (counters.dram_pct, DRAM),
        (counters.l2_pct, _L2),
        (counters.l1_pct, _part_of_l1(counters)),
        (counters.sm_pct, _pipe(counters)),
    )
    known = [(share, unit) for share, unit in shares if share is not None]
    if not known:
        return "not counted"
    share, unit = max(known)
    if share < _IDLE_PCT:
        return "latency"
    # What is not in the SMs has a clock of its own.
    return unit if unit in (DRAM, _L2) else _with_clock(unit, counters, profile.conditions)


def _at_tensor_limit(counters: Counters) -> bool:
    """Whether the tensor cores are the busiest unit, and busy.

    Their share is of the cycles in which an SM had work, and so is at least their part in the share
    of the SMs, which is of all cycles: where the SMs' share is larger, another pipe is busy, and
    where it is small, most SMs had nothing to do.
    """
    tensor, sm = counters.tensor_pct, counters.sm_pct
    if tensor is None or tensor < _BUSY_PCT or (sm is not None and sm < _BUSY_PCT):
        return False
    return tensor >= max(sm or 0.0, counters.l2_pct or 0.0, counters.l1_pct or 0.0)


def _part_of_l1(counters: Counters) -> str:
    if counters.shared_pct is None:
        return "L1 or shared memory"
    enough = _MOST_OF_IT * (counters.l1_pct or 0)
    return "shared memory" if counters.shared_pct >= enough else "L1"


def _pipe(counters: Counters) -> str:
    """Return which pipe it is that makes the SMs busy, or that it is none of those counted."""
    shares = [(getattr(counters, SHARES[pipe]), pipe) for pipe in _PIPES]
    known = [(share, pipe) for share, pipe in shares if share is not None]
    share, pipe = max(known, default=(0.0, ""))
    return pipe if share >= _MOST_OF_IT * (counters.sm_pct or 0) and pipe else "another pipe"


def _with_clock(unit: str, counters: Counters, conditions: Conditions | None) -> str:
    """Add why the clock was lower than between the kernels, if it was."""
    if conditions is None or conditions.sm_mhz is None or counters.sm_mhz is None:
        return unit
    if counters.sm_mhz >= _LOWERED * conditions.sm_mhz[1]:
        return unit
    others = [reason for reason in conditions.throttled if reason != POWER_CAP]
    power = "power" if POWER_CAP in conditions.throttled else "a lower clock"
    return f"{unit}, {' and '.join(others) or power}"


def limits_table(folder: Path, root: Path) -> str:
    """Return the main kernels of every profile as a Markdown table, or a sentence without any.

    Args:
        folder: has the profiles `profile/*.json`, and the runs `*.json`.
        root: where solutions' paths start.

    Raises:
        UserError: a file is not what has to be there.
    """
    runs = read_runs(folder)
    profiles = sorted(
        map(read_profile, sorted((folder / "profile").glob("*.json"))),
        key=lambda one: (one.facts.device, one.problem, one.solution, one.case),
    )
    if not profiles:
        return _NOTHING
    shares = (f"{name} %" if field.endswith("_pct") else name for name, field in SHARES.items())
    headings = (*_OF_SOLUTION, *_OF_KERNEL, *shares, "limited by")
    rows = [cells for one in profiles for cells in _rows(one, runs, root)]
    devices = ", ".join(dict.fromkeys(escaped(one.facts.device) for one in profiles))
    versions = ", ".join(dict.fromkeys(escaped(one.ncu) for one in profiles))
    lines = [
        f"{devices}, ncu {versions}; kernels of at least {_LEAST_SHARE:.0%} of a call's time:",
        "",
        row(headings),
        rule(numbers=(heading not in _TEXTS for heading in headings)),
        *map(row, rows),
    ]
    cells = [cell for found in rows for cell in found]
    if _UNKNOWN in cells:
        lines += ["", _UNKNOWN_NOTE]
    if any(cell.endswith(CHANGED) for cell in cells):
        lines += ["", _CHANGED_NOTE]
    return "\n".join(lines)


def _rows(profile: Profile, runs: Sequence[Run], root: Path) -> Iterator[list[str]]:
    main = [kernel for kernel in profile.kernels if kernel.share >= _LEAST_SHARE]
    others = profile.kernels[len(main) :]
    of_solution = _of_solution(profile, runs, root)
    for kernel in main:
        shares = (_number(getattr(kernel.counters, name)) for name in SHARES.values())
        name = escaped(parse_kernel_name(kernel.kernel).shown)
        limit = escaped(limited_by(kernel, profile))
        yield [*of_solution, name, *_time(kernel.counters.time_us, kernel.share), *shares, limit]
        of_solution = [""] * len(_OF_SOLUTION)
    if others:
        time_us = sum(kernel.counters.time_us for kernel in others)
        rest = _time(time_us, sum(kernel.share for kernel in others))
        yield [*of_solution, f"{len(others)} more", *rest, *[""] * len(SHARES), ""]


def _of_solution(profile: Profile, runs: Sequence[Run], root: Path) -> list[str]:
    file = root / profile.solution
    case = "" if profile.case == "main" else f" (case {profile.case})"
    verdict = None if case else _graded(profile, runs)
    recorded = "" if verdict is None else verdict.source
    mark = f" {CHANGED}" if has_changed(file, profile.solution_sha256, recorded) else ""
    name = escaped(f"{profile.solution}{case}") + mark
    if verdict is None or verdict.timing is None:
        return [name, _UNKNOWN, _UNKNOWN, _UNKNOWN]
    mark = f" {CHANGED}" if has_changed(file, verdict.solution_sha256, recorded) else ""
    time = decimal(verdict.timing.candidate_ms) + mark
    limit = verdict.timing.limit
    known = (_UNKNOWN, _UNKNOWN) if limit is None else (f"{limit.fraction:.0%}", limit.bound)
    return [name, time, *known]


def _graded(profile: Profile, runs: Sequence[Run]) -> Verdict | None:
    """Return the verdict with the profiled solution's time: of the same text, or else the last."""
    found = [
        verdict
        for run in runs
        for verdict in run.verdicts
        if verdict.timing is not None
        and (verdict.solution, verdict.device) == (profile.solution, profile.facts.device)
    ]
    same = [verdict for verdict in found if verdict.solution_sha256 == profile.solution_sha256]
    return next(iter([*reversed(same), *reversed(found)]), None)


def _time(time_us: float, share: float) -> tuple[str, str]:
    return decimal(time_us), f"{100 * share:.0f}"


def _number(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.0f}"

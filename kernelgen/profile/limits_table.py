"""The table of what limits each profiled solution, made from records so that nobody types a number.

Times and shares of the limit are those of `kernelgen grade`, counters those of `kernelgen profile`:
two records, each of the text that the solution had then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from kernelgen.grading.kernels.names import parse_kernel_name
from kernelgen.grading.verdict import Run, Verdict
from kernelgen.profile.limiting import limited_by
from kernelgen.profile.reading import read_profiles
from kernelgen.profile.record import KernelProfile, Profile
from kernelgen.profile.scene import Scene
from kernelgen.report.columns import decimal
from kernelgen.report.markdown import CHANGED, escaped, has_changed, row, rule
from kernelgen.report.reading import read_run

# Kernels that take less are told together.
LEAST_SHARE = 0.05

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


class Records(msgspec.Struct, frozen=True):
    """What is recorded of a GPU."""

    profiles: tuple[Profile, ...]
    runs: tuple[Run, ...]


class _Column(msgspec.Struct, frozen=True):
    """A number of a kernel: what stands above it, and where it is; None if it was not counted."""

    heading: str
    value: Callable[[KernelProfile], float | None]


_OF_SOLUTION = ("solution", "time ms", "of its limit", "bound")
_OF_KERNEL = ("kernel", "us", "of the time %")
_SHARES = (
    _Column("DRAM %", lambda kernel: kernel.counters.dram_pct),
    _Column("L2 %", lambda kernel: kernel.counters.l2_pct),
    _Column("L1 %", lambda kernel: kernel.counters.l1_pct),
    _Column("shared memory %", lambda kernel: kernel.counters.shared_pct),
    _Column("tensor cores %", lambda kernel: kernel.counters.tensor_pct),
    _Column("FMA %", lambda kernel: kernel.counters.fma_pct),
    _Column("ALU %", lambda kernel: kernel.counters.alu_pct),
    _Column("XU %", lambda kernel: kernel.counters.xu_pct),
    _Column("issue %", lambda kernel: kernel.counters.issue_pct),
    _Column("SM MHz", lambda kernel: kernel.counters.sm_mhz),
)
_TEXTS = {"solution", "bound", "kernel", "limited by"}


def read_records(folder: Path) -> Records:
    """Read `FOLDER/profile/*.json` and the runs `FOLDER/*.json`.

    Raises:
        UserError: a file is not what has to be there.
    """
    runs = tuple(read_run(path).run for path in sorted(folder.glob("*.json")))
    return Records(read_profiles(folder / "profile"), runs)


def limits_table(records: Records, root: Path) -> str:
    """Return the main kernels of every profile as a Markdown table, or a sentence without any.

    Args:
        records: of one GPU, as a rule.
        root: the folder that the solutions' paths start at.
    """
    profiles = sorted(
        records.profiles, key=lambda one: (one.facts.device, one.problem, one.solution, one.case)
    )
    if not profiles:
        return _NOTHING
    headings = (*_OF_SOLUTION, *_OF_KERNEL, *(one.heading for one in _SHARES), "limited by")
    rows = [cells for one in profiles for cells in _rows(one, records.runs, root)]
    lines = [_measured_with(profiles), "", row(headings)]
    lines.append(rule(numbers=(heading not in _TEXTS for heading in headings)))
    lines += map(row, rows)
    cells = [cell for found in rows for cell in found]
    if _UNKNOWN in cells:
        lines += ["", _UNKNOWN_NOTE]
    if any(cell.endswith(CHANGED) for cell in cells):
        lines += ["", _CHANGED_NOTE]
    return "\n".join(lines)


def _measured_with(profiles: Sequence[Profile]) -> str:
    devices = ", ".join(dict.fromkeys(escaped(one.facts.device) for one in profiles))
    versions = ", ".join(dict.fromkeys(escaped(one.ncu) for one in profiles))
    return f"{devices}, ncu {versions}; kernels of at least {LEAST_SHARE:.0%} of a call's time:"


def _rows(profile: Profile, runs: Sequence[Run], root: Path) -> Iterator[list[str]]:
    main = [kernel for kernel in profile.kernels if kernel.share >= LEAST_SHARE]
    others = profile.kernels[len(main) :]
    of_solution = _of_solution(profile, runs, root)
    for kernel in main:
        scene = Scene(kernel=kernel, facts=profile.facts, copy_gbps=profile.copy_gbps)
        shares = (_number(column.value(kernel)) for column in _SHARES)
        name = escaped(parse_kernel_name(kernel.kernel).shown)
        limit = escaped(limited_by(scene, profile.conditions))
        yield [*of_solution, name, *_time(kernel.counters.time_us, kernel.share), *shares, limit]
        of_solution = [""] * len(_OF_SOLUTION)
    if others:
        time_us = sum(kernel.counters.time_us for kernel in others)
        rest = _time(time_us, sum(kernel.share for kernel in others))
        yield [*of_solution, f"{len(others)} more", *rest, *[""] * len(_SHARES), ""]


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
    if limit is None:
        return [name, time, _UNKNOWN, _UNKNOWN]
    return [name, time, f"{limit.fraction:.0%}", limit.bound]


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

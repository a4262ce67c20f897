"""The table of what limits each profiled solution, made from records so that nobody types a number.

Times and shares of the limit are those of `kernelgen grade`, counters those of `kernelgen profile`:
two records, each of the text that the solution had then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from kernelgen.grading.kernels.names import parse_kernel_name
from kernelgen.grading.verdict import Run, Verdict
from kernelgen.profile.limits import limited_by
from kernelgen.profile.metrics import SHARES
from kernelgen.profile.record import Profile, read_profile
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


_OF_SOLUTION = ("solution", "time ms", "of its limit", "bound")
_OF_KERNEL = ("kernel", "us", "of the time %")
_TEXTS = {"solution", "bound", "kernel", "limited by"}


def read_records(folder: Path) -> Records:
    """Read `FOLDER/profile/*.json` and the runs `FOLDER/*.json`.

    Raises:
        UserError: a file is not what has to be there.
    """
    runs = tuple(read_run(path).run for path in sorted(folder.glob("*.json")))
    profiles = tuple(read_profile(path) for path in sorted((folder / "profile").glob("*.json")))
    return Records(profiles, runs)


def limits_table(records: Records, root: Path) -> str:
    """Return the main kernels of every profile as a Markdown table, or a sentence without any."""
    profiles = sorted(
        records.profiles, key=lambda one: (one.facts.device, one.problem, one.solution, one.case)
    )
    if not profiles:
        return _NOTHING
    shares = (f"{name} %" if field.endswith("_pct") else name for name, field in SHARES.items())
    headings = (*_OF_SOLUTION, *_OF_KERNEL, *shares, "limited by")
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

"""What a search found, written into the problem's table of schedules."""

import os
from collections.abc import Mapping
from pathlib import Path

from kernelgen.destination import check_destination, write_whole
from kernelgen.errors import UserError
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Problem, digest
from kernelgen.problem.schedule_text import with_schedule
from kernelgen.problem.text import read_raw


def check_recordable(path: Path) -> None:
    """Make sure, before any work is done, that a problem file can be changed.

    Raises:
        UserError: it cannot.
    """
    check_destination(path)
    # A file can be replaced in a folder that may be written to, and yet not be meant to be.
    if not os.access(path, os.W_OK):
        raise UserError(f"{path}: may not be written; --dry-run tunes and records nothing")


def recorded_text(problem: Problem, arch: str, entry: Mapping[str, int]) -> bytes:
    """Return the problem's file with another entry in its table.

    Args:
        problem: as it was read before the search.
        arch: whose entry it is.
        entry: the numbers that differ from the default schedule's; without any there is no entry.

    Raises:
        UserError: the file was changed meanwhile, or is written in a way that is not edited.
    """
    raw = read_raw(problem.path)
    if digest(raw) != problem.sha256:
        message = "was changed during the search; nothing is recorded, run it again"
        raise UserError(f"{problem.path}: {message}")
    return with_schedule(problem.path, raw, arch, entry)


def record(problem: Problem, arch: str, entry: Mapping[str, int]) -> Problem:
    """Write an entry into the problem's table and return the problem as it is now.

    Raises:
        UserError: as `recorded_text`, or the file cannot be written.
        OSError: the disk is full.
    """
    write_whole(recorded_text(problem, arch, entry), problem.path)
    return load_problem(problem.path)

"""The schedules of a problem: for each architecture, numbers of the schedule.

A person writes them under the key `schedules` of the problem's file, and `kernelgen tune` into
`NAME.schedules.json` beside it, whose entry for an architecture wins over the person's.

Only their shape is checked here. Which numbers there are, and which of them go together, is for the
schedules in `kernelgen/rendering/` to say.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from kernelgen.destination import write_whole
from kernelgen.errors import ProblemError
from kernelgen.problem.record import Problem, ScheduleEntry
from kernelgen.problem.text import read_raw
from kernelgen.problem.yaml_tree import YamlValue, read_tree

CPU = "cpu"
GPUS = ("sm_80", "sm_90a", "sm_100a")
"""Architectures to render CUDA for, as nvcc names them; later GPUs of a line run it too."""
_KEY = "schedules"
_EXAMPLE = 256


def architecture_of(capability: tuple[int, int]) -> str:
    """Return what a solution for a GPU of this compute capability is rendered for."""
    return {9: "sm_90a", 10: "sm_100a"}.get(capability[0], "sm_80")


def tuned_file(path: Path) -> Path:
    """Return where the tuned schedules of a problem's file are, if it has any."""
    return path.with_name(f"{path.stem}.{_KEY}.json")


def read_tuned(path: Path) -> bytes | None:
    """Return the bytes of a problem's tuned schedules, None if it has none.

    Raises:
        ProblemError: the file cannot be read.
    """
    tuned = tuned_file(path)
    return read_raw(tuned) if tuned.exists() else None


def read_schedules(
    path: Path, own: YamlValue | None, tuned: bytes | None
) -> dict[str, ScheduleEntry]:
    """Return a problem's schedules by architecture.

    Args:
        path: of the problem's file.
        own: the table in it, if there is one.
        tuned: bytes of the file of its tuned schedules, if there is one.

    Raises:
        ProblemError: a table is not a mapping of architectures to whole numbers.
    """
    entries = {} if own is None else _entries(own)
    if tuned is not None:
        try:
            table = read_tree(tuned_file(path), tuned).fields((_KEY,), (_KEY,))[_KEY]
            entries |= _entries(table, defaults_allowed=True)
        except ProblemError as error:
            mend = f"{error.message}; or delete this file, `kernelgen tune` writes it anew"
            raise ProblemError(error.path, error.line, error.key, mend) from error
    return entries


def write_tuned(problem: Problem, arch: str, numbers: Mapping[str, int]) -> None:
    """Write an entry into the file of a problem's tuned schedules.

    `numbers` are those that differ from the default schedule's; none are the defaults themselves,
    which then win over an entry in the problem's file.

    Raises:
        UserError: the file cannot be written.
        OSError: the disk is full.
    """
    path = tuned_file(problem.path)
    kept = {name: e.numbers for name, e in problem.schedules.items() if e.path == path}
    text = msgspec.json.format(msgspec.json.encode({_KEY: {**kept, arch: dict(numbers)}}))
    write_whole(text + b"\n", path)


def _entries(table: YamlValue, *, defaults_allowed: bool = False) -> dict[str, ScheduleEntry]:
    if not table.items():
        raise table.error("expected an architecture such as `sm_90a`, found none; remove the key")
    entries = {}
    for arch, value in table.items():
        if arch not in (known := (CPU, *GPUS)):
            expected = f"expected one of {', '.join(known)}"
            raise value.error(f"{expected}, found {arch[:40]!r}", line=value.key_line)
        items = value.items()
        if not items and not defaults_allowed:
            message = f"expected numbers such as `threads: {_EXAMPLE}`, found none; remove it"
            raise value.error(message)
        entries[arch] = ScheduleEntry(
            path=table.path,
            numbers={name: item.whole_number(_EXAMPLE) for name, item in items},
            lines={name: item.line for name, item in items},
        )
    return entries

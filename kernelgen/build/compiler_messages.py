"""Messages of compilers, assemblers and linkers, as records."""

import re
from typing import Literal

import msgspec

Severity = Literal["error", "warning"]

# b.cu(7): error: ...     b.cu(7): error #20-D: ...     b.cu(7): catastrophic error: ...
_EDG = re.compile(
    r"^(?P<file>[^\s(][^(]*)\((?P<line>\d{1,9})\): (?:catastrophic )?"
    r"(?P<severity>error|warning)(?: #[\w-]+)?: (?P<message>.*)$"
)
# main.cpp:4:40: error: ...     main.cpp:4: fatal error: ...
_GNU = re.compile(
    r"^(?P<file>[^\s:][^:]*):(?P<line>\d{1,9}):(?:\d+:)? (?:fatal )?"
    r"(?P<severity>error|warning): (?P<message>.*)$"
)
# ptxas error   : ...   ptxas x.ptx, line 42; error   : ...   nvcc fatal   : ...
# ptxas stops with a line that is left out, after it has said what is wrong.
_TOOL = re.compile(
    r"^(?P<file>ptxas|nvcc|nvlink)\b(?:[^;]*; ?| )"
    r"(?P<severity>error|fatal|warning)\s*: (?P<message>(?!Ptx assembly aborted).*)$"
)
# Of the linker and of the loader.
_LINKER = re.compile(
    r"(?P<message>undefined reference to [`'].*'|cannot find -l\S+|undefined symbol: \S+)"
)
# Where a template that fails inside a header was used: nvcc says it after the error, gcc before it.
_EDG_USE = re.compile(r"^\s.*\bat line (\d{1,9}) of \"?([^\"\s]+)\"?")
_GNU_USE = re.compile(r"^([^\s:][^:]*):(\d{1,9}):\d+:\s+required from")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a file that a compiler read."""

    file: str
    line: int


class Diagnostic(msgspec.Struct, frozen=True, kw_only=True):
    """One complaint.

    Attributes:
        file: as the compiler names it; the tool's name where it names none, such as `ptxas`.
        line: 1-based, or None where the tool gives none.
        severity: fatal errors are errors.
        message: the first line of it.
        used_at: where the failing code was used from, innermost first; mostly empty.
    """

    file: str
    line: int | None
    severity: Severity
    message: str
    used_at: tuple[Place, ...] = ()


def parse_diagnostics(text: str) -> tuple[Diagnostic, ...]:
    """Return the errors and warnings of any mixture of nvcc, gcc, ptxas, ld and loader output.

    Repetitions, as from compiling one source for several architectures, are left out. Everything
    else in the text, such as ninja's command lines, is ignored.
    """
    found: list[Diagnostic] = []
    uses_before: list[Place] = []
    for line in text.splitlines():
        if match := _GNU_USE.match(line):
            uses_before.append(Place(file=match.group(1), line=int(match.group(2))))
        elif match := _EDG_USE.search(line):
            if found:
                place = Place(file=match.group(2), line=int(match.group(1)))
                found[-1] = msgspec.structs.replace(found[-1], used_at=(*found[-1].used_at, place))
        elif (diagnostic := _parse_line(line)) is not None:
            found.append(msgspec.structs.replace(diagnostic, used_at=tuple(uses_before)))
            uses_before = []
    return tuple(dict.fromkeys(found))


def _parse_line(line: str) -> Diagnostic | None:
    for pattern in (_EDG, _GNU, _TOOL):
        if match := pattern.match(line):
            row = match.groupdict().get("line")
            return Diagnostic(
                file=match["file"],
                line=None if row is None else int(row),
                severity="warning" if match["severity"] == "warning" else "error",
                message=match["message"].strip(),
            )
    if match := _LINKER.search(line):
        return Diagnostic(file="ld", line=None, severity="error", message=match["message"])
    return None

"""What compilers, assemblers and linkers say, as records."""

import re
from typing import Literal

import msgspec

Severity = Literal["error", "warning"]

# b.cu(7): error: ...     b.cu(7): error #20-D: ...     b.cu(7): catastrophic error: ...
_EDG = re.compile(
    r"^(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): (?:catastrophic )?"
    r"(?P<severity>error|warning)(?: #[\w-]+)?: (?P<message>.*)$"
)
# main.cpp:4:40: error: ...     main.cpp:4: fatal error: ...
_GNU = re.compile(
    r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:\d+:)? (?:fatal )?"
    r"(?P<severity>error|warning): (?P<message>.*)$"
)
# ptxas error   : ...   ptxas x.ptx, line 42; error   : ...   nvcc fatal   : ...
_TOOL = re.compile(
    r"^(?P<file>ptxas|nvcc|nvlink)\b(?:[^;]*; ?| )"
    r"(?P<severity>error|fatal|warning)\s*: (?P<message>.*)$"
)
_LINKER = re.compile(r"(?P<message>undefined reference to [`'].*'|cannot find -l\S+)")
_LOADER = re.compile(r"undefined symbol: (?P<symbol>\S+)")
# Where a template that fails inside a header was used: nvcc says it after the error, gcc before it.
_EDG_USE = re.compile(r"^\s.*\bat line (\d+) of \"?([^\"\s]+)\"?")
_GNU_USE = re.compile(r"^([^\s:][^:]*):(\d+):\d+:\s+required from")
# ptxas stops with this line after it has said what is wrong.
_AFTERMATH = re.compile(r"Ptx assembly aborted due to errors")


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
    for pattern in (_EDG, _GNU):
        if match := pattern.match(line):
            return Diagnostic(
                file=match["file"],
                line=int(match["line"]),
                severity="warning" if match["severity"] == "warning" else "error",
                message=match["message"].strip(),
            )
    if (match := _TOOL.match(line)) and not _AFTERMATH.search(line):
        severity: Severity = "warning" if match["severity"] == "warning" else "error"
        return _placeless(match["file"], match["message"].strip(), severity)
    if match := _LINKER.search(line):
        return _placeless("ld", match["message"])
    if match := _LOADER.search(line):
        return _placeless("ld", f"undefined symbol: {match['symbol']}")
    return None


def _placeless(tool: str, message: str, severity: Severity = "error") -> Diagnostic:
    return Diagnostic(file=tool, line=None, severity=severity, message=message)

"""Findings of a check of a solution's contract."""

from pathlib import Path
from typing import Literal

import msgspec

Severity = Literal["error", "warning"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One departure from the contract.

    Attributes:
        status: the status that an error of this kind leads to.
        severity: an error refuses the file; a warning is only told.
        line: 1-based line of the solution file, or None where no line is to blame.
        message: what is wrong, and how to fix it, in one line.
    """

    status: Literal["BROKEN_CONTRACT", "NO_CUSTOM_KERNEL"] = "BROKEN_CONTRACT"
    severity: Severity = "error"
    line: int | None = None
    message: str

    def at(self, path: Path) -> str:
        """Return the message behind its place in a file."""
        return f"{path if self.line is None else f'{path}:{self.line}'}: {self.message}"


def error(line: int | None, message: str) -> Finding:
    """Return a finding that refuses the file."""
    return Finding(line=line, message=_one_line(message))


def warning(line: int | None, message: str) -> Finding:
    """Return a finding that is only told."""
    return Finding(severity="warning", line=line, message=_one_line(message))


def _one_line(message: str) -> str:
    # A line of the file that is quoted may hold a form feed or another sign that ends a line.
    return " ".join(message.splitlines())

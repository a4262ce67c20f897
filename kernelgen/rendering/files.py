"""Rendered files: written whole, and only where they differ."""

import difflib
from pathlib import Path

from kernelgen.destination import is_stream, write_whole
from kernelgen.errors import UserError
from kernelgen.problem.record import Backend

SOLUTION_FOLDERS: dict[Backend, Path] = {"cuda": Path("solutions"), "cpp": Path("solutions/cpu")}
"""Where a problem's solution goes by default."""


def current_text(path: Path) -> str | None:
    """Return a file's text, or None if there is no file.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return path.read_bytes().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error


def write_if_different(path: Path, text: str) -> bool:
    """Write a text as a whole, never half of it, and return True; a file that has it is left alone.

    The path is a file, whose folders are made; a link to one; or a pipe or device, written to as
    it is.

    Raises:
        UserError: it is a folder, or the file or its folder cannot be written.
        OSError: the disk is full.
    """
    if path.is_dir():
        raise UserError(f"{path}: is a folder; name a file in it")
    # A pipe or device cannot be read back, and reading a pipe would wait.
    if not is_stream(path) and current_text(path) == text:
        return False
    write_whole(text.encode(), path, make_folders=True)
    return True


def difference(path: Path, expected: str) -> str:
    """Return a unified diff from a file to what it should be; empty if it is that.

    Raises:
        UserError: the file cannot be read.
    """
    found = current_text(path)
    if found == expected:
        return ""
    lines = difflib.unified_diff(
        (found or "").splitlines(keepends=True),
        expected.splitlines(keepends=True),
        fromfile="(missing)" if found is None else str(path),
        tofile=f"{path} (rendered now)",
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

"""Rendered text to files: written whole or not at all, and only where it differs."""

import difflib
import os
import tempfile
from pathlib import Path

from kernelgen.errors import UserError

_PUBLIC = 0o666


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
    """Write a text so that nobody ever sees half of it; a file that has it already is left alone.

    Returns:
        Whether the file was written.

    Raises:
        UserError: the file or its folder cannot be written.
    """
    if current_text(path) == text:
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, text)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from error
    return True


def _replace(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".new")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
        temporary.chmod(_PUBLIC & ~_umask())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


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

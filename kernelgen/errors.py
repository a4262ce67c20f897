"""The errors that reach a user, and the exit code of each.

Nothing else crosses the command line: an error that is not one of these is a bug in kernelgen and
is reported as such, with exit code 3.
"""

import traceback
from enum import IntEnum
from pathlib import Path


class ExitCode(IntEnum):
    """The code that the process returns to the shell."""

    OK = 0
    CANDIDATE_FAILED = 1
    USAGE = 2
    GRADER_FAULT = 3
    INTERRUPTED = 130


class UserError(Exception):
    """A mistake in what the user gave; the message is one line and says how to mend it."""

    exit_code = ExitCode.USAGE


# A file may hold a name of a million letters; what quotes it is still for a person.
_KEY_CHARACTERS = 120
_MESSAGE_CHARACTERS = 700


class ProblemError(UserError):
    """A problem file that cannot be used.

    Args:
        path: the file.
        line: 1-based line in it, or None where no line is to blame.
        key: dotted key, such as `cases[1].name`, or None.
        message: what was expected, what was found, and how to mend it.
    """

    def __init__(self, path: Path | str, line: int | None, key: str | None, message: str) -> None:
        key, message = key and _shown(key, _KEY_CHARACTERS), _shown(message, _MESSAGE_CHARACTERS)
        self.path, self.line, self.key, self.message = Path(path), line, key, message
        place = str(path) if line is None else f"{path}:{line}"
        super().__init__(f"{place}: {key}: {message}" if key else f"{place}: {message}")


class ToolchainError(UserError):
    """A compiler or library that this machine lacks; the message says how to get it."""

    exit_code = ExitCode.GRADER_FAULT


class KernelgenFault(Exception):  # noqa: N818 (a fault of ours, reported as one)
    """Something in kernelgen itself, or in the machine under it, failed."""

    exit_code = ExitCode.GRADER_FAULT


def line_in(error: BaseException, filename: str) -> int | None:
    """Return the innermost line of a file through which an error came, or that is no Python."""
    if isinstance(error, SyntaxError) and error.filename == filename:
        return error.lineno
    walked = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in walked if frame.f_code.co_filename == filename]
    return lines[-1] if lines else None


def in_one_line(error: BaseException) -> str:
    """Return an exception's type and the first line of its message."""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def _shown(text: str, limit: int) -> str:
    """Return a text as one line that a terminal takes for text, cut to a length."""
    cut = text if len(text) <= limit else f"{text[:limit]}..."
    line = " ".join(cut.splitlines())
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in line
    )

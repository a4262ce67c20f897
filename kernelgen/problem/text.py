"""A problem file's bytes as text."""

from pathlib import Path

from kernelgen.errors import ProblemError


def decode(path: Path, raw: bytes) -> str:
    """Return UTF-8 bytes as text, a byte order mark left out.

    Args:
        path: the file, for the message.
        raw: its bytes.

    Raises:
        ProblemError: they are not UTF-8; it names the line.
    """
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ProblemError(path, line, None, "not UTF-8 text; save the file as UTF-8") from error

"""A problem file's bytes as text, and any text as what every file and pipe can carry."""

from pathlib import Path

from kernelgen.errors import ProblemError

# Far above any problem, and what the YAML reader takes a second or two for.
_LARGEST_BYTES = 128 << 10


def encodable(text: str) -> str:
    """Return a text with what UTF-8 lacks, such as a byte of a file name, written escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def read_raw(path: Path) -> bytes:
    """Return a problem file's bytes.

    Raises:
        ProblemError: it cannot be read, or is larger than any problem.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST_BYTES + 1)
    except OSError as error:
        raise ProblemError(path, None, None, f"cannot be read: {error.strerror}") from error
    if len(raw) > _LARGEST_BYTES:
        message = f"expected at most {_LARGEST_BYTES >> 10} KiB, found more; is this a problem?"
        raise ProblemError(path, None, None, message)
    return raw


def decode(path: Path, raw: bytes) -> str:
    """Return UTF-8 bytes as text, a byte order mark left out.

    Raises:
        ProblemError: they are not UTF-8; it names the line.
    """
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ProblemError(path, line, None, "not UTF-8 text; save the file as UTF-8") from error

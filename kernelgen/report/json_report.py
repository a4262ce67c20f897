"""The JSON form of a run: written, read back, and described by a JSON Schema.

The form is the `Run` record itself; `docs/json.md` explains every field.
"""

import os
import secrets
import sys
from pathlib import Path

import msgspec

from kernelgen.errors import UserError
from kernelgen.grading.verdict import SCHEMA_VERSION, Run

STDOUT = Path("-")
_NUMBERED = "https://json-schema.org/draft/2020-12/schema"


class _Versioned(msgspec.Struct):
    schema: int


def encode(run: Run) -> str:
    """Return a run as indented JSON that ends with a newline; the same run gives the same text.

    JSON has no number that is not finite: msgspec writes null for it. A byte of a file name that is
    not UTF-8 is written escaped.

    Raises:
        ValueError: a field that may not be null holds such a number, so that nobody could read the
            report back.
    """
    encoded = msgspec.json.encode(_encodable(msgspec.to_builtins(run)))
    msgspec.json.decode(encoded, type=Run)
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def _encodable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value


def decode(text: str | bytes) -> Run:
    """Read a run back, with every invariant of its verdicts checked again.

    Raises:
        UserError: not JSON, of another schema version, or not what the schema says; with the place.
    """
    try:
        version = msgspec.json.decode(text, type=_Versioned).schema
        if version != SCHEMA_VERSION:
            raise UserError(
                f"the report has schema {version}, this kernelgen reads schema {SCHEMA_VERSION}; "
                "read it with the version that wrote it, or grade again"
            )
        return msgspec.json.decode(text, type=Run)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(f"not a kernelgen report: {error}") from error


def check_destination(destination: Path) -> None:
    """Make sure, before anything is graded, that a report can be written there.

    Raises:
        UserError: the folder does not exist or cannot be written to, or the place is a folder.
    """
    if destination == STDOUT or _is_stream(destination):
        return
    if destination.is_dir():
        raise UserError(f"{destination}: is a folder; name a file in it, such as run.json")
    if not destination.parent.is_dir():
        raise UserError(f"{destination}: its folder does not exist; make it, or name another place")
    # Permission bits do not tell of a read-only file system or of access lists: trying does.
    probe = _beside(destination)
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise _unwritable(destination, error) from error


def write(run: Run, destination: Path) -> None:
    """Write a run's JSON, all of it or nothing.

    Args:
        run: what to write.
        destination: a file, which is replaced in one step; a pipe or device, which is written to;
            or `-` for stdout.

    Raises:
        UserError: the file cannot be written, for instance because the disk is full.
    """
    report = encode(run).encode()
    if destination == STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(report)
        sys.stdout.buffer.flush()
        return
    try:
        if _is_stream(destination):
            destination.write_bytes(report)
        else:
            _replace(destination.resolve(), report)
    except OSError as error:
        raise _unwritable(destination, error) from error


def schema_text() -> str:
    """Return the JSON Schema of a run, as `docs/run.schema.json` holds it."""
    schema = {"$schema": _NUMBERED, "title": "A run of kernelgen grade", **msgspec.json.schema(Run)}
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def _replace(destination: Path, content: bytes) -> None:
    temporary = _beside(destination)
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            # Some file systems tell of a full disk only now; later the old report would be gone.
            os.fsync(file.fileno())
        temporary.replace(destination)
    finally:
        temporary.unlink(missing_ok=True)


def _beside(destination: Path) -> Path:
    # A link is followed, so that the file that it points to is replaced and not the link.
    return destination.resolve().parent / f".kernelgen-{secrets.token_hex(8)}.tmp"


def _is_stream(destination: Path) -> bool:
    return destination.exists() and not destination.is_file() and not destination.is_dir()


def _unwritable(destination: Path, error: OSError) -> UserError:
    return UserError(f"{destination}: the report cannot be written: {error.strerror}")

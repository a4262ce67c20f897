"""The JSON form of a run: written, read back, and described by a JSON Schema.

The form is the record itself, whose docstring explains every field: `Run` and those of the other
commands, which are written in the same way.
"""

import inspect
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from kernelgen.destination import STDOUT, write_whole
from kernelgen.errors import UserError
from kernelgen.grading.verdict import SCHEMA_VERSION, Run, Verdict
from kernelgen.problem.text import encodable

_NUMBERED = "https://json-schema.org/draft/2020-12/schema"


class _Versioned(msgspec.Struct):
    schema: int


def encode(run: msgspec.Struct) -> str:
    """Return a run as indented JSON that ends with a newline; the same run gives the same text.

    JSON has no number that is not finite: msgspec writes null for it. A byte of a file name that is
    not UTF-8 is written escaped.

    Raises:
        ValueError: a field that may not be null holds such a number, so that nobody could read the
            report back.
    """
    encoded = msgspec.json.encode(_encodable(msgspec.to_builtins(run)))
    msgspec.json.decode(encoded, type=type(run))
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def _encodable(value: object) -> object:
    if isinstance(value, str):
        return encodable(value)
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
        found = msgspec.json.decode(text, type=_Versioned).schema
        if found == SCHEMA_VERSION:
            return msgspec.json.decode(text, type=Run)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        wanted = "give what `kernelgen grade --json FILE` wrote"
        raise UserError(f"not a kernelgen report: {error}; {wanted}") from error
    raise UserError(
        f"the report has schema {found}, this kernelgen reads schema {SCHEMA_VERSION}; read it "
        "with the version that wrote it, or grade again"
    )


def write(run: msgspec.Struct, destination: Path) -> None:
    """Write a record's JSON, all of it or nothing; see `write_whole`.

    Raises:
        UserError: the file cannot be written.
        OSError: the disk is full.
    """
    write_whole(encode(run).encode(), destination)


def schema_text(record: type, title: str) -> str:
    """Return the JSON Schema of a record; a docstring is its record's description."""
    schema = {"$schema": _NUMBERED, "title": title, **msgspec.json.schema(record)}
    for definition in schema["$defs"].values():
        # Docstrings keep their indentation up to Python 3.12 and lose it from 3.13 on.
        if "description" in definition:
            definition["description"] = inspect.cleandoc(definition["description"])
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A run and its file's name as the user gave it; "" for a run that has just ended."""

    name: str
    run: Run


def read_run(path: Path) -> Recorded:
    """Read a file, or standard input where the path is `-`.

    Raises:
        UserError: it cannot be read, or is not the JSON of a run that this version reads.
    """
    try:
        content = sys.stdin.buffer.read() if path == STDOUT else path.read_bytes()
        return Recorded(name=str(path), run=decode(content))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def by_device(recorded: Iterable[Recorded]) -> list[tuple[Recorded, Verdict]]:
    """Return each verdict with its record; those of one device together, else in their order."""
    pairs = [(record, verdict) for record in recorded for verdict in record.run.verdicts]
    devices = list(dict.fromkeys(verdict.device for _, verdict in pairs))
    return sorted(pairs, key=lambda pair: devices.index(pair[1].device))


def as_one(recorded: Sequence[Recorded]) -> Run:
    """Return one run as it is; of several, verdicts by device, and what they share."""
    if len(recorded) == 1:
        return recorded[0].run
    first, *others = [record.run.environment for record in recorded]
    common = {
        key: value
        for key, value in first.items()
        if all(key in other and other[key] == value for other in others)
    }
    verdicts = tuple(verdict for _, verdict in by_device(recorded))
    plans = dict.fromkeys(plan for record in recorded for plan in record.run.plans)
    return Run(schema=SCHEMA_VERSION, environment=common, verdicts=verdicts, plans=tuple(plans))

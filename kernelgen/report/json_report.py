"""The JSON form of a run: written, read back, and described by a JSON Schema.

The form is the record itself, whose docstring explains every field: `Run` and those of the other
commands, which are written in the same way.
"""

import inspect
import sys
from pathlib import Path
from typing import TypeVar

import msgspec

from kernelgen.destination import STDOUT, write_whole
from kernelgen.errors import UserError
from kernelgen.grading.verdict import SCHEMA_VERSION, Run
from kernelgen.problem.text import encodable

Form = TypeVar("Form")

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


def decode_form(
    text: str | bytes, form: type[Form], *, version: int, name: str, command: str
) -> Form:
    """Read a record of any kind back, if its `schema` is the version that this kernelgen reads.

    The error's message has the name of the kind of record, and the command that writes it.

    Raises:
        UserError: not JSON, of another version, or not of this form; with the place.
    """
    try:
        found = msgspec.json.decode(text, type=_Versioned).schema
        if found == version:
            return msgspec.json.decode(text, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        wanted = f"give what `kernelgen {command} --json FILE` wrote"
        raise UserError(f"not a kernelgen {name}: {error}; {wanted}") from error
    raise UserError(
        f"the {name} has schema {found}, this kernelgen reads schema {version}; read it with the "
        f"version that wrote it, or {command} again"
    )


def read_form(path: Path, form: type[Form], *, version: int, name: str, command: str) -> Form:
    """Read a record from a file, or from standard input where the path is `-`; see `decode_form`.

    Raises:
        UserError: it cannot be read, or is not what has to be there; with the path.
    """
    try:
        content = sys.stdin.buffer.read() if path == STDOUT else path.read_bytes()
        return decode_form(content, form, version=version, name=name, command=command)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def decode(text: str | bytes) -> Run:
    """Read a run back, with every invariant of its verdicts checked again.

    Raises:
        UserError: not JSON, of another schema version, or not what the schema says; with the place.
    """
    return decode_form(text, Run, version=SCHEMA_VERSION, name="report", command="grade")


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

"""Records explain every field, and docs/statuses.md every status, and nothing that is not so."""

import json
import pkgutil
import re
from inspect import getdoc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from msgspec import inspect

from kernelgen.cli import program
from kernelgen.cli.report import WRITTEN
from kernelgen.errors import ExitCode
from kernelgen.grading.verdict import Owner, Status, Verdict

DOCS = Path(__file__).parent.parent / "docs"
SECTION = re.compile(r"^(##+) (\w+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)


def structs_under(kind: inspect.Type, found: dict[str, type[Any]]) -> dict[str, type[Any]]:
    """Return every record that a type holds, by name."""
    if isinstance(kind, inspect.StructType):
        if kind.cls.__name__ not in found:
            found[kind.cls.__name__] = kind.cls
            for field in kind.fields:
                structs_under(field.type, found)
    elif isinstance(kind, inspect.UnionType):
        for part in kind.types:
            structs_under(part, found)
    elif isinstance(kind, inspect.VarTupleType):
        structs_under(kind.item_type, found)
    elif isinstance(kind, inspect.TupleType):
        for part in kind.item_types:
            structs_under(part, found)
    elif isinstance(kind, inspect.DictType):
        structs_under(kind.value_type, found)
    return found


RECORDS: dict[str, type[Any]] = {}
for path in WRITTEN.values():
    structs_under(inspect.type_info(pkgutil.resolve_name(path)), RECORDS)


def sections(name: str) -> dict[str, str]:
    """Return the text below each one-word heading of a page."""
    text = (DOCS / name).read_text(encoding="utf-8")
    return {match.group(2): match.group(3) for match in SECTION.finditer(text)}


def owners_of(status: Status) -> set[Owner]:
    """Return the owners that a verdict of that status may have."""
    allowed = set()
    for owner in Owner:
        try:
            Verdict(
                problem="", solution="", solution_sha256="", status=status, owner=owner, reason="x"
            )
        except ValueError as refused:
            if "cannot be owned" in str(refused):
                continue
        allowed.add(owner)
    return allowed


def test_the_records_are_found() -> None:
    assert {"Run", "Verdict", "Correctness", "CaseResult", "WorstElement"} < set(RECORDS)
    assert {"Timing", "Speedup", "BuildRecord", "Calibration"} < set(RECORDS)


@pytest.mark.parametrize("record", RECORDS.values(), ids=list(RECORDS))
def test_a_record_explains_each_field_in_its_docstring(record: type[msgspec.Struct]) -> None:
    explained = set(re.findall(r"\w+", getdoc(record) or ""))
    assert {field.name for field in msgspec.structs.fields(record)} <= explained


@pytest.mark.parametrize("command", WRITTEN)
def test_the_schema_of_what_a_command_writes_is_printed(command: str) -> None:
    printed = CliRunner().invoke(program, ["report", "--schema", command])
    assert (printed.exit_code, printed.stderr) == (0, "")
    schema = json.loads(printed.stdout)
    name = WRITTEN[command].partition(":")[2]
    assert schema["$ref"] == f"#/$defs/{name}"
    assert schema["$defs"][name]["description"] == getdoc(RECORDS[name])


def test_json_md_shows_fields_that_there_are() -> None:
    tree = (DOCS / "json.md").read_text(encoding="utf-8").split("```text\n")[1].split("```")[0]
    shown = {name for line in tree.splitlines() for name in re.findall(
        r"[a-z]\w+", re.split(r"(?<=\S)  +", line)[0])}  # fmt: skip
    fields = {one.name for record in RECORDS.values() for one in msgspec.structs.fields(record)}
    assert shown <= fields


def test_every_command_that_writes_json_has_a_schema() -> None:
    context = program.make_context("kernelgen", [], resilient_parsing=True)
    commands = {name: program.get_command(context, name) for name in program.list_commands(context)}
    writing = {
        name
        for name, command in commands.items()
        if command and any("--json" in option.opts for option in command.params)
    }
    assert writing - {"list"} == set(WRITTEN)


@pytest.mark.parametrize("status", Status, ids=[status.value for status in Status])
def test_statuses_md_explains_every_status(status: Status) -> None:
    text = sections("statuses.md")[status.value]
    points = dict(re.findall(r"^- (Owner|Means|Cause|To do): (\S[^\n]*)", text, re.MULTILINE))
    assert list(points) == ["Owner", "Means", "Cause", "To do"]
    assert set(points["Owner"].split(" or ")) == {owner.value for owner in owners_of(status)}


def test_statuses_md_explains_no_other_status() -> None:
    headings = {name for name in sections("statuses.md") if name.isupper()}
    assert headings == {status.value for status in Status}


def test_statuses_md_explains_every_exit_code() -> None:
    text = (DOCS / "statuses.md").read_text(encoding="utf-8")
    codes = re.findall(r"^\| (\d+) \|", text, re.MULTILINE)
    assert [int(code) for code in codes] == [code.value for code in ExitCode]

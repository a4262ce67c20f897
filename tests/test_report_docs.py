"""docs/json.md and docs/statuses.md say everything, and nothing that is not so."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from kernelgen.errors import ExitCode
from kernelgen.grading.verdict import Owner, Run, Status, Verdict

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


RECORDS = structs_under(inspect.type_info(Run), {})


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
    assert {"Timing", "Speedup", "BuildRecord"} < set(RECORDS)


@pytest.mark.parametrize("record", RECORDS.values(), ids=list(RECORDS))
def test_json_md_has_every_field_of_every_record(record: type[msgspec.Struct]) -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| \S.* \|$", sections("json.md")[record.__name__],
                      re.MULTILINE)  # fmt: skip
    fields = msgspec.structs.fields(record)
    assert [name for name, _ in rows] == [field.encode_name for field in fields]
    optional = {name for name, kind in rows if kind.endswith("optional")}
    assert optional == {field.encode_name for field in fields if not field.required}


def test_json_md_describes_no_other_record() -> None:
    assert set(sections("json.md")) == set(RECORDS)


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


def test_a_verdict_has_no_field_without_a_docstring_line() -> None:
    documented = set(re.findall(r"\w+", (Verdict.__doc__ or "").partition("Attributes:")[2]))
    assert {field.name for field in msgspec.structs.fields(Verdict)} <= documented

"""The page and the schema of a sweep have every field, and the page every option."""

import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from test_report_docs import structs_under

from kernelgen.cli import program
from kernelgen.sweep.record import Sweep

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "sweep.md").read_text(encoding="utf-8")


RECORDS = structs_under(msgspec.inspect.type_info(Sweep), {})


@pytest.mark.parametrize("record", RECORDS.values(), ids=list(RECORDS))
def test_the_page_has_every_field_of_every_record(record: type[msgspec.Struct]) -> None:
    section = PAGE.split(f"\n## {record.__name__}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| \S.* \|$", section, re.MULTILINE)
    fields = msgspec.structs.fields(record)
    assert [name for name, _ in rows] == [field.encode_name for field in fields]
    optional = {name for name, kind in rows if kind.endswith("optional")}
    assert optional == {field.encode_name for field in fields if not field.required}


def test_the_page_explains_every_option() -> None:
    help_text = CliRunner().invoke(program, ["sweep", "--help"]).stdout
    options = set(re.findall(r"^\s+(?:-[qv], )?(--[a-z-]+)", help_text, re.MULTILINE)) - {"--help"}
    assert all(f"`{option}" in PAGE for option in options), options
    assert len(options) == 11

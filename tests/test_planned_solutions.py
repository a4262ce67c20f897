"""The committed solutions that are planned from a Model, graded on the CPU in all their cases."""

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from shipped import TEMPLATES

from kernelgen.cli import program

SOLUTIONS = Path(__file__).resolve().parent.parent / "solutions" / "cpu"


@pytest.mark.long
def test_planned_solutions_pass_on_the_cpu(tmp_path: Path) -> None:
    names = [name for name, template in TEMPLATES.items() if not template]
    files = [str(SOLUTIONS / f"{name}.py") for name in names]
    record = tmp_path / "run.json"
    options = ["--device", "cpu", "--no-timing", "--no-build-cache", "--json", str(record)]
    result = CliRunner().invoke(program, ["grade", *files, *options])
    assert result.exit_code == 0, result.output
    found = msgspec.json.decode(record.read_bytes())
    assert [one["status"] for one in found["verdicts"]] == ["PASSED"] * len(names)

"""`kernelgen report`: which files it takes, and where it writes what."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result
from report_runs import failed, full, passed, run_of

from kernelgen.cli import program
from kernelgen.cli.report import keep_last
from kernelgen.grading.verdict import Status
from kernelgen.report.json_report import encode


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """Return the JSON of a run in which one passed and one did not."""
    place = tmp_path / "run.json"
    place.write_text(encode(run_of(full(), failed(Status.TIMEOUT))))
    return place


def invoke(*arguments: str | Path, **more: Any) -> Result:
    """Run `kernelgen report` with these arguments."""
    return CliRunner().invoke(program, ["report", *map(str, arguments)], **more)


def test_without_a_file_to_write_it_prints_the_table(record: Path) -> None:
    result = invoke(record)
    assert result.exit_code == 0, "it reports, and does not judge"
    assert "\nfull " in result.stdout
    assert "candidates/bad.py: TIMEOUT" in result.stdout
    assert "1 of 2 passed on NVIDIA H200 (1 TIMEOUT)" in result.stdout
    assert result.stderr == ""
    assert "solutions/full.py: PASSED, with warnings" not in result.stdout
    assert "solutions/full.py: PASSED, with warnings" in invoke(record, "-v").stdout


def test_it_writes_both_documents_and_prints_nothing(record: Path, tmp_path: Path) -> None:
    result = invoke(record, "--html", tmp_path / "a.html", "--junit", tmp_path / "a.xml")
    assert (result.exit_code, result.output) == (0, "")
    assert "solutions/" in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert ET.parse(tmp_path / "a.xml").getroot().get("tests") == "2"


@pytest.mark.parametrize(
    ("option", "start"), [("--html", b"<!doctype html>"), ("--junit", b"<?xml version=")]
)
def test_either_may_go_to_stdout(record: Path, option: str, start: bytes) -> None:
    result = invoke(record, option, "-")
    assert result.stdout_bytes.lstrip().startswith(start)
    assert result.stderr == ""


def test_the_table_is_written_whole_for_other_programs(record: Path, tmp_path: Path) -> None:
    result = invoke(record, "--csv", tmp_path / "a.csv", "--markdown", "-")
    head, rule, *verdicts = result.stdout.splitlines()
    assert [line.split(" | ")[0] for line in verdicts] == ["| full", "| bad"]
    assert head.count("|") == rule.count("|")
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert [row[0] for row in rows] == ["solution", "full", "bad"]
    assert len({len(row) for row in rows}) == 1
    assert rows[1][rows[0].index("vs eager [95 %]")].endswith("faster")


def test_without_a_run_it_is_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = invoke()
    assert result.exit_code == 2
    assert "no run is kept yet; give RUN.json, or grade something first" in result.stderr
    keep_last(run_of(passed("first.py")))
    keep_last(run_of(passed("second.py")))
    assert "\nsecond " in invoke().stdout


def test_a_run_that_cannot_be_kept_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kernelgen").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep_last(run_of(passed()))
    assert capsys.readouterr().err.startswith("not kept for `kernelgen report`: ")


def test_a_run_may_come_from_stdin(record: Path) -> None:
    result = invoke("-", input=record.read_bytes())
    assert "full      ✓ PASSED" in result.stdout


def test_several_runs_are_one_by_device(record: Path, tmp_path: Path) -> None:
    other = tmp_path / "cpu.json"
    other.write_text(encode(run_of(passed("cpu.py", device="CPU"), passed("more.py"))))
    result = invoke(record, other)
    table = result.stdout.partition("\nsolution ")[2].partition("\n\n")[0]
    rows = [line.split()[0] for line in table.splitlines()[1:]]
    assert rows == ["full", "more", "bad", "cpu"]
    assert "3 of 4 passed on NVIDIA H200 and CPU" in result.stdout


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "run.json: cannot be read: No such file or directory"),
        ("", "run.json: not a kernelgen report"),
        ('{"a": 1}', "run.json: not a kernelgen report"),
        ('{"schema": 99, "verdicts": []}', "run.json: the report has schema 99, this kernelgen"),
        ('{"schema": 1, "environment": {}, "verdicts": [{}]}', "run.json: not a kernelgen report"),
    ],
)
def test_what_is_no_run_is_one_line(tmp_path: Path, content: str | None, complaint: str) -> None:
    place = tmp_path / "run.json"
    if content is not None:
        place.write_text(content)
    result = invoke(place, "--html", tmp_path / "page.html")
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--html", "missing/a.html"), "missing/a.html: its folder does not exist"),
        (("--html", "-", "--junit", "-"), "--html and --junit both name -"),
        (("--html", "x.out", "--junit", "./x.out"), "--html and --junit both name x.out"),
    ],
)
def test_a_place_that_cannot_be_written_to_is_one_line(
    record: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    result = invoke(record, *arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1
    assert not Path("x.out").exists()


def test_a_file_that_is_named_twice_is_refused(record: Path) -> None:
    result = invoke(record, record)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "named twice" in result.stderr


@pytest.mark.long
def test_the_recorded_benchmarks_can_be_shown(repository: Path, tmp_path: Path) -> None:
    records = sorted((repository / "benchmarks").glob("*/*.json"))
    assert records
    assert invoke(*records, "--html", tmp_path / "page.html").exit_code == 0
    assert "NVIDIA H200" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_it_imports_no_torch(record: Path, tmp_path: Path) -> None:
    arguments = ["report", str(record), "--html", str(tmp_path / "a.html"), "--junit", "-"]
    script = (
        "import sys\n"
        "from kernelgen.cli import program\n"
        f"try:\n    program({json.dumps(arguments)})\n"
        "except SystemExit as leaving:\n    assert leaving.code == 0, leaving.code\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.html").is_file()

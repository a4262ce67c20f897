"""The JSON form of a run."""

import json
import math
import os
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_runs import (
    CASE,
    CORRECTNESS,
    TIMING,
    WORST,
    every_status,
    failed,
    passed,
    planned,
    run_of,
)

from kernelgen.destination import STDOUT, check_destination
from kernelgen.errors import UserError
from kernelgen.grading.verdict import CaseResult, Correctness, Run, Status
from kernelgen.report.json_report import decode, encode, schema_text, write

ROOT = Path(__file__).parent.parent


def with_worst(got: float) -> Run:
    """Return a run whose worst element is that far off."""
    worst = msgspec.structs.replace(WORST, got=got)
    case = msgspec.structs.replace(CASE, agreed=False, wrong=1, max_abs_err=None, worst=worst)
    correctness = msgspec.structs.replace(CORRECTNESS, max_abs_err=None, cases=(case,))
    return run_of(failed(Status.NON_FINITE, correctness=correctness))


@pytest.mark.parametrize("run", [every_status(), planned(passed())], ids=["each", "planned"])
def test_a_run_comes_back_as_it_was(run: Run) -> None:
    assert decode(encode(run)) == run


@given(st.text(), st.floats(allow_nan=False, allow_infinity=False))
def test_any_text_and_any_finite_number_come_back(text: str, got: float) -> None:
    run = with_worst(got)
    verdict = msgspec.structs.replace(run.verdicts[0], log=text, warnings=(text,))
    run = run_of(verdict)
    assert decode(encode(run)) == run


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_null_where_null_may_be(value: float) -> None:
    correctness = msgspec.structs.replace(CORRECTNESS, max_abs_err=value)
    text = encode(run_of(passed(correctness=correctness)))
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert found["verdicts"][0]["correctness"]["max_abs_err"] is None
    read = decode(text).verdicts[0].correctness
    assert read is not None
    assert read.max_abs_err is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_report_that_nobody_could_read_is_not_written(value: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cases\[0\]\.worst\.got"):
        write(with_worst(value), tmp_path / "run.json")
    assert not list(tmp_path.iterdir())


def test_non_finite_environment_values_are_null() -> None:
    run = msgspec.structs.replace(run_of(passed()), environment={"x": math.nan, "y": [math.inf]})
    assert json.loads(encode(run))["environment"] == {"x": None, "y": [None]}


def test_a_file_name_that_is_not_utf8_is_written_escaped() -> None:
    text = encode(run_of(passed("bad\udcff.py")))
    assert json.loads(text)["verdicts"][0]["solution"] == "bad\\udcff.py"


def test_what_was_not_measured_is_absent() -> None:
    timing = msgspec.structs.replace(TIMING, compile_ms=None, gbps=None, minimal_bytes=None)
    (verdict,) = json.loads(encode(run_of(passed(timing=timing, build=None))))["verdicts"]
    assert not {"compile_ms", "gbps", "minimal_bytes"} & set(verdict["timing"])
    assert not {"build", "warnings", "log"} & set(verdict)


def test_it_is_indented_stable_and_ends_with_a_newline() -> None:
    text = encode(every_status())
    assert text == encode(every_status())
    assert text.startswith('{\n  "schema": 1,\n  "environment": {\n')
    assert text.endswith("}\n")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not a kernelgen report"),
        ("[1]", "not a kernelgen report: Expected `object`"),
        ('{"schema": "1"}', "$.schema"),
        ('{"schema": 2, "anything": 0}', "schema 2, this kernelgen reads schema 1"),
        ('{"schema": 1, "environment": {}}', "`verdicts`"),
        ('{"schema": 1, "environment": {}, "verdicts": [{"status": "GREAT"}]}', "$.verdicts[0]"),
        (b"\xff\xfe", "not a kernelgen report"),
    ],
)
def test_what_is_no_report_is_refused_in_one_line(text: str | bytes, complaint: str) -> None:
    with pytest.raises(UserError) as refused:
        decode(text)
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_forged_pass_is_refused() -> None:
    text = encode(run_of(failed(Status.CRASHED))).replace("CRASHED", "PASSED", 1)
    with pytest.raises(UserError, match="PASSED needs every expected case"):
        decode(text)


def test_a_pass_whose_case_disagreed_is_refused() -> None:
    text = encode(run_of(passed())).replace('"agreed": true', '"agreed": false')
    with pytest.raises(UserError, match="PASSED needs every expected case"):
        decode(text)


def test_write_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    place = tmp_path / "run.json"
    place.write_text("old")
    check_destination(place)
    assert place.read_text() == "old"
    write(run_of(passed()), place)
    assert decode(place.read_text(encoding="utf-8")) == run_of(passed())
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(place.stat().st_mode) == 0o666 & ~umask


def test_write_follows_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    write(run_of(passed()), tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert decode((tmp_path / "real.json").read_text(encoding="utf-8")) == run_of(passed())


def test_a_failed_write_keeps_the_old_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    place = tmp_path / "run.json"
    place.write_text("old")
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match=r"No space left on device: '.*run\.json'"):
        write(run_of(passed()), place)
    assert place.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_device_is_written_to_and_not_replaced() -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        write(run_of(passed()), Path("/dev/full"))
    check_destination(Path("/dev/null"))
    write(run_of(passed()), Path("/dev/null"))
    assert not Path("/dev/null").is_file()


def test_a_destination_that_cannot_be_is_refused_before_grading(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="its folder does not exist"):
        check_destination(tmp_path / "missing" / "run.json")
    with pytest.raises(UserError, match="is a folder"):
        check_destination(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="its folder does not exist"):
        check_destination(tmp_path / "file" / "run.json")
    check_destination(tmp_path / "run.json")
    check_destination(STDOUT)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a read-only file system")
def test_a_read_only_folder_is_refused_before_grading() -> None:
    with pytest.raises(UserError, match=r"run\.json: cannot be written"):
        check_destination(Path("/proc/self/run.json"))


def test_stdout_gets_utf8_whatever_its_encoding() -> None:
    program = (
        "from pathlib import Path\n"
        "from report_runs import passed, run_of\n"
        "from kernelgen.report.json_report import write\n"
        "write(run_of(passed('ü.py')), Path('-'))\n"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    environment["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, env=environment
    )
    assert decode(done.stdout) == run_of(passed("ü.py"))


def test_the_schema_asks_for_what_is_never_absent() -> None:
    definitions = json.loads(schema_text(Run, "A run"))["$defs"]
    assert set(definitions["Run"]["required"]) == {"schema", "environment", "verdicts"}
    for record in (CaseResult, Correctness):
        required = {f.encode_name for f in msgspec.structs.fields(record) if f.required}
        assert set(definitions[record.__name__]["required"]) == required

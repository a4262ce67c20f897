"""`kernelgen calibrate`, and what `show` and `doctor` make of the rates that it keeps."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from calibrations import calibration, steady
from click.testing import CliRunner, Result
from msgspec.structs import replace

from kernelgen.cli import calibrate, machine_checks, program
from kernelgen.errors import ExitCode, KernelgenFault
from kernelgen.hardware import identity
from kernelgen.hardware.calibration import Calibration, encode, keep, look_up
from kernelgen.hardware.identity import cpu_identity

MINE = replace(calibration("cpu", copy_gbps=50.0, rates={"fp32": 2e11}), device=cpu_identity())


class Measuring:
    """Stands for `measure_apart`: counts how often it was asked."""

    def __init__(self) -> None:
        self.answer: Calibration | Exception = MINE
        self.asked: list[str] = []
        self.quiet = False

    def __call__(self, device: str, *, quiet: bool) -> Calibration:
        """Remember the device and answer."""
        self.quiet = quiet
        self.asked.append(device)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Measuring:
    """Put the fake in the measuring's place, and the cache into an empty folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fake = Measuring()
    monkeypatch.setattr(calibrate, "measure_apart", fake)
    return fake


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(program, ["calibrate", "--device", "cpu", *arguments])


def cache(tmp_path: Path) -> Path:
    return tmp_path / "kernelgen"


def test_rates_are_shown_and_kept(measuring: Measuring, tmp_path: Path) -> None:
    result = invoke()
    assert result.exit_code == ExitCode.OK
    first, heading, *rows = result.stdout.splitlines()
    assert first.startswith(MINE.device.name)
    assert heading.split() == ["median", "best"]
    assert [row.split()[0] for row in rows] == ["copy", "write", "matrix"]
    assert rows[0].split()[1:5] == ["50", "50", "GB/s", "read"]
    assert "0.2      0.2  TFLOP/s, 8192 x 8192" in rows[2]
    assert not measuring.quiet
    assert look_up(cache(tmp_path), cpu_identity()).calibration == MINE
    assert measuring.asked == ["cpu"]


def test_what_is_known_is_not_measured_again(measuring: Measuring) -> None:
    first, again = invoke("--quiet"), invoke("--quiet")
    assert measuring.asked == ["cpu"]
    assert again.exit_code == ExitCode.OK
    assert again.stdout.splitlines()[1:] == first.stdout.splitlines()[1:]
    assert "--force measures again" in again.stderr
    assert invoke("--quiet", "--force").exit_code == ExitCode.OK
    assert measuring.asked == ["cpu", "cpu"]


def test_json_is_the_record_that_is_kept(measuring: Measuring, tmp_path: Path) -> None:
    file = tmp_path / "rates.json"
    assert invoke("--json", str(file)).exit_code == ExitCode.OK
    assert file.read_bytes() == encode(MINE)
    result = invoke("--json", "-")
    assert msgspec.json.decode(result.stdout, type=Calibration) == MINE
    assert "GB/s" in result.stderr
    assert measuring.asked == ["cpu"]


def test_a_damaged_file_is_warned_of_and_replaced(measuring: Measuring, tmp_path: Path) -> None:
    path = keep(cache(tmp_path), MINE)
    path.write_text("{")
    result = invoke()
    assert result.exit_code == ExitCode.OK
    assert f"warning: {path} is damaged" in result.stderr
    assert look_up(cache(tmp_path), cpu_identity()).calibration == MINE
    assert measuring.asked == ["cpu"]


def test_rates_that_cannot_be_kept_are_shown(
    measuring: Measuring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    result = invoke()
    assert result.exit_code == ExitCode.USAGE
    assert "GB/s" in result.stdout
    assert "error: the rates are not kept: " in result.stderr
    assert "set XDG_CACHE_HOME to a folder that can be written" in result.stderr
    assert measuring.asked == ["cpu"]


def test_what_cannot_be_measured_is_one_line(measuring: Measuring) -> None:
    measuring.answer = KernelgenFault("the CPU cannot be measured: memory ran out")
    result = invoke("--quiet")
    assert measuring.quiet
    assert result.exit_code == ExitCode.GRADER_FAULT
    assert result.stderr == "error: the CPU cannot be measured: memory ran out\n"
    assert result.stdout == ""


def test_rates_that_vary_are_warned_of(measuring: Measuring) -> None:
    varying = replace(steady(50.0), best=70.0)
    measuring.answer = replace(MINE, copy_gbps=varying)
    assert "warning: the rates vary (copy): is something else running?" in invoke().stderr


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(
    measuring: Measuring, tmp_path: Path
) -> None:
    result = invoke("--json", str(tmp_path / "no" / "rates.json"))
    assert result.exit_code == ExitCode.USAGE
    assert measuring.asked == []


def test_a_gpu_is_asked_for_where_there_is_none(
    measuring: Measuring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "first_gpu", lambda: "the driver offers no device")
    result = CliRunner().invoke(program, ["calibrate", "--device", "cuda"])
    assert result.exit_code == ExitCode.GRADER_FAULT
    assert result.stderr == "error: the GPU cannot be measured: the driver offers no device\n"
    assert CliRunner().invoke(program, ["calibrate"]).exit_code == ExitCode.OK
    assert measuring.asked == ["cpu"]


@pytest.mark.long
def test_the_command_measures_this_cpu(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kernelgen", "calibrate", "--device", "cpu", "--json", "-"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    found = msgspec.json.decode(done.stdout, type=Calibration)
    assert found == look_up(cache(tmp_path), cpu_identity()).calibration
    assert found.copy_gbps.median > 0.1
    assert "measuring fp32 matrix products of 2048 x 2048" in done.stderr


# --- doctor and show ------------------------------------------------------------------------------


def test_doctor_says_whether_rates_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(identity, "first_gpu", lambda: "no driver")
    none = machine_checks.check_calibration()
    assert (none.state, none.mend) == ("warning", "kernelgen calibrate")
    path = keep(cache(tmp_path), MINE)
    known = machine_checks.check_calibration()
    assert known.state == "ok"
    assert "copies at 50 GB/s, measured " in known.found
    path.write_text("{")
    damaged = machine_checks.check_calibration()
    assert damaged.state == "warning"
    assert "is damaged" in damaged.found


def shown(name: str) -> list[str]:
    result = CliRunner().invoke(program, ["show", name])
    assert result.exit_code == ExitCode.OK, result.output
    return result.stdout.splitlines()


def test_show_names_what_is_declared(tmp_path: Path) -> None:
    text = (Path(__file__).parent / "problems" / "tiny_linear.yaml").read_text()
    file = tmp_path / "declared.yaml"
    file.write_text(text + "minimal: {bytes: 1000, flops: 2e9}\n")
    assert any(line.split() == ["minimal", "1000", "bytes", "and", "2000000000", "flops"]
               for line in shown(str(file)))  # fmt: skip

"""`kernelgen doctor`, and the facts about devices that it shows."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernelgen.cli import doctor, machine_checks, program
from kernelgen.cli.machine_checks import Check, TorchFacts, check_folder, check_tool
from kernelgen.errors import ExitCode
from kernelgen.hardware.device import cpu_facts, survey_gpus

NAMES = (
    "python",
    "torch",
    "cpu",
    "gpu",
    "nvcc",
    "c++ compiler",
    "ninja",
    "cuda ipc",
    "sandbox",
    "ncu",
    "compute-sanitizer",
    "calibration",
    "cache folder",
    "temporary folder",
)
WITH_GPU = TorchFacts(version="2.11.0", cuda="13.0", available=True, ipc="")


def _diagnosis(missing: set[str], torch: TorchFacts | None = WITH_GPU) -> doctor.Diagnosis:
    checks = tuple(
        Check(name=name, state="missing" if name in missing else "ok", found="") for name in NAMES
    )
    return doctor.diagnose(checks, torch)


def test_a_whole_machine_can_do_all() -> None:
    assert _diagnosis(set()).sentence == (
        "This machine can render, build CUDA solutions, grade on the CPU and grade on the GPU."
    )


def test_without_nvcc_only_the_cpu_is_left() -> None:
    assert _diagnosis({"nvcc"}).sentence == "This machine can render and grade on the CPU."


def test_a_torch_that_reaches_no_gpu_cannot_grade_on_it() -> None:
    torch = TorchFacts(version="2.13.0", cuda=None, available=False, ipc="")
    found = _diagnosis(set(), torch)
    assert not found.can_grade_gpu
    assert found.can_build_cuda


@pytest.mark.parametrize("name", ["torch", "c++ compiler", "ninja", "python"])
def test_without_these_nothing_is_graded(name: str) -> None:
    found = _diagnosis({name})
    assert (found.can_grade_cpu, found.can_grade_gpu) == (False, False)
    assert found.sentence == "This machine can render."


def test_the_command_looks_at_this_machine() -> None:
    result = CliRunner().invoke(program, ["doctor", "--json"])
    found = json.loads(result.stdout)
    assert tuple(check["name"] for check in found["checks"]) == NAMES
    able = found["can_grade_cpu"] or found["can_grade_gpu"]
    assert result.exit_code == (ExitCode.OK if able else ExitCode.GRADER_FAULT)
    states = {check["name"]: check["state"] for check in found["checks"]}
    # These tests themselves run on this Python with this torch.
    assert (states["python"], states["torch"]) == ("ok", "ok")


def test_torch_is_not_taken_from_the_present_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torch", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    assert machine_checks.probe_torch()[0].state == "ok"


def test_a_machine_that_can_grade_nothing_ends_in_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: _diagnosis({"c++ compiler"}))
    result = CliRunner().invoke(program, ["doctor"])
    assert result.exit_code == ExitCode.GRADER_FAULT
    assert result.stdout.splitlines()[-1] == "This machine can render."
    assert any(line.startswith("missing  c++ compiler") for line in result.stdout.splitlines())


def test_another_major_version_of_cuda_is_a_warning_with_a_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text("#!/bin/sh\necho 'release 12.8, V12.8.93'\n")
    nvcc.chmod(0o755)
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libcudart.so").touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    check = machine_checks.check_nvcc(WITH_GPU)
    assert check.state == "warning"
    assert "12.8.93" in check.found
    assert "13.0" in check.mend


def test_a_folder_that_cannot_be_made_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check = check_folder("cache folder", tmp_path / "file" / "cache", "XDG_CACHE_HOME")
    assert check.state == "missing"
    assert "XDG_CACHE_HOME" in check.mend


def test_a_tmpdir_that_python_passes_over_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    check = machine_checks.check_temporary()
    assert check.state == "warning"
    assert check.found == (
        f"TMPDIR is {tmp_path / 'gone'}, where nothing can be written; {tmp_path} is used"
    )


def test_an_absent_tool_says_what_it_is_for() -> None:
    check = check_tool("no-such-tool-anywhere", "to count sheep")
    assert (check.state, check.found) == ("warning", "not found")
    assert "to count sheep" in check.mend


def test_a_survey_has_devices_or_a_reason() -> None:
    survey = survey_gpus()
    assert bool(survey.devices) != bool(survey.reason)
    assert all(gpu.sm_count > 0 and gpu.memory_bytes > 0 for gpu in survey.devices)


def test_the_cpu_has_cores_and_memory() -> None:
    facts = cpu_facts()
    assert facts.cores >= 1
    assert facts.memory_bytes > 1 << 26
    assert facts.name

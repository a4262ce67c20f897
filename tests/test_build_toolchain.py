"""Where nvcc and the C++ compiler are looked for, and toolkits made of wheels."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgen.build import toolchain
from kernelgen.build.toolchain import (
    cache_folder,
    child_environment,
    find_compiler,
    find_toolkit,
)
from kernelgen.build.wheel_toolkit import assemble, can_link, wheel_homes
from kernelgen.cli.machine_checks import check_cache, check_calibration
from kernelgen.errors import ExitCode, ToolchainError, UserError

VERSION_TEXT = "Cuda compilation tools, release 13.0, V13.0.88"


def _script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def _wheel_home(site: Path) -> Path:
    """Lay out the files that matter of NVIDIA's CUDA 13 wheels."""
    home = site / "nvidia" / "cu13"
    _script(home / "bin" / "nvcc", f"echo '{VERSION_TEXT}'")
    for name in ("include/cuda_runtime.h", "nvvm/bin/cicc", "lib/libcudart.so.13"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(name)
    return home


def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    monkeypatch.setattr(toolchain, "_SYSTEM_HOME", tmp_path / "absent")
    monkeypatch.setattr(toolchain, "find_spec", lambda _name: None)
    return {"PATH": str(tmp_path / "absent"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_cuda_home_is_taken_as_it_is_given(tmp_path: Path) -> None:
    home = tmp_path / "cuda"
    _script(home / "bin" / "nvcc", f"echo '{VERSION_TEXT}'")
    (home / "lib64").mkdir()
    (home / "lib64" / "libcudart.so").touch()

    toolkit = find_toolkit({"CUDA_HOME": str(home)})

    assert (toolkit.home, toolkit.version, toolkit.major) == (home, "13.0.88", 13)
    assert toolkit.found_by == "CUDA_HOME"


def test_a_cuda_home_without_nvcc_is_an_error_and_not_skipped(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"CUDA_HOME is .* bin/nvcc is missing") as caught:
        find_toolkit({"CUDA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})
    assert caught.value.exit_code == ExitCode.GRADER_FAULT


def test_a_wrapper_on_path_leads_to_the_toolkit_behind_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment = _nowhere(monkeypatch, tmp_path)
    home = tmp_path / "real"
    (home / "include").mkdir(parents=True)
    (home / "include" / "cuda_runtime.h").touch()
    (home / "lib64").mkdir()
    (home / "lib64" / "libcudart.so").touch()
    _script(
        tmp_path / "tools" / "nvcc",
        f'case "$1" in --version) echo "{VERSION_TEXT}";; *) echo "#$ TOP={home}/bin/..";; esac',
    )
    (home / "bin").mkdir()

    toolkit = find_toolkit({**environment, "PATH": f"{tmp_path / 'tools'}:/bin"})

    assert toolkit.home == home
    assert toolkit.nvcc == tmp_path / "tools" / "nvcc"


def test_no_nvcc_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment = _nowhere(monkeypatch, tmp_path)
    with pytest.raises(ToolchainError, match=r"pip install '\.\[nvcc\]'"):
        find_toolkit(environment)


def test_wheels_become_a_toolkit_that_torch_can_link_with(tmp_path: Path) -> None:
    home = _wheel_home(tmp_path)
    assert list(wheel_homes([tmp_path / "nvidia"])) == [home]
    assert not can_link(home)

    made = assemble(home, "13.0.88", tmp_path / "cache")

    assert (made / "lib64" / "libcudart.so").read_text() == "lib/libcudart.so.13"
    assert (made / "include" / "cuda_runtime.h").exists()
    assert (made / "nvvm" / "bin" / "cicc").exists()
    assert os.access(made / "bin" / "nvcc", os.X_OK)
    assert made.name.startswith("cuda-13.0.88-")
    assert assemble(home, "13.0.88", tmp_path / "cache") == made


def test_the_older_layout_has_its_headers_merged(tmp_path: Path) -> None:
    nvidia = tmp_path / "nvidia"
    _script(nvidia / "cuda_nvcc" / "bin" / "nvcc", "true")
    for name in (
        "cuda_nvcc/include/crt/host_config.h",
        "cuda_runtime/include/crt/host_runtime.h",
        "cuda_runtime/include/cuda_runtime.h",
        "cuda_runtime/lib/libcudart.so.12",
    ):
        (nvidia / name).parent.mkdir(parents=True, exist_ok=True)
        (nvidia / name).touch()
    (home,) = wheel_homes([nvidia])

    made = assemble(home, "12.9.1", tmp_path / "cache")

    headers = {path.name for path in (made / "include" / "crt").iterdir()}
    assert headers == {"host_config.h", "host_runtime.h"}
    assert can_link(made)


def test_links_that_dangle_are_made_again(tmp_path: Path) -> None:
    home = _wheel_home(tmp_path)
    made = assemble(home, "13.0.88", tmp_path / "cache")
    (made / "bin" / "nvcc").unlink()
    (made / "bin" / "nvcc").symlink_to(tmp_path / "gone")

    assert (assemble(home, "13.0.88", tmp_path / "cache") / "bin" / "nvcc").exists()


def test_wheels_without_the_runtime_are_refused(tmp_path: Path) -> None:
    home = _wheel_home(tmp_path)
    (home / "lib" / "libcudart.so.13").unlink()
    with pytest.raises(ToolchainError, match=r"no libcudart\.so"):
        assemble(home, "13.0.88", tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_building_process_finds_the_interpreters_own_tools_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    base = {**_nowhere(monkeypatch, tmp_path), "KEPT": "1"}
    environment = child_environment(base)
    assert environment["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert environment["KEPT"] == "1"
    assert "CUDA_HOME" not in environment


def test_a_building_process_gets_the_toolkit_as_cuda_home(tmp_path: Path) -> None:
    made = assemble(_wheel_home(tmp_path), "13.0.88", tmp_path / "cache")
    environment = child_environment({"CUDA_HOME": str(made), "PATH": "/bin"})
    assert environment["CUDA_HOME"] == str(made)
    assert str(made / "bin") in environment["PATH"].split(os.pathsep)


def test_cxx_wins_and_may_hold_arguments(tmp_path: Path) -> None:
    _script(tmp_path / "mycc", "echo 'mycc 7.8.9'")
    compiler = find_compiler({"CXX": f"{tmp_path / 'mycc'} -m64", "PATH": "/bin"})
    assert compiler.command == (str(tmp_path / "mycc"), "-m64")
    assert compiler.version == "7.8.9"


def test_a_cxx_that_does_not_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="does not run"):
        find_compiler({"CXX": str(tmp_path / "absent"), "PATH": os.environ["PATH"]})


@pytest.mark.nvcc
def test_the_toolkit_of_this_machine_compiles(tmp_path: Path) -> None:
    toolkit = find_toolkit()
    (tmp_path / "k.cu").write_text("__global__ void k(float* y) { y[0] = 1; }\n")
    command = [str(toolkit.nvcc), "-arch=sm_80", "-cubin", "k.cu", "-o", "k.cubin"]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert can_link(toolkit.home)


def test_without_a_home_folder_the_mend_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert cache_folder({"XDG_CACHE_HOME": "/somewhere"}) == Path("/somewhere/kernelgen")
    with pytest.raises(UserError, match="set XDG_CACHE_HOME"):
        cache_folder({})
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert check_cache().mend == "set XDG_CACHE_HOME to a folder that can be written"
    assert check_calibration().state == "warning"

"""Python processes of kernelgen's own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgen.child_python import WEAKENING, own_environment, start_code


@pytest.mark.parametrize("path", ["", "relative"])
def test_they_find_kernelgen_and_nothing_of_the_folder_they_start_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit('planted')\n")
    monkeypatch.setenv("PYTHONPATH", path)
    for name in WEAKENING:
        monkeypatch.setenv(name, "1")
    environment = own_environment()
    assert not set(WEAKENING) & set(environment)
    code = start_code("kernelgen.errors", "ExitCode(2)")
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; import msgspec"], cwd=tmp_path, env=environment, check=True
    )
    assert done.returncode == 0
    assert all(Path(entry).is_absolute() for entry in environment["PYTHONPATH"].split(os.pathsep))

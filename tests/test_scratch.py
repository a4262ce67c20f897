"""Folders for temporary files: gone afterwards, and swept by the next run after a kill."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kernelgen.scratch import sweep, temporary_folder

HOLD = """
import sys
from kernelgen.scratch import temporary_folder
with temporary_folder() as folder:
    (folder / "left").write_text("x")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of the test's own."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def holder(place: Path) -> "tuple[subprocess.Popen[str], Path]":
    """Start a process that has a temporary folder; return it and the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(place)},
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()


def test_a_killed_run_s_folder_is_swept_by_the_next_and_a_running_one_s_is_not(
    temporary: Path,
) -> None:
    killed, left = holder(temporary)
    running, kept = holder(temporary)
    try:
        end(killed)
        assert (left / "left").exists()
        with temporary_folder() as mine:
            assert sorted(temporary.iterdir()) == sorted([kept, mine])
        assert (kept / "left").exists()
    finally:
        end(running)
    sweep()
    assert list(temporary.iterdir()) == []


def test_what_is_not_surely_ours_stays(temporary: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".in-use").touch()
    (temporary / "kernelgen-link").symlink_to(elsewhere)
    for name, lock in (("kernelgen-bare", None), ("other-run", "file"), ("kernelgen-fifo", "fifo"),
                       ("kernelgen-linked", "link")):  # fmt: skip
        folder = temporary / name
        folder.mkdir()
        if lock == "file":
            (folder / ".in-use").touch()
        elif lock == "fifo":
            os.mkfifo(folder / ".in-use")
        elif lock == "link":
            (folder / ".in-use").symlink_to(elsewhere / ".in-use")
    before = sorted(temporary.iterdir())
    sweep()
    assert sorted(temporary.iterdir()) == before
    assert (elsewhere / ".in-use").exists()


def test_links_in_a_left_folder_are_not_followed(temporary: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    left = temporary / "kernelgen-left"
    left.mkdir()
    (left / ".in-use").touch()
    (left / "link").symlink_to(precious)
    sweep()
    assert not left.exists()
    assert (precious / "file").exists()


def test_what_cannot_be_removed_does_not_stop_a_run(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = temporary / "kernelgen-left"
    left.mkdir()
    (left / ".in-use").touch()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr("kernelgen.scratch._remove_if_left", refuse)
    with temporary_folder() as folder:
        assert folder.is_dir()
    assert left.exists()

"""A full disk: at the start, in a build, under a candidate that fills it; the status is clear."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.ci

HERE = Path(__file__).parent
HONEST = HERE / "candidates" / "honest_softmax.py"
PROBLEM = HERE / "problems" / "tiny_softmax.yaml"
EXIT_CANDIDATE, EXIT_GRADER = 1, 3

# A file system of its own, in namespaces of its own: it is gone with the process.
IN_SMALL_DISK = """
mount -t tmpfs -o "$1" none "$2" || exit 99
shift 2
exec "$@"
"""


def run_on_disk(options: str, disk: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """Run a command whose folder for temporary files is a small file system."""
    namespaces = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", IN_SMALL_DISK)
    try:
        done = subprocess.run(
            [*namespaces, "sh", options, str(disk), *command],
            env={**os.environ, "TMPDIR": str(disk)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except FileNotFoundError:
        pytest.skip("there is no `unshare` to make a small file system with")
    refused = done.returncode == 99 or done.stderr.startswith("unshare:")
    if refused:
        pytest.skip(f"this machine allows no file system of one's own: {done.stderr.strip()}")
    return done


def graded(
    folder: Path, options: str, text: str, *more: str
) -> tuple["subprocess.CompletedProcess[str]", list[Any]]:
    """Grade one file on a small disk; return its verdicts, too."""
    disk, report, solution = folder / "disk", folder / "report.json", folder / "solution.py"
    disk.mkdir()
    solution.write_text(text)
    grade = [sys.executable, "-m", "kernelgen", "grade", str(solution), "--problem", str(PROBLEM)]
    grade += ["--no-timing", "-q", "--json", str(report), *more]
    done = run_on_disk(options, disk, *grade)
    assert "Traceback" not in done.stderr
    verdicts = json.loads(report.read_text())["verdicts"] if report.exists() else []
    return done, verdicts


def with_line(line: str, before: str = "SOURCE =") -> str:
    text = HONEST.read_text()
    assert text.count(before) == 1
    return text.replace(before, f"{line}\n{before}")


@pytest.mark.long
def test_a_disk_with_room_is_no_matter(tmp_path: Path) -> None:
    done, verdicts = graded(tmp_path, "size=64m", HONEST.read_text())
    assert [verdict["status"] for verdict in verdicts] == ["PASSED"], done.stderr
    assert done.returncode == 0


def test_no_room_for_a_folder_at_the_start(tmp_path: Path) -> None:
    done, verdicts = graded(tmp_path, "size=64m,nr_inodes=2", HONEST.read_text())
    assert (done.returncode, verdicts) == (EXIT_GRADER, [])
    assert len(done.stderr.splitlines()) == 1
    assert "disk is full" in done.stderr or "No space left" in done.stderr


@pytest.mark.parametrize(
    "inodes", [4, 8, *(pytest.param(n, marks=pytest.mark.long) for n in (6, 9, 11))]
)
def test_no_room_for_one_more_file(tmp_path: Path, inodes: int) -> None:
    done, verdicts = graded(tmp_path, f"size=64m,nr_inodes={inodes}", HONEST.read_text())
    assert done.returncode in {EXIT_GRADER, 0}
    for verdict in verdicts:
        assert verdict["status"] in {"GRADER_ERROR", "PASSED"}
        if verdict["status"] == "GRADER_ERROR":
            assert "full" in verdict["reason"] or "No space left" in verdict["reason"]
    assert verdicts or len(done.stderr.splitlines()) == 1


def test_no_room_in_the_build(tmp_path: Path) -> None:
    # Room for sources and logs, not for the object file. Contained, it would not be on the disk.
    large = with_line('extern "C" char table[1 << 20] = {1};', "// x and y")
    done, (verdict,) = graded(tmp_path, "size=512k", large, "--sandbox", "off")
    assert (verdict["status"], verdict["owner"]) == ("GRADER_ERROR", "grader")
    assert "is full" in verdict["reason"]
    assert done.returncode == EXIT_GRADER


@pytest.mark.long
def test_no_room_for_what_it_prints(tmp_path: Path) -> None:
    chatter = with_line("for _ in range(600): print('x' * 65536, flush=True)")
    done, (verdict,) = graded(tmp_path, "size=24m", chatter)
    assert (verdict["status"], verdict["owner"]) == ("GRADER_ERROR", "grader")
    assert "is full" in verdict["reason"]
    assert done.returncode == EXIT_GRADER


def test_a_candidate_that_fills_the_disk_is_named_itself(tmp_path: Path) -> None:
    filler = with_line(
        "with open('filler', 'wb') as hoard:\n    while True: hoard.write(bytes(1 << 20))"
    )
    done, (verdict,) = graded(tmp_path, "size=640m", filler)
    assert (verdict["status"], verdict["owner"]) == ("RUNTIME_ERROR", "candidate")
    assert "No space left" in verdict["reason"]
    assert done.returncode == EXIT_CANDIDATE


def test_a_report_that_cannot_be_written_whole_is_said(tmp_path: Path) -> None:
    disk, solution = tmp_path / "disk", tmp_path / "solution.py"
    disk.mkdir()
    solution.write_text("not Python\n")
    done = run_on_disk(
        "size=64k",
        disk,
        *("sh", "-c", 'head -c 100000 /dev/zero > "$TMPDIR/filler" 2>/dev/null; exec "$@"', "sh"),
        *(sys.executable, "-m", "kernelgen", "grade", str(solution), "-q"),
        *("--problem", str(PROBLEM), "--json", str(disk / "report.json")),
    )
    assert done.returncode == EXIT_GRADER
    assert "disk is full" in done.stderr
    assert "Traceback" not in done.stderr

"""The journal: what is in it is there again, whatever ended the run that wrote it."""

import random
import resource
from pathlib import Path

import msgspec
import pytest
from report_runs import failed, passed

from kernelgen.errors import UserError
from kernelgen.grading.queue.journal import Journal
from kernelgen.grading.verdict import Owner, Status, Verdict

FACTS = {"torch": "2.11.0", "gpu": None}


def filled(path: Path, count: int = 5) -> dict[str, Verdict]:
    verdicts = {f"{number:064x}": passed(f"file_{number}.py") for number in range(count)}
    with Journal(path) as journal:
        for key, verdict in verdicts.items():
            journal.add(key, verdict, FACTS)
    return verdicts


def test_verdicts_are_there_again(tmp_path: Path) -> None:
    verdicts = filled(tmp_path / "run")
    with Journal(tmp_path / "run") as journal:
        assert journal.count == 5
        assert {key: journal.find(key) for key in verdicts} == verdicts
        assert journal.find("f" * 64) is None
        assert journal.environment == FACTS
        assert journal.torn == 0


def test_a_fault_of_the_graders_is_not_kept(tmp_path: Path) -> None:
    fault = msgspec.structs.replace(
        passed("a.py"),
        status=Status.GRADER_ERROR,
        owner=Owner.GRADER,
        reason="the device is lost",
        timing=None,
    )
    with Journal(tmp_path / "run") as journal:
        journal.add("a", fault, FACTS)
        journal.add("b", failed(Status.CRASHED), FACTS)
        assert journal.find("a") is None
        assert journal.count == 1


def test_a_cut_at_any_place_loses_the_last_verdict_alone(tmp_path: Path) -> None:
    path = tmp_path / "run"
    verdicts = filled(path, 3)
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    cuts = random.Random(5).sample(range(len(whole)), 60)
    for cut in [*cuts, *ends, 0, 1]:
        path.write_bytes(whole[:cut])
        with Journal(path) as journal:
            # The header and the environment are lines too.
            kept = max(0, sum(end <= cut for end in ends) - 2)
            assert journal.count == kept
            journal.add("f" * 64, passed("later.py"), FACTS)
        with Journal(path) as journal:
            assert journal.torn == 0
            assert journal.find("f" * 64) == passed("later.py")
            for key in list(verdicts)[:kept]:
                assert journal.find(key) == verdicts[key]


def test_a_torn_line_is_left_out_and_the_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "run"
    verdicts = filled(path, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b"PASSED", b"PASSEE")
    path.write_bytes(b"".join(lines))
    with Journal(path) as journal:
        assert journal.torn == 1
        found = [journal.find(key) for key in verdicts]
        assert found == [*list(verdicts.values())[:1], None, *list(verdicts.values())[2:]]


def test_what_a_full_disk_refused_is_written_once_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "run"
    filled(path, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(path) as journal:
        size = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, hard))
        try:
            journal.add("b" * 64, passed("b.py"), FACTS)
            assert "cannot be written: File too large" in journal.problem
            assert path.stat().st_size == size
            journal.add("c" * 64, passed("c.py"), FACTS)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        journal.add("d" * 64, passed("d.py"), FACTS)
        assert journal.problem == ""
        assert journal.count == 4
    with Journal(path) as journal:
        assert journal.find("b" * 64) == passed("b.py")
        assert journal.find("c" * 64) == passed("c.py")


def test_one_run_at_a_time_writes_it(tmp_path: Path) -> None:
    with (
        Journal(tmp_path / "run"),
        pytest.raises(UserError, match="run: another run is writing it"),
    ):
        Journal(tmp_path / "run")
    with Journal(tmp_path / "run") as journal:
        assert journal.count == 0


@pytest.mark.parametrize("content", [b"{}\n", b"import torch\n", bytes(range(64)), b"x"])
def test_another_file_is_refused_and_stays(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "solution.py"
    path.write_bytes(content)
    with pytest.raises(UserError, match="not a journal of kernelgen's; name a new file"):
        Journal(path)
    assert path.read_bytes() == content


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no/run: cannot be opened: No such file"):
        Journal(tmp_path / "no" / "run")
    with pytest.raises(UserError, match="cannot be opened: Is a directory"):
        Journal(tmp_path)

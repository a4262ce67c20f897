"""The verdicts of a run come back from the disk, whatever becomes of it."""

import resource
from pathlib import Path

import pytest
from report_runs import failed, passed

from kernelgen.grading.queue.journal import write_at
from kernelgen.grading.queue.spool import Spool
from kernelgen.grading.verdict import Status


def test_verdicts_come_in_the_order_of_the_files(tmp_path: Path) -> None:
    verdicts = [passed(f"{number}.py") for number in range(12)]
    verdicts[5] = failed(Status.WRONG_SHAPE, "5.py", log="two\nlines\r\u2028")
    with Spool(tmp_path / "spool") as spool:
        assert spool.read() == ()
        for index in (11, 3, 0, 5, 7):
            spool.add(index, verdicts[index])
        assert spool.read() == tuple(verdicts[index] for index in (0, 3, 5, 7, 11))
        spool.add(1, verdicts[1])
        assert spool.read()[1] == verdicts[1]


def test_what_a_full_disk_does_not_take_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Spool(path) as spool:
        spool.add(2, passed("2.py"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, hard))
        try:
            spool.add(0, passed("0.py"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        spool.add(1, passed("1.py"))
        assert [verdict.solution for verdict in spool.read()] == ["0.py", "1.py", "2.py"]


def test_an_add_that_is_interrupted_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(descriptor: int, data: bytes, place: int) -> None:
        write_at(descriptor, data[:100], place)
        raise KeyboardInterrupt

    with Spool(tmp_path / "spool") as spool:
        spool.add(0, passed("0.py"))
        monkeypatch.setattr("kernelgen.grading.queue.spool.write_at", interrupted)
        with pytest.raises(KeyboardInterrupt):
            spool.add(1, passed("1.py"))
        assert spool.read() == (passed("0.py"),)
        monkeypatch.undo()
        for _ in range(2):  # also where it was kept, and nobody heard of that
            spool.add(1, passed("1.py"))
        assert spool.read() == (passed("0.py"), passed("1.py"))

"""Turns on a device: within a process by threads, between processes by files."""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from kernelgen.grading.queue.job import LaneStopped
from kernelgen.grading.supervisor import timing_lock
from kernelgen.grading.supervisor.timing_lock import DeviceLock, Room, TimingLock

UUID = "GPU-5f0c7f2e"


def test_who_is_alone_can_end_what_the_others_are_at_and_not_itself() -> None:
    lock, told = TimingLock(), []
    started, end = threading.Event(), threading.Event()

    def waits() -> None:
        with (
            lock.working(),
            lock.endable(lambda: told.append("other")),
            lock.pausable(lambda: None, lambda: None),
        ):
            started.set()
            end.wait(60)

    thread = threading.Thread(target=waits, daemon=True)
    thread.start()
    assert started.wait(60)
    with lock.working(), lock.endable(lambda: told.append("own")), lock.alone():
        lock.end_others()
        assert told == ["other"]
        end.set()
    thread.join(60)
    with lock.working(), lock.alone():
        lock.end_others()
    assert told == ["other"]


def test_what_is_pausable_stands_still_while_another_is_alone() -> None:
    lock, told = TimingLock(), []
    started, end = threading.Event(), threading.Event()

    def builds() -> None:
        pause, resume = (lambda: told.append("pause")), (lambda: told.append("resume"))
        with lock.working():
            with lock.pausable(pause, resume):
                started.set()
                end.wait(60)
            told.append("built")

    thread = threading.Thread(target=builds, daemon=True)
    thread.start()
    assert started.wait(60)
    with lock.working(), lock.alone():
        told.append("alone")
        end.set()  # its answer came just before it was stopped
        thread.join(0.05)
        assert told == ["pause", "alone"]
    thread.join(60)
    assert told == ["pause", "alone", "resume", "built"]
    # Calls that still run go on.
    end.clear()
    started.clear()
    told.clear()
    thread = threading.Thread(target=builds, daemon=True)
    thread.start()
    assert started.wait(60)
    with lock.working(), lock.alone():
        pass
    end.set()
    thread.join(60)
    assert told == ["pause", "resume", "built"]


def test_who_gives_way_goes_on_once_nobody_waits_to_be_timed() -> None:
    lock, told = TimingLock(), []
    ready = threading.Barrier(3, timeout=60)

    def is_timed() -> None:
        with lock.working():
            ready.wait()
            with lock.alone():
                told.append("alone")

    threads = [threading.Thread(target=is_timed, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    with lock.working():
        ready.wait()
        for thread in threads:
            thread.join(0.05)
        assert not told
        lock.give_way()
        assert told == ["alone", "alone"]
        with lock.alone():
            lock.give_way()


def test_within_alone_nothing_waits_for_itself() -> None:
    lock = TimingLock()
    with lock.working(), lock.alone():
        assert lock.is_mine
        with lock.working(), lock.pausable(lambda: None, lambda: None), lock.alone():
            pass
    assert not lock.is_mine


def _hold(folder: Path, has_it: Event, let_go: Event) -> None:
    lock = DeviceLock(folder)
    lock.name(UUID)
    with lock.alone(lambda: None):
        has_it.set()
        let_go.wait(60)


@pytest.mark.parametrize("killed", [False, True])
def test_a_gpu_is_one_process_s_alone_until_it_ends(tmp_path: Path, *, killed: bool) -> None:
    forks = multiprocessing.get_context("fork")
    has_it, let_go = forks.Event(), forks.Event()
    other = forks.Process(target=_hold, args=(tmp_path, has_it, let_go))
    other.start()
    assert has_it.wait(60)
    mine, waited, shared = DeviceLock(tmp_path), [], threading.Event()
    mine.name(UUID)

    def share() -> None:
        mine.share()
        shared.set()

    thread = threading.Thread(target=share, daemon=True)
    thread.start()
    assert not shared.wait(0.1)
    if killed:
        assert other.pid is not None
        os.kill(other.pid, signal.SIGKILL)
    else:
        let_go.set()
    assert shared.wait(60)
    other.join(60)
    mine.leave()
    with mine.alone(lambda: waited.append(1)):
        assert not waited


def test_who_wants_a_gpu_alone_waits_for_those_who_share_it_and_for_none_after(
    tmp_path: Path,
) -> None:
    one, two, three = (DeviceLock(tmp_path) for _ in range(3))
    for lock in (one, two, three):
        lock.name(UUID)
    order: list[str] = []
    waits = threading.Event()

    def alone() -> None:
        with two.alone(waits.set):
            order.append("alone")
            time.sleep(0.02)

    def late() -> None:
        three.share()
        order.append("late")
        three.leave()

    one.share()
    threads = [threading.Thread(target=work, daemon=True) for work in (alone, late)]
    threads[0].start()
    assert waits.wait(60)
    threads[1].start()
    threads[1].join(0.05)
    assert order == []
    one.leave()
    for thread in threads:
        thread.join(60)
    assert order == ["alone", "late"]


def test_a_wait_can_be_ended_and_a_lock_without_a_name_or_a_folder_is_free(tmp_path: Path) -> None:
    held, waiting = DeviceLock(tmp_path), DeviceLock(tmp_path)
    held.name(UUID)
    waiting.name(UUID)
    with held.alone(lambda: None):
        threading.Timer(0.05, waiting.stop).start()
        with pytest.raises(LaneStopped):
            waiting.share()
    for free in (DeviceLock(tmp_path), DeviceLock(tmp_path / "none"), DeviceLock(tmp_path)):
        free.name("../etc")
        free.name("")
        free.share()
        free.leave()
        with free.alone(lambda: None):
            pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"kernelgen-{UUID}.lock",
        f"kernelgen-{UUID}.queue",
    ]


def test_a_link_in_the_place_of_a_lock_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    (tmp_path / f"kernelgen-{UUID}.queue").symlink_to(target)
    lock = DeviceLock(tmp_path)
    lock.name(UUID)
    lock.share()
    assert not target.exists()


def test_threads_that_name_a_gpu_at_once_open_its_files_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened = []

    def slowly(_: DeviceLock, name: str) -> int:
        opened.append(name)
        time.sleep(0.05)
        return os.open(tmp_path / name, os.O_RDONLY | os.O_CREAT)

    monkeypatch.setattr(DeviceLock, "_opened", slowly)
    lock = TimingLock()
    threads = [threading.Thread(target=lock.on_device, args=(UUID,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened == [f"kernelgen-{UUID}.queue", f"kernelgen-{UUID}.lock"]


# Room


class Case:
    """A main case in a thread of its own, which stays inside until `go`."""

    def __init__(self, lock: TimingLock, room: Room, size: int) -> None:
        self.waits, self.inside, self.ended = (threading.Event() for _ in range(3))
        self._leave, self._timed = threading.Event(), False
        self._thread = threading.Thread(target=self._run, args=(lock, room, size), daemon=True)
        self._thread.start()

    def _run(self, lock: TimingLock, room: Room, size: int) -> None:
        try:
            with lock.working(), room.taken(size, 10, self.waits.set):
                self.inside.set()
                assert self._leave.wait(60)
                if self._timed:
                    with lock.alone():
                        pass
        except LaneStopped:
            self.ended.set()

    def is_inside(self) -> bool:
        """Whether it is let in at once or does not wait any longer."""
        while not (self.waits.is_set() or self.inside.is_set()):
            time.sleep(0.001)
        return self.inside.is_set()

    def go(self, *, timed: bool = False) -> None:
        """Leave, perhaps after a time alone."""
        self._timed = timed
        self._leave.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_main_cases_lie_beside_each_other_while_they_fit_in_the_order_they_came() -> None:
    lock = TimingLock()
    room = Room(lock)
    first, second = Case(lock, room, 6), Case(lock, room, 4)
    assert first.is_inside()
    assert second.is_inside()
    large = Case(lock, room, 99)
    assert not large.is_inside()
    small = Case(lock, room, 1)  # it would fit once the first has left
    assert not small.is_inside()
    first.go()
    assert not large.inside.wait(0.05)
    assert not small.inside.is_set()
    second.go(timed=True)  # those who wait for room do not hinder it
    assert large.inside.wait(60)
    assert not small.inside.wait(0.05)
    large.go()
    assert small.inside.wait(60)
    small.go()
    after = Case(lock, room, 10)
    assert after.is_inside()
    after.go()


def test_who_is_alone_takes_room_and_who_waits_can_be_stopped() -> None:
    lock = TimingLock()
    room = Room(lock)
    in_vain = pytest.fail
    with lock.working(), lock.alone(), room.taken(10, 10, in_vain), room.taken(5, 10, in_vain):
        pass
    inside = Case(lock, room, 10)
    assert inside.is_inside()
    waiting = Case(lock, room, 1)
    assert not waiting.is_inside()
    room.stop()
    assert waiting.ended.wait(60)
    inside.go()


def test_who_waits_to_begin_is_let_in_after_a_few_that_are_timed() -> None:
    lock, told = TimingLock(), []
    ready, comes = threading.Barrier(8, timeout=60), threading.Event()

    def is_timed() -> None:
        with lock.working():
            ready.wait()
            with lock.alone():
                told.append("timed")
                comes.wait(60)
                time.sleep(0.05)

    def begins() -> None:
        while not told:
            time.sleep(0.001)
        comes.set()
        with lock.working():
            told.append("begins")

    threads = [threading.Thread(target=is_timed, daemon=True) for _ in range(7)]
    threads.append(threading.Thread(target=begins, daemon=True))
    for thread in threads:
        thread.start()
    ready.wait()
    for thread in threads:
        thread.join(60)
    assert told.count("timed") == 7
    assert told.index("begins") <= 5


def test_whoever_waits_to_begin_or_to_be_timed_ends_once_all_is_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(timing_lock, "DeviceLock", partial(DeviceLock, tmp_path))
    timed: list[int] = []
    lock = TimingLock()
    lock.on_device(UUID)
    ready, comes = threading.Barrier(6, timeout=60), threading.Event()

    def is_timed() -> None:
        with contextlib.suppress(LaneStopped), lock.working():
            ready.wait()
            with lock.alone():
                timed.append(1)
                comes.wait(60)
                time.sleep(0.05)
                if len(timed) == 4:  # whoever waits to begin is let in now
                    lock.stop()

    def begins() -> None:
        while not timed:
            time.sleep(0.001)
        comes.set()
        with contextlib.suppress(LaneStopped), lock.working():
            pytest.fail("it began")

    threads = [threading.Thread(target=is_timed, daemon=True) for _ in range(5)]
    threads.append(threading.Thread(target=begins, daemon=True))
    for thread in threads:
        thread.start()
    ready.wait()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert len(timed) == 4


def test_nobody_begins_before_the_gpu_is_no_longer_one_s_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[int] = []
    began: list[int] = []

    class Slow(DeviceLock):
        @contextlib.contextmanager
        def alone(self, waiting: Callable[[], None]) -> Iterator[None]:
            with super().alone(waiting):
                yield
                before = len(began)
                late = threading.Thread(target=begins, daemon=True)
                late.start()
                threads.append(late)
                late.join(0.05)
                ended.append(len(began) - before)

    monkeypatch.setattr(timing_lock, "DeviceLock", Slow)
    lock, ready = TimingLock(), threading.Barrier(7, timeout=60)

    def begins() -> None:
        with lock.working():
            began.append(1)

    def is_timed() -> None:
        with lock.working():
            ready.wait()
            with lock.alone():
                pass

    threads = [threading.Thread(target=is_timed, daemon=True) for _ in range(6)]
    for thread in threads:
        thread.start()
    ready.wait()
    for thread in threads:  # those that begin late, too
        thread.join(60)
    assert ended == [0] * 6
    assert len(began) == 6

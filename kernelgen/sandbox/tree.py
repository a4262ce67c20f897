"""The processes of a contained candidate, seen from outside, and stopping all of them at once."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

_FREEZE_TIMEOUT_S = 5.0
# A thread inside the kernel stops before it returns to its code; a driver may keep it a while.
_PATIENCE_S = 0.05
_PAUSE_S = 20e-6
_IS_STOPPED = "TtZX"
_OWN = ("RssAnon:", "RssShmem:", "VmSwap:")


def children_of(pid: int) -> list[int]:
    """Return the children of all threads of a process, oldest first; none if it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:  # noqa: PTH123
                found += [int(child) for child in file.read().split()]
    return found


def ancestors_of(pid: int) -> list[int]:
    """Return a process's parent, that one's parent and so on; as far as they are there."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        while pid > 1:
            # The name before it may hold anything, brackets and spaces included.
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            pid = int(fields[1])
            found.append(pid)
    return found


def processes_below(roots: Iterable[int]) -> list[int]:
    """Return processes and all that descends from them."""
    found: dict[int, None] = {}
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found[pid] = None
            waiting += children_of(pid)
    return list(found)


def first_process(keeper: int) -> int | None:
    """Return the first process of a keeper's process table, to which orphans come."""
    return next(iter(children_of(keeper)), None)


def contained_process(keeper: int) -> int | None:
    """Return the process for whose sake a keeper runs: its child's first child."""
    first = first_process(keeper)
    return None if first is None else next(iter(children_of(first)), None)


def tasks_of(pid: int) -> int:
    """Return how many threads a process has."""
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}/task").st_nlink - 2  # noqa: PTH116
    return 0


def freeze(list_processes: Callable[[], Iterable[int]]) -> None:
    """Stop every listed process; on return none runs, and none can have started another.

    The list is made again until it holds nothing new and everything in it has stopped: what is not
    stopped yet may fork, or continue what is.

    Raises:
        TimeoutError: they do not stop, such as when one keeps continuing another.
    """
    start = time.monotonic()
    before: set[int] = set()
    while True:
        present = set(list_processes())
        for pid in present:
            _signal(pid, signal.SIGSTOP)
        waited_s = time.monotonic() - start
        running = [pid for pid in present if not _has_stopped(pid, patient=waited_s < _PATIENCE_S)]
        if not running and present == before:
            return
        if waited_s > _FREEZE_TIMEOUT_S:
            raise TimeoutError(f"{len(running)} of {len(present)} processes do not stop")
        before = present
        if running:
            time.sleep(_PAUSE_S)


def thaw(list_processes: Callable[[], Iterable[int]]) -> None:
    """Let every listed process go on."""
    for pid in list_processes():
        _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _has_stopped(pid: int, *, patient: bool) -> bool:
    """Whether no thread of a process can run its code."""
    accepted = _IS_STOPPED if patient else _IS_STOPPED + "D"
    try:
        tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except OSError:
        return True
    return all(_state(f"/proc/{pid}/task/{task}/stat") in accepted for task in tasks)


def _state(path: str) -> str:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return chr(file.read(256).rpartition(b") ")[2][0])
    except OSError:
        return "X"


def resident_bytes(pids: Iterable[int], limit_bytes: int) -> int:
    """Return the memory of processes; what they share is counted once where that decides."""
    pids = list(pids)
    resident = sum(_resident(pid) for pid in pids)
    return resident if resident <= limit_bytes else sum(_proportional(pid) for pid in pids)


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError):
        pages = Path(f"/proc/{pid}/statm").read_bytes().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _proportional(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return _resident(pid)


def own_bytes(pid: int) -> int:
    """Return the memory that a process keeps from others, swapped out or not; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    fields = (line.split() for line in status.splitlines() if line.startswith(_OWN))
    return sum(int(field[1]) * 1024 for field in fields)


def tree_bytes(pid: int) -> int:
    """Return the memory that a process and all below it keep from others, swapped out or not."""
    return sum(own_bytes(one) for one in processes_below([pid]))

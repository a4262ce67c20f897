"""The processes of a contained candidate, seen from outside."""

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path


def tasks(pid: int, name: str) -> Iterator[bytes]:
    """Yield a file of the kernel's about each thread of a process; none if it is gone.

    A process's own files tell of its first thread, which may end before the others do.
    """
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    for task in names:
        with (
            contextlib.suppress(OSError),
            open(f"/proc/{pid}/task/{task}/{name}", "rb", buffering=0) as file,  # noqa: PTH123
        ):
            yield file.read()


def children_of(pid: int) -> list[int]:
    """Return the children of all threads of a process, oldest first; none if it is gone."""
    return [int(child) for told in tasks(pid, "children") for child in told.split()]


def ancestors_of(pid: int) -> list[int]:
    """Return a process's parent, that one's parent and so on; as far as they are there."""
    found: list[int] = []
    while pid > 1 and (fields := _stat(pid)):
        pid = int(fields[1])
        found.append(pid)
    return found


def _stat(pid: int) -> list[bytes]:
    """Return what the kernel says of a process, from its state on; nothing if it is gone."""
    with contextlib.suppress(OSError):
        # The name before it may hold anything, brackets and spaces included.
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return []


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to those of some processes that are there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


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


def children_cpu_s(pid: int) -> float:
    """Return the processor time of all that a process has started and waited for, or still runs."""
    # A process's own time in user and in system mode, then its children's that ended.
    ticks = _stat(pid)[13:15]
    ticks += [n for child in processes_below(children_of(pid)) for n in _stat(child)[11:15]]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def tasks_of(pid: int) -> int:
    """Return how many threads a process has."""
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}/task").st_nlink - 2  # noqa: PTH116
    return 0


def resident_bytes(pids: Iterable[int], limit_bytes: int) -> int:
    """Return the memory of processes; what they share is counted once where that decides."""
    resident = {pid: _memory(pid, "status", b"VmRSS:") for pid in pids}
    if sum(resident.values()) <= limit_bytes:
        return sum(resident.values())
    return sum(_memory(pid, "smaps_rollup", b"Pss:") or resident[pid] for pid in resident)


def own_bytes(pid: int) -> int:
    """Return the memory that a process keeps from others, swapped out or not; 0 if it has ended."""
    return _memory(pid, "status", b"RssAnon:", b"RssShmem:", b"VmSwap:")


def _memory(pid: int, name: str, *fields: bytes) -> int:
    """Return the sum of some fields of a process's file, by a thread that still has memory."""
    # The process's name, on the first line, may hold any byte but a newline.
    sums = (
        sum(int(line.split()[1]) * 1024 for line in told.split(b"\n") if line.startswith(fields))
        for told in tasks(pid, name)
    )
    return next(filter(None, sums), 0)

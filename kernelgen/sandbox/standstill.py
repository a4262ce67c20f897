"""Stopping a candidate's processes all at once, and proof that they stayed stopped.

SIGSTOP keeps nobody from being woken: a timer, or the end of a parent, sends SIGCONT as well. So
what matters is not that the signal was sent but that the processes took no processor time.
"""

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterable

import msgspec

from kernelgen.sandbox.tree import send, tasks

_FREEZE_TIMEOUT_S = 5.0
# A thread inside the kernel stops before it returns to its code; a driver may keep it a while.
_PATIENCE_S = 0.05
_PAUSE_S = 20e-6
_IS_STOPPED, _IS_DEAD = "TtZX", "ZX"
# Looks at processor time while they stop: the first look that finds what the last one
# does says when they had stopped.
_LOOKS = 3
# The rest of an uninterruptible call, such as reading a page from a disk, is short.
CALL_SLACK_NS = 10e6
# A thread counts as stopped a moment before it leaves its core.
_UNSURE_SLACK_NS = 50e3


class Standstill(msgspec.Struct, frozen=True, kw_only=True):
    """Processes that have all been stopped, and how much each had run by then.

    Attributes:
        since_s: by `time.perf_counter`: nothing has run since.
        spent_ns: of each process that is not dead, the processor time of all its threads so far.
        in_calls: those of its threads that stop once an uninterruptible call ends, and that time of
            each alone.
        slack_ns: what stopping itself may still take of each.
    """

    since_s: float
    spent_ns: dict[int, int]
    in_calls: dict[int, dict[str, float]]
    slack_ns: float


class Unrest(Exception):  # noqa: N818 (evidence, not an error)
    """Stopped processes have run."""


class Ended(Unrest):
    """None of them has run, and some of them are no more."""


def freeze(list_processes: Callable[[], Iterable[int]], known: Iterable[int] = ()) -> Standstill:
    """Stop every listed process; on return none runs, and none can have started another.

    The list is made again until it holds nothing new, everything in it has stopped, and nothing in
    it has run since the look before: what is not stopped yet may fork, or continue what is.

    Args:
        list_processes: makes the list.
        known: those of them that are known to be there, to be stopped before the list is made.

    Raises:
        TimeoutError: they do not stop, such as when one keeps continuing another.
    """
    start_s = time.perf_counter()
    looks: list[tuple[float, dict[int, int]]] = []
    send(known, signal.SIGSTOP)
    while True:
        for _ in range(_LOOKS):
            looks.append(_look_at(known))
            time.sleep(_PAUSE_S)
        present = set(list_processes())
        send(present, signal.SIGSTOP)
        waited_s = time.perf_counter() - start_s
        accepted = set(_IS_STOPPED if waited_s < _PATIENCE_S else _IS_STOPPED + "D")
        states = {pid: _states(pid) for pid in present}
        running = [pid for pid in present if not accepted.issuperset(states[pid].values())]
        before = set(known)
        known = [pid for pid in present if not set(_IS_DEAD).issuperset(states[pid].values())]
        if not before.issubset(known):
            # A process that has ended meanwhile, such as in a long call, has run until then.
            looks.clear()
        if not running:
            in_calls = {pid: calls for pid in known if (calls := _in_calls(pid, states[pid]))}
            sure = all(_is_off_its_core(pid, task) for pid in known for task in states[pid])
            slack_ns = 0.0 if sure else _UNSURE_SLACK_NS
            now_s, spent_ns = _look_at(known)
            since_s = next((at_s for at_s, spent in looks if spent == spent_ns), None)
            if since_s is not None:
                # A thread in a call may be at work for its caller.
                since_s = now_s if in_calls else since_s
                return Standstill(
                    since_s=since_s, spent_ns=spent_ns, in_calls=in_calls, slack_ns=slack_ns
                )
        if waited_s > _FREEZE_TIMEOUT_S:
            raise TimeoutError(f"{len(running)} of {len(present)} processes do not stop")


def require_still(
    before: Standstill,
    list_processes: Callable[[], Iterable[int]],
    call_slack_ns: float = CALL_SLACK_NS,
) -> None:
    """See that processes have not run since they were stopped.

    The processor time of a stopped process is constant, however busy a machine is. A thread that
    was inside an uninterruptible call may take `call_slack_ns` to its end.

    Raises:
        Unrest: one of them has run, or has started another.
        Ended: one of them has ended.
    """
    now = _look_at(list_processes())[1]
    if now == before.spent_ns:
        return
    # A killed process may be on its way out: it neither stops, nor was it woken.
    try:
        now = freeze(list_processes).spent_ns
    except TimeoutError as error:
        raise Ended(f"it is not what it was when it was stopped: {error}") from None
    ran_ns = []
    for pid, spent_ns in now.items():
        more_ns = spent_ns - before.spent_ns.get(pid, 0) - before.slack_ns
        for task, call_ns in before.in_calls.get(pid, {}).items():
            more_ns -= min(_spent_by(pid, task) - call_ns, call_slack_ns)
        ran_ns += [more_ns] if more_ns > 0 else []
    if ran_ns:
        taken = (
            f"{sum(ran_ns) / 1e6:.3g} ms of processor time went to {len(ran_ns)} of its processes"
        )
        why = "while all were stopped: something woke them, such as a timer that sends SIGCONT"
        raise Unrest(f"{taken} {why}")
    # The call of what has ended may have been its end.
    if gone := len(before.spent_ns.keys() - now.keys() - before.in_calls.keys()):
        why = "while all were stopped: something killed them, as the kernel does to free memory"
        raise Ended(f"{gone} of its processes ended {why}")


def thaw(list_processes: Callable[[], Iterable[int]]) -> float:
    """Let every listed process go on; return `time.perf_counter` as it was right before."""
    pids = list(list_processes())
    start_s = time.perf_counter()
    send(pids, signal.SIGCONT)
    return start_s


def _look_at(pids: Iterable[int]) -> tuple[float, dict[int, int]]:
    """Return the time, and the processor time of each of the processes that is there, in ns."""
    spent: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            # CPUCLOCK_SCHED of clock_getcpuclockid(3): of all threads, those that ended included.
            spent[pid] = time.clock_gettime_ns(~pid << 3 | 2)
    return time.perf_counter(), spent


def _states(pid: int) -> dict[str, str]:
    """Return the states of a process's threads; none if it is gone."""
    stats = (stat.split(b" ", 1) for stat in tasks(pid, "stat"))
    return {task.decode(): chr(rest.rpartition(b") ")[2][0]) for task, rest in stats}


def _in_calls(pid: int, states: dict[str, str]) -> dict[str, float]:
    return {task: _spent_by(pid, task) for task, state in states.items() if state == "D"}


def _spent_by(pid: int, task: str) -> float:
    """Return a thread's processor time in ns; NaN, which accuses nobody, if nothing tells it."""
    return float((_read(f"/proc/{pid}/task/{task}/schedstat").split() or [b"0"])[0]) or math.nan


def _is_off_its_core(pid: int, task: str) -> bool:
    """Wait until a stopped thread has left its core; False where the kernel refuses to say.

    Until then it may be due some microseconds for stopping. The kernel waits for that before it
    says which system call a thread is in.
    """
    return bool(_read(f"/proc/{pid}/task/{task}/syscall"))


def _read(path: str) -> bytes:
    """Return the beginning of a file of the kernel's, or nothing."""
    with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:  # noqa: PTH123
        return file.read(256) or b""
    return b""

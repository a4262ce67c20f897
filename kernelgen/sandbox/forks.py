"""Forks of a process that stays outside: what they leave behind, and how they are ended."""

import contextlib
import os
import signal
from collections.abc import Set as AbstractSet

from kernelgen.sandbox.tree import children_of, send


def close_all_but(kept: int) -> None:
    """Close every descriptor above 2 but one: the parent's own above all."""
    # By what is there: the limit on descriptors may be infinite, and says nothing of what is open.
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) > 2 and int(name) != kept:  # noqa: PLR2004 (standard error)
            with contextlib.suppress(OSError):  # the listing's own is among them
                os.close(int(name))


def kill_fork(pid: int) -> None:
    """Kill a fork and its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    send((pid,), signal.SIGKILL)  # it may not have made its own group yet


def end_children(besides: AbstractSet[int] = frozenset()) -> None:
    """End every child but some: what a fork started and left behind came to us."""
    while left := set(children_of(os.getpid())) - besides:
        send(left, signal.SIGKILL)
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)

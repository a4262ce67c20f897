"""The two processes between the grader and a contained process, and how an end is passed on.

The keeper is what the grader knows by its process id; it stays outside the new process table. Its
child is the first process (1) of that table: when it ends, the kernel kills all that is left there.
Neither does anything but wait, and the keeper ends as the contained process did.
"""

import contextlib
import os
import resource
import select
import signal
import struct
import warnings
from typing import NoReturn

from kernelgen.sandbox import kernel

_STATUS = struct.Struct("i")


def leave_threads_behind() -> None:
    """Go on in a fork where this process has other threads; this process ends as the fork does.

    The kernel gives a new user namespace only to a process of one thread, and Landlock restricts
    only the thread that asks. A library's pool is enough: OpenBLAS starts one when numpy, and so
    torch, is imported.
    """
    if len(os.listdir("/proc/self/task")) == 1:  # noqa: PTH208 (names alone)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads and fork: that is the point
        child = os.fork()
    if child:
        _forget()
        _, status = os.waitpid(child, 0)
        _end_as(status)
    _end_with_parent()


def fork_keeper() -> int:
    """Fork the first process of the new process table; only that child returns.

    Returns:
        A descriptor that `fork_contained` needs.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        _keep(child, reader)
    os.close(reader)
    _end_with_parent()
    poll = select.poll()
    poll.register(writer, select.POLLERR)
    if poll.poll(0):
        os._exit(1)  # the keeper ended before it could be watched
    return writer


def fork_contained(writer: int) -> None:
    """Fork the process that is contained; only that child returns."""
    child = os.fork()
    if not child:
        os.close(writer)
        os.setsid()
        _end_with_parent()
        return
    _forget(writer)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.drop_capabilities()
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    while True:
        pid, status = os.wait()
        if pid == child:
            os.write(writer, _STATUS.pack(status))
            os._exit(0)


def _keep(child: int, reader: int) -> NoReturn:
    _forget(reader)
    told = os.read(reader, _STATUS.size)
    os.waitpid(child, 0)  # returns once everything in the process table is gone
    if len(told) < _STATUS.size:
        _end_by(signal.SIGKILL)
    _end_as(*_STATUS.unpack(told))


def _end_as(status: int) -> NoReturn:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        _end_by(-code)
    os._exit(code)


def _end_by(number: int) -> NoReturn:
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), number)
    os._exit(1)


def _end_with_parent() -> None:
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)


def _forget(keep: int = 0) -> None:
    """Close every descriptor but one, the log included, and leave signals to the kernel.

    A first process gets only those signals from inside that it has a handler for.
    """
    os.closerange(0, keep)
    os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)

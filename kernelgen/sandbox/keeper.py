"""The two processes between the grader and a contained process, and how an end is passed on.

The keeper is what the grader knows by its process id; it stays outside the new process table. Its
child is the first process (1) of that table: when it ends, the kernel kills all that is left there.
Neither does anything but wait, and the keeper ends as the contained process did.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import struct
from typing import NoReturn

from kernelgen.sandbox import kernel

_STATUS = struct.Struct("i")


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
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
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
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
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
    (status,) = _STATUS.unpack(told)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        _end_by(-code)
    os._exit(code)


def _end_by(number: int) -> NoReturn:
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), number)
    os._exit(1)


def _forget(keep: int) -> None:
    """Close every descriptor but one, the log included, and leave signals to the kernel.

    A first process gets only those signals from inside that it has a handler for.
    """
    os.closerange(0, keep)
    os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)

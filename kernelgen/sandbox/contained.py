"""A compiler or a tool that starts others, contained, watched, and ended by deadline or on demand.

A group of processes outlives its starter: a compiler goes on when no process waits for it. So each
group gets a guard, a shell that waits for the end of a pipe whose other end is here; when this
process is gone, however that went, the guard ends the group.
"""

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from kernelgen.errors import KernelgenFault
from kernelgen.sandbox.launch import CONTAINED, TOLD_BY, contained_command
from kernelgen.sandbox.record import Plan
from kernelgen.sandbox.tree import processes_below, send
from kernelgen.sandbox.watch import OverLimit, Watch

_HOME = Path(__file__).resolve().parents[2]
_POLL_SECONDS = 0.1
_LOG_BYTES = 4 << 20
_LOG_END_BYTES = 1 << 20
# The guard is of the command's own group, and holds neither its output nor its input open.
_WITH_GUARD = (
    'exec 3<&0 </dev/null; { read -r _ <&3; kill -9 0; } >/dev/null 2>&1 & exec 3<&-; exec "$@"'
)


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """Command to run, and what bounds it.

    Attributes:
        plan: what is put around it; without limits nothing is watched.
        timeout_s: past it, on `stop` and over its limits it is killed.
        output_limit_bytes: of stdout apart from stderr; 0 puts both together.
    """

    words: list[str]
    plan: Plan
    environment: dict[str, str]
    timeout_s: float
    stop: threading.Event = msgspec.field(default_factory=threading.Event)
    output_limit_bytes: int = 0


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended.

    Attributes:
        code: exit code; None if we have killed it.
        log: what it printed on stderr, and on stdout where that was not asked for; of a long one
            the beginning and the end.
        output: what it printed on stdout, if that was asked for.
        why: it was killed, such as `killed after 600 s`; "" if it was not.
        over: what it used more of than it may, if it was killed for that.
    """

    code: int | None
    log: str
    output: bytes = b""
    why: str = ""
    over: OverLimit | None = None


def run_contained(command: Command, folder: str) -> Ended:
    """Contain a command and run it in a folder; return how it ended.

    Raises:
        KernelgenFault: this machine could not contain it.
    """
    words = contained_command(command.plan, folder, command.words)
    command = msgspec.structs.replace(command, words=words)
    over: OverLimit | None = None
    with tempfile.TemporaryFile() as log, tempfile.TemporaryFile() as output:
        apart = output if command.output_limit_bytes else log
        with _guarded(command, apart, log) as process:
            try:
                why = _wait(process, command, log, output) or _too_long(output, command)
            except OverLimit as found:
                over, why = found, f"killed: {found}"
        if why:
            return Ended(code=None, log=_text(log), why=why, over=over)
        held = os.pread(output.fileno(), command.output_limit_bytes, 0)
        return Ended(code=process.returncode, log=_text(log), output=held)


@contextlib.contextmanager
def _guarded(
    command: Command, output: BinaryIO, errors: BinaryIO
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a command in a session of its own; on leaving, what is left of it is ended.

    Raises:
        KernelgenFault: it said, before it did anything else, that it could not be contained.
    """
    (watched, held), (heard, told) = os.pipe(), os.pipe()
    os.set_blocking(heard, False)
    with (
        os.fdopen(watched, "rb"),
        os.fdopen(held, "wb"),
        os.fdopen(heard, "rb", 0) as word,
        os.fdopen(told, "wb"),
        subprocess.Popen(
            ["/bin/sh", "-c", _WITH_GUARD, "sh", *command.words],
            cwd=_HOME,
            env={**command.environment, TOLD_BY: str(told)},
            pass_fds=[told],
            stdin=watched,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            # A compiler starts others in its group. A tool may give what it starts a group of its
            # own: while the tool lives, that is found below it.
            below = processes_below([process.pid]) if process.poll() is None else []
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            send(below, signal.SIGKILL)
        # None if it did not come so far.
        if not (said := word.read(select.PIPE_BUF) or CONTAINED).startswith(CONTAINED):
            hint = "`kernelgen doctor` says what this machine offers"
            raise KernelgenFault(f"{said.decode(errors='replace')}; {hint}")


def _wait(
    process: "subprocess.Popen[bytes]", command: Command, log: BinaryIO, output: BinaryIO
) -> str:
    """Wait for the end; return why it has to be killed, "" if it has ended.

    Raises:
        OverLimit: it uses more than it may.
    """
    begin = time.monotonic()
    limits = command.plan.limits
    watch = limits and Watch(limits, lambda: processes_below([process.pid]), log.fileno())
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_SECONDS)
            return ""
        spent_s = time.monotonic() - begin
        if command.stop.is_set() or spent_s > command.timeout_s:
            return f"killed after {spent_s:.0f} s"
        if watch:
            watch.look()
        if why := _too_long(output, command):
            return why


def _too_long(output: BinaryIO, command: Command) -> str:
    length = os.fstat(output.fileno()).st_size
    too_long = length > command.output_limit_bytes
    return f"killed: it made {length} bytes, too many" if too_long else ""


def _text(log: BinaryIO) -> str:
    size = os.fstat(log.fileno()).st_size
    parts = [os.pread(log.fileno(), _LOG_BYTES, 0)]
    if size > _LOG_BYTES:
        parts.append(os.pread(log.fileno(), _LOG_END_BYTES, max(_LOG_BYTES, size - _LOG_END_BYTES)))
    return b"\n".join(parts).decode(errors="replace")

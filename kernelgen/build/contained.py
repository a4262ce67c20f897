"""A compiler, or what starts several, contained, watched, and ended by deadline or on demand."""

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import BinaryIO

import msgspec

from kernelgen.build.guarded import guarded
from kernelgen.sandbox.launch import contained_command
from kernelgen.sandbox.record import NOT_CONTAINED, Plan, refuse_uncontained
from kernelgen.sandbox.tree import processes_below
from kernelgen.sandbox.watch import OverLimit, Watch

_HOME = Path(__file__).resolve().parents[2]
_POLL_SECONDS = 0.1
_LOG_BYTES = 4 << 20


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """What to run.

    Attributes:
        folder: to run it in.
        plan: what to put around it.
        timeout_s: past it, on `stop` and over its limits it is killed.
        output_limit_bytes: of stdout apart from stderr; 0 puts both together.
    """

    words: list[str]
    folder: str
    plan: Plan
    environment: dict[str, str]
    timeout_s: float
    stop: threading.Event
    output_limit_bytes: int = 0


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended.

    Attributes:
        code: exit code; None if we have killed it.
        log: what it printed on stderr, and on stdout where that was not asked for; its beginning.
        output: what it printed on stdout, if that was asked for.
    """

    code: int | None
    log: str
    output: bytes = b""


def run_contained(command: Command) -> Ended:
    """Run a command; return how it ended.

    Raises:
        KernelgenFault: this machine could not contain it.
    """
    whole = contained_command(command.plan, command.folder, command.words)
    with tempfile.TemporaryFile() as log, tempfile.TemporaryFile() as output:
        apart = output if command.output_limit_bytes else log
        environment = command.environment
        with guarded(whole, cwd=_HOME, env=environment, output=apart, errors=log) as process:
            why = _wait(process, command, log)
        said = _text(log)
        # A source may forge the words, by `#line`, and has no say in how the compiler ends. A
        # keeper whose contained process ended on its way in ends by SIGKILL.
        if not why and process.returncode in (NOT_CONTAINED, -signal.SIGKILL):
            refuse_uncontained(said)
        if why:
            return Ended(code=None, log=f"{said}\n{why}")
        length = os.fstat(output.fileno()).st_size
        if length > command.output_limit_bytes:
            return Ended(code=None, log=f"{said}\nit made {length} bytes, too many")
        held = os.pread(output.fileno(), length, 0)
        return Ended(code=process.returncode, log=said, output=held)


def _wait(process: "subprocess.Popen[bytes]", command: Command, log: BinaryIO) -> str:
    """Wait for the end; return why it was killed, "" if it was not."""
    begin = time.monotonic()
    watch, plan = None, command.plan
    if plan.limits is not None:
        watch = Watch(plan.limits, lambda: processes_below([process.pid]), log.fileno())
    why = ""
    while not why:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_SECONDS)
            return ""
        try:
            if watch is not None:
                watch.look()
        except OverLimit as over:
            why = f"killed: {over}"
        spent_s = time.monotonic() - begin
        if command.stop.is_set() or spent_s > command.timeout_s:
            why = f"killed after {spent_s:.0f} s of compiling"
    # What it has started, too: a compiler starts other programs.
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return why


def _text(log: BinaryIO) -> str:
    return os.pread(log.fileno(), _LOG_BYTES, 0).decode(errors="replace")

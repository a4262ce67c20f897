"""Ask a fresh process what a solution would build, under a deadline."""

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import msgspec

from kernelgen.build.source import CaptureReply, CaptureRequest
from kernelgen.build.toolchain import child_environment
from kernelgen.child_python import python_command, python_path
from kernelgen.installation import problems_folder
from kernelgen.sandbox.environment import passed_on
from kernelgen.sandbox.limits import usual_limits
from kernelgen.sandbox.record import Plan, refuse_uncontained
from kernelgen.sandbox.survey import survey
from kernelgen.sandbox.tree import processes_below
from kernelgen.sandbox.watch import OverLimit, Watch

_CHUNK_BYTES = 1 << 16
_REPLY_BYTES = 32 << 20
_KEPT_BYTES = 1 << 20
_SHOWN_CHARACTERS = 2000
_POLL_SECONDS = 0.2


class CaptureError(Exception):
    """The capturing process gave no reply; the message says how it ended."""


def capture_sources(
    solution: Path, reference_source: str | None, scratch: Path, *, timeout_s: float = 120.0
) -> CaptureReply:
    """Return what a solution would build, found by importing it in a process of its own.

    `reference_source` defines get_init_inputs and get_inputs; None uses the solution's own. After
    `timeout_s` the process and all that it started are killed.

    Raises:
        CaptureError: it ran out of time, crashed, or left without a reply.
        KernelgenFault: this machine could not contain it.
    """
    inside = scratch / "inside"
    inside.mkdir(exist_ok=True)
    request = CaptureRequest(
        solution=str(solution.resolve()),
        reference_source=reference_source,
        scratch=str(inside.resolve()),
        plan=plan_to_build(inside, (solution,)),
    )
    return capture(request, timeout_s=timeout_s, stop=threading.Event())


def capture(request: CaptureRequest, *, timeout_s: float, stop: threading.Event) -> CaptureReply:
    """Ask the capturing process; past `timeout_s` and on `stop` all that it started is killed.

    Raises:
        CaptureError: it was killed, crashed, or left without a reply.
        KernelgenFault: this machine could not contain it.
    """
    reader, writer = os.pipe()
    with (
        tempfile.TemporaryFile() as asked,
        tempfile.TemporaryFile() as said,
        os.fdopen(reader, "rb", buffering=0),
    ):
        asked.write(msgspec.json.encode(request))
        asked.seek(0)
        try:
            process = subprocess.Popen(
                python_command("kernelgen.build.capture_host", str(writer)),
                stdin=asked,
                stdout=said,
                stderr=said,
                env={
                    **child_environment(passed_on(os.environ)),
                    "HOME": request.scratch,
                    "PYTHONPATH": python_path(os.environ),
                },
                pass_fds=(writer,),
                start_new_session=True,
            )
        finally:
            os.close(writer)
        try:
            watch = _watch(request.plan, process.pid, said.fileno())
            line = _read_line(reader, time.monotonic() + timeout_s, watch, stop)
        finally:
            _kill_group(process)
        length = os.fstat(said.fileno()).st_size
        start = max(0, length - _KEPT_BYTES)
        output = os.pread(said.fileno(), _KEPT_BYTES, start).decode(errors="replace")
    if line is not None:
        refuse_uncontained(line.decode(errors="replace"))
    return _decode(line, process.returncode, output, timeout_s)


def plan_to_build(scratch: Path, shown: tuple[Path, ...], extra: tuple[str, ...] = ()) -> Plan:
    """Return as much containment for a solution or its compilers as this machine has.

    `scratch` exists and holds nothing that is needed. The folder of each shown file is shown with
    it, for the sources beside it.
    """
    found = survey()
    home = Path.home()
    return Plan(
        level=found.level,
        landlock_abi=found.landlock_abi,
        scratch=str(scratch.resolve()),
        limits=usual_limits(),
        readable=(*(str(_whole_or_alone(file)) for file in shown), *extra),
        hidden=(str(Path.cwd()), str(Path(tempfile.gettempdir()).resolve())),
        home=str(home),
        missing=found.missing,
    )


def _whole_or_alone(file: Path) -> Path:
    """Return a solution's folder, or the file itself where that folder holds much else."""
    folder = file.resolve().parent
    large = (Path.home().resolve(), problems_folder(), Path(tempfile.gettempdir()).resolve())
    return file.resolve() if any(one.is_relative_to(folder) for one in large) else folder


def _watch(plan: Plan, pid: int, log: int) -> Watch | None:
    if plan.limits is None:
        return None
    return Watch(plan.limits, lambda: processes_below([pid]), log)


def _read_line(
    reader: int, deadline: float, watch: Watch | None, stop: threading.Event
) -> bytes | None:
    """Return the reply, what came of it before the process left, or None if it took too long."""
    received = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        while not received.endswith(b"\n"):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or stop.is_set():
                return None
            try:
                if watch is not None:
                    watch.look()
            except OverLimit as over:
                raise CaptureError(str(over)) from over
            if not selector.select(min(left_s, _POLL_SECONDS)):
                continue
            chunk = os.read(reader, _CHUNK_BYTES)
            if not chunk:
                break
            received += chunk
            if len(received) > _REPLY_BYTES:
                raise CaptureError("what it would build is too much to be told")
    return bytes(received)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    # A process that has closed its pipe is about to leave: its own exit code says why.
    grace_s = 1.0
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _decode(line: bytes | None, returncode: int, output: str, timeout_s: float) -> CaptureReply:
    if line is None:
        raise CaptureError(f"no extension was built within {timeout_s:g} s of importing the file")
    if not line.endswith(b"\n"):
        tail = output.strip()[-_SHOWN_CHARACTERS:]
        how = (
            f"was killed by {signal.Signals(-returncode).name}"
            if returncode < 0
            else f"left with exit code {returncode}"
        )
        raise CaptureError(
            f"the process that imported the file {how} before it could say what it builds"
            + (f"; it printed:\n{tail}" if tail else "")
        )
    try:
        return msgspec.json.decode(line, type=CaptureReply)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CaptureError(f"it sent something that is no reply: {error}") from error

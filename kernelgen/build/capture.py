"""Ask a fresh process what a solution would build, under a deadline."""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from kernelgen.build.containment import plan_to_build
from kernelgen.build.source import CONTAINED, CaptureReply, CaptureRequest
from kernelgen.build.toolchain import child_environment
from kernelgen.errors import KernelgenFault
from kernelgen.sandbox.environment import passed_on

_CHUNK_BYTES = 1 << 16
_SHOWN_CHARACTERS = 2000


class CaptureError(Exception):
    """The capturing process gave no reply; the message says how it ended."""


def capture_sources(
    solution: Path, reference_source: str | None, scratch: Path, *, timeout_s: float = 120.0
) -> CaptureReply:
    """Return what a solution would build, found by importing it in a process of its own.

    Args:
        solution: the file.
        reference_source: Python text that defines get_init_inputs and get_inputs, or None to use
            the solution's own.
        scratch: an existing folder for the files that torch writes.
        timeout_s: after that the process and all that it started are killed.

    Raises:
        CaptureError: it ran out of time, crashed, or left without a reply.
        KernelgenFault: its process could not be contained.
    """
    inside = scratch / "inside"
    inside.mkdir(exist_ok=True)
    request = CaptureRequest(
        solution=str(solution.resolve()),
        reference_source=reference_source,
        scratch=str(inside.resolve()),
        plan=plan_to_build(inside, (solution,)),
    )
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
                [sys.executable, "-m", "kernelgen.build.capture_host", str(writer)],
                stdin=asked,
                stdout=said,
                stderr=said,
                env={**child_environment(passed_on(os.environ)), "HOME": request.scratch},
                pass_fds=(writer,),
                start_new_session=True,
            )
        finally:
            os.close(writer)
        try:
            answer = _read_reply(reader, time.monotonic() + timeout_s)
        finally:
            _kill_group(process)
        said.seek(0)
        output = said.read().decode(errors="replace")
    reply, in_time = answer
    if not reply.startswith(CONTAINED):
        words = output.strip().splitlines()[-1:] or ["it said nothing"]
        raise KernelgenFault(f"the process that imports a solution did not start: {words[0]}")
    line = reply.removeprefix(CONTAINED) if in_time else None
    return _decode(line, process.returncode, output, timeout_s)


def _read_reply(reader: int, deadline: float) -> tuple[bytes, bool]:
    """Return the reply, or what came of it, and whether that was before the deadline."""
    received = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        while received == CONTAINED or not received.endswith(b"\n"):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not selector.select(left_s):
                return bytes(received), False
            chunk = os.read(reader, _CHUNK_BYTES)
            if not chunk:
                break
            received += chunk
    return bytes(received), True


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
    return msgspec.json.decode(line, type=CaptureReply)

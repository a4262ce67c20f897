"""Containment that this machine offers, found by trying it in a process of its own."""

import contextlib
import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from kernelgen.child_python import python_command, python_path, said_by
from kernelgen.errors import ExitCode, UserError
from kernelgen.sandbox import landlock
from kernelgen.sandbox.enter import enter
from kernelgen.sandbox.limits import usual_limits
from kernelgen.sandbox.record import Level, Limits, Plan, SandboxError
from kernelgen.scratch import temporary_folder

_TIMEOUT_S = 60.0
_OUTSIDE = "outside"
_HOW_TO_GET = (
    "allow unprivileged user namespaces (in Docker: --security-opt seccomp=unconfined "
    "--security-opt systempaths=unconfined; on Ubuntu: sysctl "
    "kernel.apparmor_restrict_unprivileged_userns=0), on Linux 5.12 or newer"
)


class Support(msgspec.Struct, frozen=True, kw_only=True):
    """The highest level that works here.

    Attributes:
        level: that level.
        landlock_abi: version of Landlock's interface, or 0.
        missing: why it is not a higher one, one sentence each.
    """

    level: Level
    landlock_abi: int
    missing: tuple[str, ...] = ()

    @property
    def mend(self) -> str:
        """Return how to get more, "" if there is no more."""
        return "" if self.level == "namespaces" else _HOW_TO_GET

    def plan(
        self, scratch: Path, suspects: Iterable[Path] = (), limits: Limits | None = None
    ) -> Plan:
        """Return what to put around a process whose folder is `scratch`, with the usual limits.

        What may hold other candidates or problems is hidden: `suspects`, the working folder and
        the folder of temporary files.
        """
        hidden = (*suspects, Path.cwd(), Path(tempfile.gettempdir()))
        return Plan(
            level=self.level,
            landlock_abi=self.landlock_abi,
            scratch=str(scratch.resolve()),
            limits=limits or usual_limits(),
            hidden=tuple(os.fsencode(folder.resolve()) for folder in hidden),
            home=str(Path.home()),
            missing=self.missing,
        )


class ContainmentError(UserError):
    """Containment was required and cannot be had here."""

    exit_code = ExitCode.GRADER_FAULT


@functools.cache
def survey() -> Support:
    """Try this machine once, for a fraction of a second."""
    with temporary_folder() as folder:
        try:
            command = python_command("kernelgen.sandbox.survey", os.path.realpath(folder))
            environment = {**os.environ, "PYTHONPATH": python_path(os.environ)}
            how = {"cwd": folder, "env": environment, "stderr": subprocess.PIPE}
            return msgspec.json.decode(said_by(command, _TIMEOUT_S, **how), type=Support)
        except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
            reason = f"trying it failed: {str(error).splitlines()[0]}"
            return Support(level="none", landlock_abi=0, missing=(reason,))


def require_namespaces() -> None:
    """Make sure that a candidate can be contained as well as kernelgen can.

    Raises:
        ContainmentError: it cannot.
    """
    found = survey()
    if found.level != "namespaces":
        reasons = "; ".join(found.missing)
        raise ContainmentError(f"--sandbox require: {reasons}; {found.mend}")


def _try_here(folder: str) -> Support:
    abi = landlock.probe_abi()
    absent = () if abi else ("landlock: the kernel does not have it, or it is turned off",)
    levels: tuple[Level, ...] = ("namespaces", "landlock") if abi else ("namespaces",)
    failed: list[str] = []
    for level in levels:
        why = _try_level(level, abi, folder)
        if not why:
            return Support(level=level, landlock_abi=abi, missing=(*failed, *absent))
        failed.append(f"{level}: {why}")
    return Support(level="none", landlock_abi=0, missing=(*failed, *absent))


def _try_level(level: Level, abi: int, folder: str) -> str:
    """Return why a level does not hold here, "" if it does."""
    scratch = f"{folder}/{level}"
    Path(scratch).mkdir()
    plan = Plan(level=level, landlock_abi=abi, scratch=scratch, limits=usual_limits())
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        said = "a process ended on its way in"
        try:
            os.close(reader)
            enter(plan)
            said = _breach(plan, folder)
        except SandboxError as error:
            said = str(error)
        finally:
            os.write(writer, b"%" + said.encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        answer = stream.read()
    os.waitpid(pid, 0)
    if Path(folder, _OUTSIDE).exists():
        return "a file could be written outside the scratch folder"
    shutil.rmtree(scratch, ignore_errors=True)
    return answer.decode(errors="replace")[1:] if answer else "a process ended on its way in"


def _breach(plan: Plan, folder: str) -> str:
    """Try what has to be refused inside; return what was not, "" if all was."""
    if plan.level == "namespaces":
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect(("192.0.2.1", 9))  # an address for documentation: nothing is sent
            return "a route out of the network was there"
        if os.getppid() != 1:
            return "the process table was not a new one"
    with contextlib.suppress(OSError):
        Path(folder, _OUTSIDE).write_bytes(b"")  # it may succeed in a folder of its own
    with contextlib.suppress(OSError):
        Path(__file__).read_bytes()
        return "the grader's own files could be read"
    return ""


def main() -> None:
    """Write what is found to stdout, with the folder that is named as a place to try it."""
    sys.stdout.buffer.write(msgspec.json.encode(_try_here(sys.argv[1])))

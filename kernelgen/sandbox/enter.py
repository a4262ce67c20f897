"""Entering containment: what a process does to itself before untrusted code runs in it."""

import contextlib
import fcntl
import os
import socket
import struct
from pathlib import Path

from kernelgen.sandbox import kernel, landlock
from kernelgen.sandbox.keeper import fork_contained, fork_keeper, leave_threads_behind
from kernelgen.sandbox.limits import limit_namespace, limit_process, volunteer_to_be_killed
from kernelgen.sandbox.record import Containment, Limits, Plan, SandboxError
from kernelgen.sandbox.root import SHARED_MEMORY, TEMPORARY, enter_private_root, explain
from kernelgen.sandbox.view import View, granted, view_of

# The file system's comes last, in a process of the new table.
_NAMESPACES = (
    kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
)
_ALL_IDS = "0 0 4294967295"
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def enter(plan: Plan) -> Containment:
    """Contain this process; with namespaces, the process that returns is a grandchild.

    The caller has imported all that it needs of kernelgen, and holds no descriptor that the
    contained process may not have. Its other threads, if it has any, are not in the process that
    returns. The original process ends as the contained one does.

    Returns:
        What is in force.

    Raises:
        SandboxError: a step failed; the process that raises it has to end.
    """
    if plan.limits is None:
        return _described(plan)
    try:
        if plan.level == "none":
            volunteer_to_be_killed()
            limit_process(plan.limits, own_namespace=False)
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
            kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
            return _described(plan)
        view = view_of(plan)
        leave_threads_behind()
        # Another process of the user's reads our counters; a fork of one that is not dumpable
        # could not even write its own maps.
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        volunteer_to_be_killed()
        private = plan.level == "namespaces"
        if private:
            _enter_namespaces(plan, view, plan.limits)
        os.chdir(plan.scratch)
        with contextlib.suppress(OSError):  # a kernel without keys has none to give away
            kernel.leave_session_keyring()
        limit_process(plan.limits, own_namespace=private)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.drop_capabilities()
        if plan.landlock_abi:
            rules = _private_rules(plan) if private else _public_rules(plan, view)
            # A network of its own holds nobody else.
            landlock.restrict(rules, plan.landlock_abi, tcp=private)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        _require_what_is_needed(plan)
    except OSError as error:
        raise SandboxError(explain(error)) from error
    return _described(plan)


def _enter_namespaces(plan: Plan, view: View, limits: Limits) -> None:
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(_NAMESPACES)
    _write_map("setgroups", "deny", optional=True)
    _write_map("uid_map", f"{uid} {uid} 1", wide=uid == 0)
    _write_map("gid_map", f"{gid} {gid} 1", wide=uid == 0)
    writer = fork_keeper()
    kernel.unshare(kernel.CLONE_NEWNS)
    limit_namespace(limits)
    _raise_loopback()
    enter_private_root(view, plan.scratch, plan.writable, limits.scratch_bytes)
    fork_contained(writer)


def _write_map(name: str, text: str, *, wide: bool = False, optional: bool = False) -> None:
    """Map users to themselves: root maps all, to reach what others own and let it read."""
    file = Path("/proc/self") / name
    if wide:
        with contextlib.suppress(PermissionError):
            file.write_text(_ALL_IDS, encoding="ascii")
            return
    try:
        file.write_text(text, encoding="ascii")
    except FileNotFoundError:
        if not optional:
            raise


def _raise_loopback() -> None:
    """Let a candidate talk to itself over 127.0.0.1; its network holds nothing else."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sh14x", b"lo", 0)
        (present,) = struct.unpack("16xh14x", fcntl.ioctl(sock, _SIOCGIFFLAGS, request))
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", present | _IFF_UP))


def _private_rules(plan: Plan) -> list[tuple[str, int]]:
    """Return the rules for a private root, where all that can be read may be."""
    rules = [("/", landlock.READ), ("/dev", landlock.OVERWRITE), ("/proc", landlock.OVERWRITE)]
    rooms = (plan.scratch, TEMPORARY, SHARED_MEMORY, *plan.writable)
    return rules + [(folder, landlock.WRITE) for folder in rooms]


def _public_rules(plan: Plan, view: View) -> list[tuple[str, int]]:
    """Return the rules for the machine's own files."""
    rules = [("/proc", landlock.READ)]
    rules += [(path, landlock.READ if whole else landlock.LIST) for path, whole in granted(view)]
    rules += [(node, landlock.OVERWRITE) for node in view.devices]
    rooms = (plan.scratch, SHARED_MEMORY, *plan.writable)
    return rules + [(folder, landlock.WRITE) for folder in rooms if Path(folder).is_dir()]


def _require_what_is_needed(plan: Plan) -> None:
    """Check that everything the candidate needs is visible."""
    import sys

    with open(sys.executable, "rb") as interpreter:  # noqa: PTH123
        interpreter.read(1)
    torch = sys.modules.get("torch")
    if torch is not None and torch.__file__:
        with open(torch.__file__, "rb") as module:  # noqa: PTH123
            module.read(1)
    probe = Path(plan.scratch) / f".kernelgen-probe-{os.getpid()}"  # several may share the folder
    probe.write_bytes(b"")
    probe.unlink()


def _described(plan: Plan) -> Containment:
    return Containment(**{name: getattr(plan, name) for name in Containment.__struct_fields__})

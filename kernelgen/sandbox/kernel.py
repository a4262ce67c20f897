"""The calls of the Linux kernel that Python 3.10 does not offer, each raising OSError."""

import contextlib
import ctypes
import os
import platform
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
# These numbers are the same on every architecture but alpha: the calls are younger than 2019.
_MOUNT_SETATTR = 442
_LANDLOCK = (444, 445, 446)
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_KEYCTL_JOIN_SESSION_KEYRING = 1
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def unshare(flags: int) -> None:
    """Leave namespaces for new ones."""
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Mount a file system, or bind a folder."""
    result = _libc.mount(
        source.encode(errors="surrogateescape"),
        target.encode(errors="surrogateescape"),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        data.encode() if data else None,
    )
    _checked(result, f"mount {target}")


def detach(target: str) -> None:
    """Unmount, now or when nothing uses it any more."""
    _checked(_libc.umount2(target.encode(), ctypes.c_int(MNT_DETACH)), f"umount {target}")


def set_mount_flags(target: str, flags: int, *, recursive: bool) -> None:
    """Add MS_RDONLY, MS_NOSUID, MS_NODEV or MS_NOEXEC to a mount (Linux 5.12 and newer)."""
    attributes = _MountAttributes(set=flags)  # the four have the same numbers in both interfaces
    result = _libc.syscall(
        ctypes.c_long(_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        ctypes.c_char_p(target.encode(errors="surrogateescape")),
        ctypes.c_uint(_AT_RECURSIVE if recursive else 0),
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )
    _checked(result, f"mount_setattr {target}")


def pivot_root_here() -> None:
    """Make the current folder, a mount, the root; the old root comes to lie on top of it."""
    _machines_call("pivot_root", _PIVOT_ROOT, ctypes.c_char_p(b"."), ctypes.c_char_p(b"."))


def prctl(option: int, first: int = 0, second: int = 0) -> None:
    """Set an attribute of this process."""
    arguments = (ctypes.c_ulong(value) for value in (first, second, 0, 0))
    _checked(_libc.prctl(ctypes.c_int(option), *arguments), f"prctl {option}")


def leave_session_keyring() -> None:
    """Leave the keys of the user's session behind, for a ring of one's own without any.

    Raises:
        OSError: the kernel has no keys, or the call is hidden.
    """
    join = ctypes.c_int(_KEYCTL_JOIN_SESSION_KEYRING)
    _machines_call("keyctl", _KEYCTL, join, ctypes.c_char_p(None))


def _machines_call(name: str, numbers: dict[str, int], *arguments: object) -> None:
    number = numbers.get(platform.machine())
    if number is None:
        raise OSError(f"{name} is not known for {platform.machine()}")
    _checked(_libc.syscall(ctypes.c_long(number), *arguments), name)


def drop_capabilities() -> None:
    """Give up every capability, for good: the bounding and the ambient set included."""
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    # A process without capabilities may not, and no_new_privs keeps it from getting any.
    with contextlib.suppress(PermissionError):
        for capability in range(last + 1):
            prctl(PR_CAPBSET_DROP, capability)
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


def landlock_call(number: int, *arguments: object) -> int:
    """Call one of Landlock's three: 0 makes a ruleset, 1 adds a rule, 2 restricts this thread."""
    return _checked(
        int(_libc.syscall(ctypes.c_long(_LANDLOCK[number]), *arguments)), f"landlock {number}"
    )


def punch_hole(fd: int, length: int) -> None:
    """Free the first bytes of a file on its disk; its size stays."""
    keep_size, punch = 1, 2
    result = _libc.fallocate(
        ctypes.c_int(fd), ctypes.c_int(keep_size | punch), ctypes.c_long(0), ctypes.c_long(length)
    )
    _checked(result, "fallocate")

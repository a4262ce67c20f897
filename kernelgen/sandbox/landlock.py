"""Landlock: rules on files, sockets and signals that a process puts on itself, for good."""

import ctypes
import os
import stat
from collections.abc import Iterable

from kernelgen.sandbox import kernel

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_MAKE_AND_REMOVE = 0x1FF0
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_ALL_TCP = 3
_ALL_SCOPES = 3
_RULE_PATH_BENEATH = 1

TCP_SINCE, SCOPES_SINCE = 4, 6
"""Versions that can refuse TCP, and keep signals and abstract sockets inside."""
READ = _EXECUTE | _READ_FILE | _READ_DIR
LIST = _READ_DIR
WRITE = READ | _WRITE_FILE | _MAKE_AND_REMOVE | _REFER | _TRUNCATE | _IOCTL_DEV
OVERWRITE = READ | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def probe_abi() -> int:
    """Return the version of Landlock's interface here, 0 if there is none."""
    version_flag = 1
    try:
        return kernel.landlock_call(0, None, ctypes.c_size_t(0), ctypes.c_uint32(version_flag))
    except OSError:
        return 0


def handled_rights(abi: int) -> int:
    """Return the rights on files that this version knows."""
    rights = READ | _WRITE_FILE | _MAKE_AND_REMOVE
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        rights |= right if abi >= since else 0
    return rights


def restrict(rules: Iterable[tuple[str, int]], abi: int, *, tcp: bool) -> None:
    """Restrict this process and all that it starts; no_new_privs has to be set.

    Args:
        rules: a path that exists, and the rights beneath it. Everything else is refused.
        abi: version to use.
        tcp: whether TCP stays allowed.

    Raises:
        OSError: a path cannot be opened, or the kernel refuses.
    """
    handled = handled_rights(abi)
    ruleset = _Ruleset(
        fs=handled,
        net=0 if tcp or abi < TCP_SINCE else _ALL_TCP,
        scoped=_ALL_SCOPES if abi >= SCOPES_SINCE else 0,
    )
    # Older kernels refuse a structure that is longer than theirs unless the rest is zero: it is.
    size = ctypes.c_size_t(ctypes.sizeof(ruleset))
    fd = kernel.landlock_call(0, ctypes.byref(ruleset), size, ctypes.c_uint32(0))
    try:
        for path, rights in rules:
            _allow(fd, path, rights & handled)
        kernel.landlock_call(2, ctypes.c_int(fd), ctypes.c_uint32(0))
    finally:
        os.close(fd)


def _allow(ruleset: int, path: str, rights: int) -> None:
    parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(parent).st_mode):
            rights &= _FILE_RIGHTS
        if not rights:
            return
        rule = _PathBeneath(allowed=rights, parent=parent)
        kernel.landlock_call(
            1,
            ctypes.c_int(ruleset),
            ctypes.c_int(_RULE_PATH_BENEATH),
            ctypes.byref(rule),
            ctypes.c_uint32(0),
        )
    finally:
        os.close(parent)

"""Folders for temporary files, and the removal of those that killed runs have left behind.

A run holds a lock on a file in its folder for as long as it lives; the kernel lets go of it however
the run ends. A folder whose lock can be taken has no owner any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kernelgen.errors import KernelgenFault

_PREFIX = "kernelgen-"
_LOCK = ".in-use"


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is gone afterwards; those of runs that were killed go first.

    Raises:
        KernelgenFault: none can be made.
    """
    sweep()
    try:
        # A candidate may leave files that cannot be removed: no reason to lose its verdict.
        held = tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True)
    except OSError as error:
        reason = "no folder for temporary files can be written; set TMPDIR to one that can"
        raise KernelgenFault(f"{reason} ({error.strerror})") from error
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(held))
        stack.callback(remove_tree, folder)
        with contextlib.suppress(OSError):  # without a lock it is never swept
            fresh = folder / f"{_LOCK}-soon"
            fcntl.flock(stack.enter_context(fresh.open("wb")), fcntl.LOCK_EX)
            # Only now under its name: nobody finds a lock that is not held yet.
            fresh.rename(folder / _LOCK)
        yield folder


def remove_tree(folder: Path) -> None:
    """Remove a folder, however deep its own lie; what cannot be removed stays."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        command = ["/bin/rm", "-rf", "--", str(folder)]
        subprocess.run(command, check=False, stderr=subprocess.DEVNULL)


def sweep() -> None:
    """Remove the folders of this user's runs that were killed; what cannot be removed stays."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(tempfile.gettempdir()):
            if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    _remove_if_left(Path(entry.path))


def _remove_if_left(folder: Path) -> None:
    if folder.lstat().st_uid != os.geteuid() or not shutil.rmtree.avoids_symlink_attacks:
        return
    # A pipe in its place is not waited for, and a link is not followed.
    lock = os.open(folder / _LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(lock)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(folder)
    finally:
        os.close(lock)

"""A private root: a tree of mounts that holds what a `View` shows, and room to write."""

import contextlib
import errno
import os
import stat
from pathlib import Path

from kernelgen.sandbox import kernel
from kernelgen.sandbox.view import View

_QUIET = kernel.MS_NOSUID | kernel.MS_NODEV
_SEALED = _QUIET | kernel.MS_RDONLY
# Made anew: nothing of the machine's own is seen in them.
TEMPORARY, SHARED_MEMORY = "/tmp", "/dev/shm"  # noqa: S108
_SKELETON = "mode=755,size=16m"
# An inode costs about a KiB of kernel memory; a build makes hundreds.
_INODES = 1 << 18
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}


def enter_private_root(
    view: View, scratch: str, writable: tuple[str, ...], size_bytes: int
) -> None:
    """Replace the root of this process's mount namespace, which is new and belongs to it.

    This process is the first of a process table.

    Args:
        view: what is to be read.
        scratch: becomes an empty folder in memory, as do /tmp and /dev/shm.
        writable: folders on the disk that stay as they are.
        size_bytes: that these three may hold together.

    Raises:
        OSError: the kernel refuses a step.
    """
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    new = scratch  # nothing in it is needed any more: the mount point of the new root
    kernel.mount("kernelgen", new, "tmpfs", _QUIET, _SKELETON)
    # From the outside to the inside: an environment may lie in /tmp, the scratch folder anywhere.
    rooms = _make_rooms(new, size_bytes)
    _mount_room(f"{rooms}/temporary", new + TEMPORARY)
    covers = _show(view, new)
    _make_dev(view, new)
    _mount_room(f"{rooms}/shm", new + SHARED_MEMORY)
    _make_proc(new)
    _mount_room(f"{rooms}/scratch", new + scratch)
    kernel.detach(rooms)
    with contextlib.suppress(OSError):  # busy where scratch lies in a folder that was bound
        os.rmdir(rooms)  # noqa: PTH106
    for folder in writable:
        _bind(folder, new + folder, _QUIET)
    for cover in covers:
        kernel.set_mount_flags(cover, _SEALED, recursive=False)
    os.chdir(new)
    kernel.pivot_root_here()
    kernel.detach(".")
    os.chdir("/")
    kernel.set_mount_flags("/", _SEALED, recursive=False)


def _show(view: View, new: str) -> list[str]:
    """Bind what is readable and cover what is hidden; return the covers, still to be sealed."""
    covers = []
    hidden = set(view.hidden)
    shown: dict[str, bool] = {}
    for path in sorted({*view.readable, *hidden}, key=lambda path: (path.count("/"), path)):
        around = next((shown[str(p)] for p in Path(path).parents if str(p) in shown), False)
        visible = path not in hidden
        if visible == around:
            continue
        shown[path] = visible
        if visible and Path(path).is_symlink() and path.count("/") == 1:
            os.symlink(os.readlink(path), new + path)  # noqa: PTH115, PTH211 (/lib -> usr/lib)
        elif visible:
            _bind(path, new + path, _SEALED)
        else:
            kernel.mount("kernelgen", new + path, "tmpfs", _QUIET, _SKELETON)
            covers.append(new + path)
    return covers


def _bind(source: str, target: str, flags: int) -> None:
    """Show a file or a folder, and all that is mounted in it, at a place."""
    if Path(source).is_dir():
        os.makedirs(target, exist_ok=True)  # noqa: PTH103
    else:
        os.makedirs(str(Path(target).parent), exist_ok=True)  # noqa: PTH103
        with contextlib.suppress(FileExistsError):
            os.close(os.open(target, os.O_CREAT | os.O_EXCL, 0o600))
    kernel.mount(source, target, None, kernel.MS_BIND | kernel.MS_REC)
    kernel.set_mount_flags(target, flags, recursive=True)


def _make_dev(view: View, new: str) -> None:
    os.mkdir(f"{new}/dev")  # noqa: PTH102
    for node in view.devices:
        # Whatever else the folder of GPU capabilities holds, the nodes in it stay usable.
        _bind(node, new + node, kernel.MS_NOSUID | kernel.MS_NOEXEC)
    for name, target in _LINKS.items():
        os.symlink(target, f"{new}/dev/{name}")  # noqa: PTH211


def _make_proc(new: str) -> None:
    """Show the process table, with the kernel's own settings unwritable.

    They go by the user and not by capabilities: root without any could still set them.
    """
    proc = f"{new}/proc"
    os.mkdir(proc)  # noqa: PTH102
    kernel.mount("proc", proc, "proc", _QUIET | kernel.MS_NOEXEC)
    with os.scandir(proc) as entries:
        kernels = [entry.path for entry in entries if not entry.name.isdecimal()]
    for path in kernels:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode) or not (stat.S_ISDIR(mode) or mode & 0o222):
            continue
        kernel.mount(path, path, None, kernel.MS_BIND)
        kernel.set_mount_flags(path, _SEALED | kernel.MS_NOEXEC, recursive=False)


def _make_rooms(new: str, size_bytes: int) -> str:
    """Mount one limited file system, and make folders in it that share its size."""
    rooms = f"{new}/.rooms"
    os.mkdir(rooms)  # noqa: PTH102
    limits = f"mode=755,size={size_bytes},nr_inodes={_INODES}"
    kernel.mount("kernelgen", rooms, "tmpfs", _QUIET, limits)
    for name, mode in (("temporary", 0o1777), ("shm", 0o1777), ("scratch", 0o755)):
        os.mkdir(f"{rooms}/{name}")  # noqa: PTH102
        os.chmod(f"{rooms}/{name}", mode)  # noqa: PTH101
    return rooms


def _mount_room(room: str, target: str) -> None:
    os.makedirs(target, exist_ok=True)  # noqa: PTH103
    kernel.mount(room, target, None, kernel.MS_BIND)


def explain(error: OSError) -> str:
    """Return what the kernel refused, and why as far as that is known."""
    step = error.filename or "a step"
    hints = {
        errno.EACCES: "refused by a security module, such as Ubuntu's AppArmor restriction",
        errno.EPERM: "not permitted: a container's seccomp profile, AppArmor, or a masked /proc",
        errno.ENOSYS: "the kernel is too old (5.12 is needed) or a seccomp profile hides it",
        errno.ENOSPC: "user.max_user_namespaces is 0 or used up",
        errno.EINVAL: "the kernel does not have it, or the root is an initial ramdisk",
    }
    return f"{step}: {hints.get(error.errno or 0, error.strerror or error)}"

"""Containment that is asked for (`Plan`), and that was in force (`Containment`)."""

from typing import Literal

import msgspec

Level = Literal["namespaces", "landlock", "none"]
Mode = Literal["auto", "require", "off"]


class SandboxError(Exception):
    """Containment could not be entered; the message names the step and the kernel's answer."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the machine a candidate may use up.

    Attributes:
        scratch_bytes: of everything it writes, /tmp and /dev/shm included; needs namespaces.
        file_bytes: of one file, of what it prints included.
        memory_bytes: resident memory of all its processes together.
        processes: its processes and threads.
        open_files: descriptors a process.
    """

    scratch_bytes: int
    file_bytes: int
    memory_bytes: int
    processes: int
    open_files: int


class Containment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Containment that was in force around a candidate.

    Attributes:
        level: `namespaces` (a private file system, network and process table), `landlock` (the
            machine's own, with most of it refused), or `none`.
        landlock_abi: version of Landlock's interface in force, or 0: from 4 on it refuses TCP, and
            from 6 on signals to others.
        limits: on what it may use up; absent if none was set.
        missing: what was not to be had, and why.
    """

    level: Level
    landlock_abi: int = 0
    limits: Limits | None = None
    missing: tuple[str, ...] = ()


class Plan(Containment, frozen=True, kw_only=True):
    """Containment to put around a process.

    Attributes:
        scratch: its own folder, an absolute path. With namespaces it is memory of its own, and
            what is in the folder on the disk is not seen.
        writable: folders on the disk that it may write to as well.
        readable: files and folders that it may read beside what building and running needs.
        hidden: folders that it may not read, though they lie in one that it may, by their names'
            bytes; one that tools live in is shown nevertheless.
        home: the user's, never shown but for the tools in it.
        imports: top-level modules that it may import besides those that are loaded.
        gpu: whether it may use the GPUs.
    """

    scratch: str
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    hidden: tuple[bytes, ...] = ()
    home: str = ""
    imports: tuple[str, ...] = ()
    gpu: bool = True

    def __post_init__(self) -> None:
        if self.level != "none" and self.limits is None:
            raise ValueError(f"a plan of level {self.level} without limits would contain nothing")

"""Where in their code stopped processes stand, by what the kernel says of their threads.

Nothing of it asks the processes: /proc/PID/task/TID/syscall has the program counter of a stopped
thread, and maps beside it what is mapped there (proc_pid_syscall(5), proc_pid_maps(5)).
"""

import bisect
import contextlib
import functools
import mmap
import os
import re
import struct
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

# Files that compute: torch's, linear algebra, and those of any other installed package, such as
# numpy. Torch's bindings and allocators, and the grader's JSON, do not; Numba's call what a
# solution has written.
_LIBRARIES = re.compile(
    r"(/lib\w*(torch_cpu|mkl|dnnl|blas|lapack|blis)[\w.-]*"
    r"|/(site|dist)-packages/(?!torch/|msgspec/|numba/).*)$"
)
# Files that work for their caller; so does memory of no file, where oneDNN compiles.
_FOR_OTHERS = re.compile(r"^-$|/(lib(c|c10|m|mvec|pthread|sleef)[-.]|ld-)[-.\w]*$")
# Of one file, in bytes of code: more than any solution compiles, a library under another name.
_MOST_CODE = 16 << 20
# Torch's file, and the names in it of functions that other code calls for each vector.
_TORCH, _VECTOR_FUNCTION = "libtorch_cpu.so", b"Sleef_"
_SYMBOLS = 11  # SHT_DYNSYM of elf(5)
# Between two loops of a library's, OpenMP's threads wait without a rest, whoever computes.
_WAITS = re.compile(r"/lib(gomp|iomp5|omp)[-.][-.\w]*$")
_NEAR_BYTES = 4096  # from the top of the stack
# Of what processes tell of their mappings, in a look; one that has imported torch tells 50 KB.
_MOST_BYTES = 32 << 20

Kind = Literal["library", "for others", "waits", "other"]
Mapping = tuple[int, int, Kind]  # begin, end


def computes_in_a_library(pids: Iterable[int], *, shown: bool = False) -> bool | None:
    """Whether a thread of stopped processes was running in a library that computes.

    A vector function of torch's that other code calls for its own work, element by element, is
    that code's. Returns None if no thread was running, or the kernel does not tell. Where it is to
    have `shown` them all, what it does not tell counts as a library's: any process can forbid it.
    """
    ran, waits, left = False, False, _MOST_BYTES
    for pid in pids:
        try:
            mappings: list[Mapping] = []
            # The process's own files tell of its first thread, which may have ended.
            for thread in Path(f"/proc/{pid}/task").iterdir():
                where = (thread / "syscall").read_text(encoding="ascii").split()
                # A number of a system call comes first where the thread was in one, as when it
                # waits; and both addresses are 0 of a process that has ended.
                number, *_, stack, counter = ("", "", "", *where)[-3:]
                if number != "-1" or not int(counter, 16):
                    continue
                if not mappings:
                    # A file's name may hold what ends a line elsewhere, but no newline.
                    told = (thread / "maps").read_bytes()
                    left -= len(told)
                    if left < 0:
                        return shown or None
                    mappings = _executable(told)
                if not mappings:
                    continue
                library = _is_library(thread, int(counter, 16), int(stack, 16), mappings)
                if library and _kind(int(counter, 16), mappings) != "waits":
                    return True
                ran, waits = ran or not library, waits or library
        except OSError as error:
            if shown and isinstance(error, PermissionError):
                return True
    return False if ran else waits or None


def _executable(told: bytes) -> list[Mapping]:
    found: list[Mapping] = []
    parts = defaultdict[str, list[tuple[int, int, int]]](list)
    # Nothing is told of a thread that is ending.
    for line in filter(None, told.decode("latin-1").split("\n")):
        places, access, offset, *_, name = f"{line} -".split(maxsplit=5)
        if "x" in access:
            begin, end = (int(place, 16) for place in places.split("-"))
            file = name.removesuffix(" -").removesuffix(" (deleted)")
            parts[file].append((begin, end, begin - int(offset, 16)))
    for file, of_file in parts.items():
        large = sum(end - begin for begin, end, _ in of_file) > _MOST_CODE
        copied = large and file not in {"-", str(_torch_s("libtorch_python.so"))}
        kind: Kind = "library" if _LIBRARIES.search(file) else "other"
        kind = "for others" if _FOR_OTHERS.search(file) else kind
        kind = "waits" if _WAITS.search(file) else kind
        kind = "library" if copied else kind  # whatever it is called
        for begin, end, start in of_file:
            at = _vector_functions() if file.endswith(f"/{_TORCH}") else (0, 0)
            low, high = (min(max(begin, start + place), end) for place in at)
            found += [(begin, low, kind), (low, high, "for others"), (high, end, kind)]
    return sorted(one for one in found if one[0] < one[1])


@functools.cache
def _vector_functions() -> tuple[int, int]:
    """Return where in torch's file its vector functions are; where no symbol tells, all of it."""
    try:
        with _torch_s(_TORCH).open("rb") as file:
            elf = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        places = [at for name, at in _symbols(elf) if name.startswith(_VECTOR_FUNCTION)]
        return min(places), max(places)
    except (OSError, StopIteration, ValueError, struct.error):
        return 0, sys.maxsize


@functools.cache
def _torch_s(library: str) -> Path:
    torch = find_spec("torch")
    return Path(torch.origin if torch and torch.origin else "", "../lib", library).resolve()


def _symbols(elf: mmap.mmap) -> Iterator[tuple[bytes, int]]:
    """Yield beginnings of dynamic symbols' names, and where in the file the symbols are."""
    table, count = struct.unpack_from("<40xQ12xH", elf)
    sections = list(struct.iter_unpack("<4xI8xQQQI20x", elf[table : table + 64 * count]))
    _, _, at, size, names = next(one for one in sections if one[0] == _SYMBOLS)
    for name, section, value in struct.iter_unpack("<I2xHQ8x", elf[at : at + size]):
        if section < count:  # not one that lies in none
            begin = sections[names][2] + name
            yield elf[begin : begin + 8], value - sections[section][1] + sections[section][2]


def _is_library(thread: Path, counter: int, stack: int, mappings: list[Mapping]) -> bool:
    """Whether the work at a counter is a library's, as is that of the nearest caller."""
    at = _kind(counter, mappings)
    # A stack may have been filled, to be taken for callers'.
    if at in {"library", "other"}:
        return at == "library"
    near = b""
    # A stack pointer may point nowhere.
    with contextlib.suppress(OSError), (thread / "mem").open("rb", buffering=0) as memory:
        near = os.pread(memory.fileno(), _NEAR_BYTES, stack)
    # Return addresses are among the words, of 8 bytes, on the stack.
    kinds = (_kind(word, mappings) for word in memoryview(near[: len(near) & -8]).cast("Q"))
    return next((kind for kind in kinds if kind in {"library", "other"}), at) == "library"


def _kind(address: int, mappings: list[Mapping]) -> Kind | None:
    number = bisect.bisect(mappings, address, key=lambda mapping: mapping[0]) - 1
    begin, end, kind = mappings[max(0, number)]
    return kind if begin <= address < end else None

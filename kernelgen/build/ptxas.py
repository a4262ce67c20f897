"""Resources of each kernel, read from the report of `ptxas -v`."""

import re
import shutil
import subprocess

import msgspec

_ENTRY = re.compile(r"Compiling entry function '([^'\s]+)' for '([^'\s]+)'")
_USED = re.compile(r"^.*Used (\d{1,9}) registers.*$", re.MULTILINE)
_SHARED = re.compile(r"(\d{1,9}) bytes smem")
# A name of 300 letters may stand for one of gigabytes, with all that its parts stand for.
_LONGEST_NAME = 10_000
_WITHIN = f'ulimit -t 2 && ulimit -v {1 << 18} && "$1" | head -c {1 << 24}'


class KernelResources(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of one kernel on one architecture.

    Attributes:
        name: demangled where c++filt is present, else as the compiler mangles it.
        arch: such as `sm_90a`.
        registers: a thread.
        spill_store_bytes, spill_load_bytes, stack_bytes: a thread, in local memory.
        shared_bytes: static shared memory a block; what a launch asks for is not in it.
    """

    name: str
    arch: str
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    shared_bytes: int


def parse_ptxas(report: str) -> tuple[KernelResources, ...]:
    """Return the kernels of a report of `nvcc -Xptxas -v`, in its order.

    Device functions that are no kernels are left out: their cost is in their callers.
    """
    # Of each entry its name, its architecture, and all that is said up to the next one.
    parts = _ENTRY.split(report)[1:]
    entries = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    found = [(*entry, used[0]) for entry in entries if (used := _USED.search(entry[2]))]
    names = demangle([mangled for mangled, *_ in found])
    return tuple(
        KernelResources(
            name=name,
            arch=arch,
            registers=_number(_USED, used),
            spill_store_bytes=_number(_frame_of(mangled, "spill stores"), text),
            spill_load_bytes=_number(_frame_of(mangled, "spill loads"), text),
            stack_bytes=_number(_frame_of(mangled, "stack frame"), text),
            shared_bytes=_number(_SHARED, used),
        )
        for name, (mangled, arch, text, used) in zip(names, found, strict=True)
    )


def _frame_of(mangled: str, kind: str) -> re.Pattern[str]:
    """Return what finds the bytes of a kind in a function's own properties, the line below."""
    own = re.escape(mangled)
    return re.compile(rf"Function properties for {own}\s*\n.*?(\d{{1,9}}) bytes {kind}")


def demangle(names: list[str]) -> list[str]:
    """Return C++ names in the form a person writes; unchanged where c++filt makes none of them."""
    tool = shutil.which("c++filt")
    if tool is None or not names:
        return names
    done = subprocess.run(
        ["/bin/sh", "-c", _WITHIN, "sh", tool],
        input="\n".join(names).encode(),
        capture_output=True,
        check=False,
    )
    told = done.stdout.decode(errors="replace").split("\n")
    pairs = zip(names, told, strict=True) if len(told) == len(names) else ()
    return [new if 0 < len(new) <= _LONGEST_NAME else old for old, new in pairs] or names


def _number(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.search(text)
    # ptxas leaves out what is zero.
    return int(match.group(1)) if match else 0

"""Resources of each kernel, read from the report of `ptxas -v`."""

import re
import shutil
import subprocess

import msgspec

_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_BARRIERS = re.compile(r"used (\d+) barriers")
_SHARED = re.compile(r"(\d+) bytes smem")
_CONSTANT = re.compile(r"(\d+) bytes cmem\[\d+\]")


class KernelResources(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of one kernel on one architecture.

    Attributes:
        name: demangled where c++filt is present, else as the compiler mangles it.
        arch: such as `sm_90a`.
        registers: a thread.
        spill_store_bytes, spill_load_bytes, stack_bytes: a thread, in local memory.
        shared_bytes: static shared memory a block; what a launch asks for is not in it.
        constant_bytes: over all constant banks.
        barriers: a block.
    """

    name: str
    arch: str
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    shared_bytes: int
    constant_bytes: int
    barriers: int


def parse_ptxas(report: str) -> tuple[KernelResources, ...]:
    """Return the kernels of a report of `nvcc -Xptxas -v`, in its order.

    Device functions that are no kernels are left out: their cost is in their callers.
    """
    found: list[tuple[str, str, tuple[int, int, int], str]] = []
    entry: tuple[str, str] | None = None
    owner = ""
    frame = (0, 0, 0)
    for line in report.splitlines():
        if match := _ENTRY.search(line):
            entry, frame = (match.group(1), match.group(2)), (0, 0, 0)
        elif match := _PROPERTIES.search(line):
            owner = match.group(1)
        elif (match := _FRAME.search(line)) and entry is not None and owner == entry[0]:
            frame = (int(match.group(1)), int(match.group(2)), int(match.group(3)))
        elif _USED.search(line) and entry is not None:
            found.append((*entry, frame, line))
            entry = None
    names = demangle([mangled for mangled, _, _, _ in found])
    return tuple(
        KernelResources(
            name=name,
            arch=arch,
            registers=_number(_USED, used),
            spill_store_bytes=stores,
            spill_load_bytes=loads,
            stack_bytes=stack,
            shared_bytes=_number(_SHARED, used),
            constant_bytes=sum(int(size) for size in _CONSTANT.findall(used)),
            barriers=_number(_BARRIERS, used),
        )
        for name, (_, arch, (stack, stores, loads), used) in zip(names, found, strict=True)
    )


def demangle(names: list[str]) -> list[str]:
    """Return C++ names in the form a person writes; unchanged where c++filt is not installed."""
    tool = shutil.which("c++filt")
    if tool is None or not names:
        return names
    done = subprocess.run(
        [tool], input="\n".join(names), capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def _number(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.search(text)
    # ptxas leaves out what is zero.
    return int(match.group(1)) if match else 0

"""The schedules of a problem: for each architecture, numbers of the schedule.

They stand under the key `schedules` of the problem's file; `kernelgen tune` finds them. Only their
shape is checked here. Which numbers there are, and which of them go together, is for the schedules
in `kernelgen/rendering/` to say.
"""

from kernelgen.problem.record import ScheduleEntry
from kernelgen.problem.yaml_tree import YamlValue

CPU = "cpu"
GPUS = ("sm_80", "sm_90a", "sm_100a")
"""Architectures to render CUDA for, as nvcc names them; later GPUs of a line run it too."""
_EXAMPLE = 256


def architecture_of(capability: tuple[int, int]) -> str:
    """Return what a solution for a GPU of this compute capability is rendered for."""
    return {9: "sm_90a", 10: "sm_100a"}.get(capability[0], "sm_80")


def read_schedules(table: YamlValue) -> dict[str, ScheduleEntry]:
    """Return a problem's schedules by architecture.

    Raises:
        ProblemError: the table is not a mapping of architectures to whole numbers.
    """
    if not table.items():
        raise table.error("expected an architecture such as `sm_90a`, found none; remove the key")
    entries = {}
    for arch, value in table.items():
        if arch not in (known := (CPU, *GPUS)):
            expected = f"expected one of {', '.join(known)}"
            raise value.error(f"{expected}, found {arch[:40]!r}", line=value.key_line)
        if not value.items():
            message = f"expected numbers such as `threads: {_EXAMPLE}`, found none; remove it"
            raise value.error(message)
        entries[arch] = ScheduleEntry(
            numbers={name: item.whole_number(_EXAMPLE) for name, item in value.items()},
            lines={name: item.line for name, item in value.items()},
        )
    return entries

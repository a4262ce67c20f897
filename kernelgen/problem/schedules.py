"""The key `schedules` of a problem file: for each architecture, numbers of the schedule.

Only their shape is checked here. Which numbers there are, and which of them go together, is for the
schedules in `kernelgen/rendering/` to say.
"""

import re
from collections.abc import Mapping

from kernelgen.problem.record import ScheduleEntry
from kernelgen.problem.yaml_tree import YamlValue

CPU = "cpu"
_GPU = re.compile(r"sm_[1-9][0-9]{1,2}")
_EXAMPLE = 256


def is_gpu_architecture(name: str) -> bool:
    """Whether this is a compute capability such as `sm_90`, without a letter behind it."""
    return _GPU.fullmatch(name) is not None


def read_schedules(fields: Mapping[str, YamlValue]) -> dict[str, ScheduleEntry]:
    """Return the entries of a problem's table of schedules, empty if it has none.

    Args:
        fields: the problem's keys.

    Raises:
        ProblemError: the table is not a mapping of architectures to whole numbers, or there is no
            template that it could be for.
    """
    table = fields.get("schedules")
    if table is None:
        return {}
    if "template" not in fields:
        message = "expected a `template`, whose numbers these are, found none; remove the key"
        raise table.error(message)
    if not table.items():
        raise table.error("expected an architecture such as `sm_90`, found none; remove the key")
    return {arch: _entry(table, arch, value) for arch, value in table.items()}


def _entry(table: YamlValue, arch: str, value: YamlValue) -> ScheduleEntry:
    if arch != CPU and not is_gpu_architecture(arch):
        message = f"expected `{CPU}` or a compute capability such as `sm_90`, found {arch[:40]!r}"
        raise value.error(message, line=table.key_line(value))
    items = value.items()
    if not items:
        raise value.error(f"expected numbers such as `threads: {_EXAMPLE}`, found none; remove it")
    return ScheduleEntry(
        numbers={name: item.whole_number(_EXAMPLE) for name, item in items},
        lines={name: item.line for name, item in items},
    )

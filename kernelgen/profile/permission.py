"""Whether the driver will let a process read the performance counters, as far as that is certain.

By default NVIDIA's driver lets only administrators: processes with CAP_SYS_ADMIN, or CAP_PERFMON
from driver 565 on, in the machine's first user namespace (ERR_NVGPUCTRPERM in NVIDIA's "Development
Tools Solutions"). A contained process is in another user namespace and has given all capabilities
away, whoever started it. Where the driver is open to all, containment makes no difference: counters
are read through the device nodes, which a contained process has, and ncu speaks with the process
that it has started over local sockets, which stay within the containment that is around both.
"""

from __future__ import annotations

import re
from pathlib import Path

_PARAMETERS = Path("/proc/driver/nvidia/params")
_STATUS = Path("/proc/self/status")
_CAP_SYS_ADMIN, _CAP_PERFMON = 21, 38
_OPEN_TO_ALL = "have the driver loaded with NVreg_RestrictProfilingToAdminUsers=0"
_REASON = "the driver lets only administrators read performance counters"


def refusal(*, contained: bool) -> str:
    """Return why counters cannot be read here and how to mend it, "" if they may be.

    Args:
        contained: the process that is profiled is.
    """
    if not _for_administrators():
        return ""
    if not _is_administrator():
        return how_to_get(contained=contained)
    if not contained:
        return ""
    return (
        f"{_REASON}, and a contained process is none: use --sandbox off, which runs the solution's "
        f"code with all your rights, or {_OPEN_TO_ALL}"
    )


def how_to_get(*, contained: bool) -> str:
    """Return what to do once ncu has been refused.

    Args:
        contained: the process that was profiled is.
    """
    sandbox = " with --sandbox off" if contained else ""
    return (
        f"{_REASON}: run as root{sandbox}, in a container that was started with "
        f"--cap-add=SYS_ADMIN, or {_OPEN_TO_ALL}"
    )


def _for_administrators() -> bool:
    try:
        text = _PARAMETERS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False  # another kind of driver: ncu will say what it can do
    return re.search(r"^RmProfilingAdminOnly:\s*1\s*$", text, re.MULTILINE) is not None


def _is_administrator() -> bool:
    held = re.search(r"^CapEff:\s*([0-9a-f]+)$", _STATUS.read_text("ascii"), re.MULTILINE)
    capabilities = int(held.group(1), 16) if held else 0
    return bool(capabilities & (1 << _CAP_SYS_ADMIN | 1 << _CAP_PERFMON))

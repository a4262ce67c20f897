"""What ncu writes: a CSV table of one row a launch, between lines of messages.

The table is that of `--csv --page raw --print-units base`: a row of names, a row of units, then the
launches. ncu leaves out or marks what it could not collect.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator

from kernelgen.errors import KernelgenFault
from kernelgen.profile.metrics import METRICS, STALL_REASONS, TIME, Kind, stall_metric
from kernelgen.profile.record import Counters, Launch, Stall

_KERNEL, _GRID, _BLOCK = "Kernel Name", "Grid Size", "Block Size"
_MESSAGE = re.compile(r"==(?:PROF|ERROR|WARNING|LOG)==")
_ERROR = re.compile(r"^==ERROR== +(.*\S)", re.MULTILINE)
_UNKNOWN_METRIC = re.compile(r"^==ERROR== +Failed to find metric +'?([\w.:]+)", re.MULTILINE)
_PASSES = re.compile(r"- (\d+) pass")
# How ncu of different years writes its units. They are base units unless somebody's configuration
# says otherwise, and a prefix that is overlooked would be off by a thousand.
_TIMES_US = {
    "ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3,
    "s": 1e6, "second": 1e6,
}  # fmt: skip
_BYTES = {
    "byte": 1.0, "B": 1.0, "Kbyte": 1e3, "KB": 1e3, "Mbyte": 1e6, "MB": 1e6, "Gbyte": 1e9,
    "GB": 1e9, "Tbyte": 1e12, "TB": 1e12,
}  # fmt: skip
_SCALES = {"time": _TIMES_US, "bytes": _BYTES}
# Prefixed units of what is taken as it is: `Kinst`, `Msector`, and so on are none of these.
_PLAIN_PREFIXED = re.compile(r"^[KMGT](?:inst|sector|cycle|warp|block|thread|request)")


def read_launches(text: str) -> tuple[Launch, ...]:
    """Return the launches that a log of ncu's holds; none if it holds no table.

    Raises:
        KernelgenFault: the table is not of the known form; the message says where.
    """
    rows = list(_table(text))
    if not rows:
        return ()
    names, launches = rows[0], rows[1:]
    missing = [name for name in (_KERNEL, _GRID, _BLOCK, TIME.name) if name not in names]
    if missing:
        raise _unreadable(f"its table has no column {missing[0]}")
    units: list[str] = [""] * len(names)
    if launches and not launches[0][names.index("ID")].strip():
        units, launches = launches[0], launches[1:]
    columns = dict(zip(names, units, strict=True))
    return tuple(_launch(dict(zip(names, row, strict=True)), columns) for row in launches)


def unknown_metrics(text: str) -> tuple[str, ...]:
    """Return the metrics that ncu says it does not know, each once."""
    return tuple(dict.fromkeys(_UNKNOWN_METRIC.findall(text)))


def errors(text: str) -> tuple[str, ...]:
    """Return what ncu reports as errors, each once, without its sign for them."""
    return tuple(dict.fromkeys(_ERROR.findall(text)))


def most_passes(text: str) -> int | None:
    """Return how often ncu ran a kernel to collect everything, None if it does not say."""
    found = [int(count) for count in _PASSES.findall(text)]
    return max(found, default=None)


def _table(text: str) -> Iterator[list[str]]:
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID",')), None)
    if start is None:
        return
    width = 0
    kept = (line for line in lines[start:] if line.strip() and not _MESSAGE.match(line))
    try:
        for row in csv.reader(kept, strict=True):
            width = width or len(row)
            if len(row) != width:
                raise _unreadable(f"a row of its table has {len(row)} entries, not {width}")
            yield row
    except csv.Error as error:
        raise _unreadable(str(error)) from error


def _launch(cells: dict[str, str], units: dict[str, str]) -> Launch:
    values: dict[str, float] = {}
    for metric in METRICS:
        value = _number(cells.get(metric.name, ""), metric.name)
        if value is not None:
            values[metric.field] = value * _scale(metric.kind, units[metric.name], metric.name)
    if TIME.field not in values:
        raise _unreadable(f"it gives no time ({TIME.name}) for {cells[_KERNEL][:100]}")
    return Launch(
        kernel=cells[_KERNEL],
        grid=cells[_GRID],
        block=cells[_BLOCK],
        counters=Counters(**values),
        stalls=_stalls(cells),
    )


def _stalls(cells: dict[str, str]) -> tuple[Stall, ...]:
    """Turn warps that wait for each instruction issued into shares of the warps' time."""
    waiting = {}
    for reason in STALL_REASONS:
        name = stall_metric(reason)
        value = _number(cells.get(name, ""), name)
        if value is not None:
            waiting[reason] = value
    total = sum(waiting.values())
    if total <= 0:
        return ()
    found = [Stall(reason=reason, share=value / total) for reason, value in waiting.items()]
    return tuple(sorted(found, key=lambda stall: -stall.share))


def _number(cell: str, name: str) -> float | None:
    """Read a number such as `1,234.5`; None for what ncu could not collect."""
    text = cell.strip().replace(",", "")
    if text.lower() in ("", "n/a", "nan", "-nan", "inf", "-inf", "(!) n/a", "(!) nan", "no data"):
        return None
    try:
        value = float(text)
    except ValueError:
        raise _unreadable(f"{name} is {cell[:40]!r}, not a number") from None
    return value if math.isfinite(value) else None


def _scale(kind: Kind, unit: str, name: str) -> float:
    if kind == "plain":
        if _PLAIN_PREFIXED.match(unit):
            raise _unreadable(f"{name} has the unit {unit!r}, not a base unit")
        return 1.0
    # `Kbyte/block` is as many bytes as Kbyte.
    scale = _SCALES[kind].get(unit.partition("/")[0])
    if scale is None:
        raise _unreadable(f"{name} has the unit {unit!r}, which is not known")
    return scale


def _unreadable(what: str) -> KernelgenFault:
    return KernelgenFault(f"the report of this ncu cannot be read: {what}")

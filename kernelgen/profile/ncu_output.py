"""What ncu writes: a CSV table between lines of messages, and the kernels that it describes.

The table is that of `--csv --page details --print-units base`: each row is a metric of a launch, or
what one of ncu's rules says about it. The metrics asked for by name stand there under these names,
those of sections under labels, which are not read. ncu leaves out or marks what it could not
collect.
"""

import csv
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from kernelgen.errors import KernelgenFault
from kernelgen.profile.metrics import METRICS, STALL_REASONS, SUMMED, stall_metric
from kernelgen.profile.record import Advice, Counters, KernelProfile, Stall

_ID, _KERNEL, _GRID, _BLOCK = "ID", "Kernel Name", "Grid Size", "Block Size"
_METRIC, _UNIT, _VALUE = "Metric Name", "Metric Unit", "Metric Value"
_NEEDED = (_ID, _KERNEL, _GRID, _BLOCK, _METRIC, _UNIT, _VALUE)
_RULE, _RULE_TYPE, _RULE_TEXT = "Rule Name", "Rule Type", "Rule Description"
_SPEEDUP, _SPEEDUP_TYPE = "Estimated Speedup", "Estimated Speedup Type"
# Rules also inform (INF) and warn of metrics that no section here collects (WRN).
_ADVISES = "OPT"
_LINK = re.compile(r" \(https://[^)\s]*\)")
_MESSAGE = re.compile(r"==(?:PROF|ERROR|WARNING|LOG)==")
_ERROR = re.compile(r"^==ERROR== +(.*\S)", re.MULTILINE)
_UNKNOWN_METRIC = re.compile(r"^==ERROR== +Failed to find metric +'?([\w.:]+)", re.MULTILINE)
# Base units of counters whose names end so, as ncu of different years writes them. Somebody's
# configuration may ask for others: a prefix that is overlooked would be off by a thousand.
_BASE_UNITS = {"us": ("ns", "nsecond"), "bytes": ("byte", "B")}
# Prefixed units of what is taken as it is: `Kinst`, `Msector`, and so on.
_PLAIN_PREFIXED = re.compile(r"^[KMGT](?:inst|sector|cycle|warp|block|thread|request)")

Row = dict[str, str]


def read_launches(text: str) -> tuple[KernelProfile, ...]:
    """Return each launch that a log of ncu's holds, by itself; none if it holds no table.

    Raises:
        KernelgenFault: the table is not of the known form; the message says where.
    """
    launches = itertools.groupby(_table(text), key=lambda row: row[_ID])
    return tuple(_launch(list(rows)) for _, rows in launches)


def unknown_metrics(text: str) -> tuple[str, ...]:
    """Return the metrics that ncu says it does not know, each once."""
    return tuple(dict.fromkeys(_UNKNOWN_METRIC.findall(text)))


def errors(text: str) -> tuple[str, ...]:
    """Return what ncu reports as errors, each once, without its sign for them."""
    return tuple(dict.fromkeys(_ERROR.findall(text)))


def merge(launches: Sequence[KernelProfile]) -> tuple[KernelProfile, ...]:
    """Return the kernels, the one that takes most of the time first.

    Launches belong together if kernel, grid and block are the same. Counts are added up; shares,
    rates and sizes are means weighted by time, over the launches that have them.
    """
    groups: dict[tuple[str, str, str], list[KernelProfile]] = defaultdict(list)
    for launch in launches:
        groups[launch.kernel, launch.grid, launch.block].append(launch)
    total_us = sum(launch.counters.time_us for launch in launches)
    kernels: list[KernelProfile] = []
    for group in groups.values():
        counters = _merged_counters([launch.counters for launch in group])
        kernel = msgspec.structs.replace(
            max(group, key=lambda launch: launch.counters.time_us),
            launches=len(group),
            share=counters.time_us / total_us if total_us > 0 else 0.0,
            counters=counters,
            dram_gbps=counters.dram_gbps,
            stalls=_merged_stalls(group),
        )
        kernels.append(kernel)
    return tuple(sorted(kernels, key=lambda kernel: -kernel.counters.time_us))


def _table(text: str) -> Iterator[Row]:
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID",')), None)
    if start is None:
        return
    kept = (line for line in lines[start:] if line.strip() and not _MESSAGE.match(line))
    try:
        reader = csv.reader(kept, strict=True)
        names = next(reader)
        missing = [name for name in _NEEDED if name not in names]
        if missing:
            raise _unreadable(f"its table has no column {missing[0]}")
        least = names.index(_VALUE) + 1
        for cells in reader:
            # The row of a metric ends before the columns of rules.
            if not least <= len(cells) <= len(names):
                raise _unreadable(
                    f"a row of its table has {len(cells)} entries, not {least} to {len(names)}"
                )
            yield dict(zip(names, cells, strict=False))
    except csv.Error as error:
        raise _unreadable(str(error)) from error


def _launch(rows: list[Row]) -> KernelProfile:
    first = rows[0]
    found = {row[_METRIC]: row for row in rows if row[_METRIC]}
    values = {
        field: value * _scale(field, found[name][_UNIT])
        for field, name in METRICS.items()
        if (value := _number(found, name)) is not None
    }
    if "time_us" not in values:
        raise _unreadable(f"it gives no time ({METRICS['time_us']}) for {first[_KERNEL][:100]}")
    counters = Counters(**values)
    waiting = {
        reason: value
        for reason in STALL_REASONS
        if (value := _number(found, stall_metric(reason))) is not None
    }
    return KernelProfile(
        kernel=first[_KERNEL],
        grid=first[_GRID],
        block=first[_BLOCK],
        launches=1,
        share=1.0,
        counters=counters,
        dram_gbps=counters.dram_gbps,
        # From warps that wait for each instruction issued to shares of the warps' time.
        stalls=_shares(waiting),
        advice=_advice(rows),
    )


def _advice(rows: list[Row]) -> tuple[Advice, ...]:
    found = [
        Advice(
            rule=row[_RULE],
            text=_LINK.sub("", " ".join(row[_RULE_TEXT].split())),
            speedup_pct=_global_speedup(row),
        )
        for row in rows
        if row.get(_RULE) and row.get(_RULE_TYPE) == _ADVISES and row.get(_RULE_TEXT)
    ]
    return tuple(sorted(found, key=lambda advice: -(advice.speedup_pct or 0.0)))


def _global_speedup(row: Row) -> float | None:
    """Return an estimate for the whole kernel; `local` ones are for what a rule looks at alone."""
    if row.get(_SPEEDUP_TYPE) != "global":
        return None
    try:
        value = float(row.get(_SPEEDUP, "").replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _shares(weights: dict[str, float]) -> tuple[Stall, ...]:
    """Return reasons with their shares of all weights, the largest first."""
    total = sum(weights.values())
    if total <= 0:
        return ()
    stalls = [Stall(reason=reason, share=weight / total) for reason, weight in weights.items()]
    return tuple(sorted(stalls, key=lambda stall: -stall.share))


def _number(found: dict[str, Row], name: str) -> float | None:
    """Read a number such as `1,234.5`; None for what ncu could not collect."""
    cell = found[name][_VALUE] if name in found else ""
    text = cell.strip().replace(",", "")
    if text.lower() in ("", "n/a", "nan", "-nan", "inf", "-inf", "(!) n/a", "(!) nan", "no data"):
        return None
    try:
        value = float(text)
    except ValueError:
        raise _unreadable(f"{name} is {cell[:40]!r}, not a number") from None
    return value if math.isfinite(value) else None


def _scale(field: str, unit: str) -> float:
    base = _BASE_UNITS.get(field.rpartition("_")[2])
    if _PLAIN_PREFIXED.match(unit) if base is None else unit not in base:
        raise _unreadable(f"{METRICS[field]} has the unit {unit!r}, not a base unit")
    return 1e-3 if field == "time_us" else 1.0


def _unreadable(what: str) -> KernelgenFault:
    return KernelgenFault(f"the report of this ncu cannot be read: {what}")


def _merged_counters(group: list[Counters]) -> Counters:
    values: dict[str, float] = {}
    for field, name in METRICS.items():
        # A launch has a time of 1 ns at least.
        found = [(getattr(c, field), max(c.time_us, 1e-3)) for c in group]
        known = [(value, weight) for value, weight in found if value is not None]
        summed = name.endswith(SUMMED)
        if summed and len(known) == len(group):
            values[field] = sum(value for value, _ in known)
        elif not summed and known:
            weights = sum(weight for _, weight in known)
            values[field] = sum(value * weight for value, weight in known) / weights
    return Counters(**values)


def _merged_stalls(group: list[KernelProfile]) -> tuple[Stall, ...]:
    weights: dict[str, float] = defaultdict(float)
    for launch in group:
        for stall in launch.stalls:
            weights[stall.reason] += stall.share * launch.counters.time_us
    return _shares(weights)

"""A profile on a terminal: a table of the kernels, then sentences about each that matters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kernelgen.grading.kernels.names import parse_kernel_name
from kernelgen.profile.quantities import amount, duration, launches, percent, times
from kernelgen.profile.record import Advice, KernelProfile, Profile
from kernelgen.profile.sentences import heading, sentences
from kernelgen.report.details import Line
from kernelgen.report.printable import printable
from kernelgen.report.table import print_line

# Who reads a pipe wants whole names.
_UNLIMITED_CELLS = 10_000
_LEAST_NAME_CELLS = 16
# Kernels that take less are in the table alone.
_LEAST_SHARE = 0.02
_MOST_TOLD = 8


class _Column(msgspec.Struct, frozen=True):
    """A column of numbers: what stands above it, and what it shows of a kernel."""

    heading: str
    cell: Callable[[KernelProfile], str]


def _known(value: float | None, text: Callable[[float], str]) -> str:
    return "-" if value is None else text(value)


# From the most important to the least: a narrow terminal gets the first that fit.
_COLUMNS = (
    _Column("time us", lambda kernel: f"{kernel.counters.time_us:.1f}"),
    _Column("share", lambda kernel: percent(100 * kernel.share)),
    _Column("DRAM", lambda kernel: _known(kernel.counters.dram_bytes, amount)),
    _Column("GB/s", lambda kernel: _known(kernel.dram_gbps, "{:.0f}".format)),
    _Column("of peak", lambda kernel: _known(kernel.counters.dram_pct, percent)),
    _Column("occupancy", lambda kernel: _known(kernel.counters.occupancy_pct, percent)),
    _Column("L2", lambda kernel: _known(kernel.counters.l2_bytes, amount)),
    _Column("regs", lambda kernel: _known(kernel.counters.registers, "{:.0f}".format)),
    _Column("launches", lambda kernel: str(kernel.launches)),
)


def show(profile: Profile, console: Console) -> None:
    """Print a profile: the table, what was counted of each kernel and what to try, and the call."""
    if not console.is_interactive:
        console.width = _UNLIMITED_CELLS
    ascii_only = console.options.ascii_only
    console.print(_fitting(profile, console))
    for line in _lines(profile):
        text = printable(line.text, ascii_only=ascii_only)
        if not text:
            console.print()
            continue
        print_line(msgspec.structs.replace(line, text=text), console)


def _fitting(profile: Profile, console: Console) -> Table:
    """Return the table with as many columns as there is room for; numbers are never cut."""
    roomy = console.options.update_width(_UNLIMITED_CELLS)
    for count in range(len(_COLUMNS), 1, -1):
        table = _table(profile, _COLUMNS[:count], console)
        names = max(len(_name(kernel)) for kernel in profile.kernels)
        excess = console.measure(table, options=roomy).maximum - console.width
        if names - excess >= min(names, _LEAST_NAME_CELLS):
            break
    return table


def _table(profile: Profile, columns: tuple[_Column, ...], console: Console) -> Table:
    lines = None if console.options.ascii_only else box.SIMPLE_HEAD
    table = Table(box=lines, show_edge=False, pad_edge=False, header_style="bold")
    table.add_column("kernel", overflow="fold")
    side: Literal["right"] = "right"
    for column in columns:
        table.add_column(column.heading, justify=side, no_wrap=True)
    for kernel in profile.kernels:
        table.add_row(Text(_name(kernel)), *(column.cell(kernel) for column in columns))
    return table


def _name(kernel: KernelProfile) -> str:
    return printable(parse_kernel_name(kernel.kernel).shown)


def _lines(profile: Profile) -> Iterator[Line]:
    told = [kernel for kernel in profile.kernels if kernel.share >= _LEAST_SHARE][:_MOST_TOLD]
    for kernel in told:
        yield Line(lead="", folded_lead="", text="")
        text = heading(kernel, _name(kernel))
        yield Line(lead="", folded_lead="  ", text=text, style="bold")
        for sentence in sentences(kernel, profile.facts, profile.copy_gbps):
            yield Line(lead="  ", folded_lead="    ", text=sentence)
        yield from map(_advised, kernel.advice)
    if len(told) < len(profile.kernels):
        rest = len(profile.kernels) - len(told)
        text = f"The other kernels ({rest}) take little each; --json has what was counted of them"
        yield Line(lead="", folded_lead="  ", text=text, style="dim")
    yield Line(lead="", folded_lead="", text="")
    yield from _call(profile)


def _advised(advice: Advice) -> Line:
    return Line(lead="  - ", folded_lead="    ", text=advice.text, style="cyan")


def _call(profile: Profile) -> Iterator[Line]:
    facts = profile.facts
    count = sum(kernel.launches for kernel in profile.kernels)
    text = f"The call: {duration(profile.time_us)} in {launches(count)} on {facts.device}"
    if profile.dram_bytes is not None and facts.minimal_bytes > 0:
        ratio = times(profile.dram_bytes / facts.minimal_bytes)
        text += (
            f"; {amount(profile.dram_bytes)} of DRAM for a minimum of "
            f"{amount(facts.minimal_bytes)} ({ratio})"
        )
    text += f"; without ncu, with warm caches, {duration(facts.forward_ms * 1e3)}"
    yield Line(lead="", folded_lead="  ", text=text, style="bold")
    yield from map(_advised, profile.advice)
    if profile.unavailable:
        text = f"not available on this device or to this ncu: {', '.join(profile.unavailable)}"
        yield Line(lead="", folded_lead="  ", text=text, style="dim")
    for warning in profile.warnings:
        yield Line(lead="", folded_lead="  ", text=f"warning: {warning}", style="yellow")
    yield Line(lead="", folded_lead="  ", text=profile.method, style="dim")

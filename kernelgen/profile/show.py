"""A profile on a terminal: ncu's pages, then each launch's bytes of DRAM beside the least."""

from rich.console import Console
from rich.text import Text

from kernelgen.grading.kernels.names import parse_kernel_name
from kernelgen.profile.record import Launch, Profile
from kernelgen.report.columns import decimal
from kernelgen.report.console import keep_lines_whole
from kernelgen.report.numbers import times
from kernelgen.report.table import Column, Line, print_line, print_table, written

_METHOD = (
    "each kernel of the second call was run again for every group of counters, with empty caches "
    "and clocks left as they are: quote the times of `kernelgen grade`"
)


def _megabytes(count: float | None) -> str:
    return "" if count is None else decimal(count / 1e6) if count else "0"


_COLUMNS: tuple[Column[Launch], ...] = (
    Column(heading="kernel", cell=lambda one: parse_kernel_name(one.kernel).shown, name=True),
    Column(heading="grid x block", cell=lambda one: one.launched, rank=1),
    Column(heading="us", cell=lambda one: decimal(one.time_us), number=True),
    Column(heading="MB read", cell=lambda one: _megabytes(one.dram_read_bytes), number=True),
    Column(heading="MB written", cell=lambda one: _megabytes(one.dram_written_bytes), number=True),
)


def show(profile: Profile, console: Console) -> None:
    """Print ncu's page of each launch, a table of all, and their bytes against the least."""
    keep_lines_whole(console)
    for launch in profile.launches:
        for line in launch.page.splitlines():
            console.print(Text(written(line.rstrip(), console)), soft_wrap=True)
        console.print()
    print_table(_COLUMNS, profile.launches, console)
    console.print()
    print_line(Line(text=_whole(profile), style="bold"), console)
    for warning in profile.warnings:
        print_line(Line(text=f"warning: {warning}", style="yellow"), console)
    print_line(Line(text=f"ncu {profile.ncu}: {_METHOD}", style="dim"), console)


def _whole(profile: Profile) -> str:
    least = profile.facts.minimal_bytes
    moved = [one.dram_bytes for one in profile.launches]
    known = [count for count in moved if count is not None]
    text = f"{profile.facts.device}: the problem needs to move {_megabytes(least)} MB"
    if len(known) < len(moved):
        return f"{text}; not all bytes of DRAM were counted"
    ratio = f" ({times(sum(known) / least)})" if least else ""
    return f"{text}; the call moved {_megabytes(sum(known))} MB of DRAM{ratio}"

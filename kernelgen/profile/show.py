"""A profile on a terminal: what ncu wrote, then the bytes of DRAM beside the least."""

from rich.console import Console
from rich.text import Text

from kernelgen.profile.record import Profile
from kernelgen.report.columns import decimal
from kernelgen.report.console import Line, keep_lines_whole, print_line, written
from kernelgen.report.numbers import times

_METHOD = (
    "each kernel of the second call was run again for every group of counters, with empty caches "
    "and clocks left as they are: quote the times of `kernelgen grade`"
)


def show(profile: Profile, console: Console) -> None:
    """Print ncu's log, and the bytes of DRAM against the least."""
    keep_lines_whole(console)
    for line in profile.log.splitlines():
        console.print(Text(written(line.rstrip(), console)), soft_wrap=True)
    print_line(Line(text=_moved(profile), style="bold"), console)
    for warning in profile.warnings:
        print_line(Line(text=f"warning: {warning}", style="yellow"), console)
    print_line(Line(text=_METHOD, style="dim"), console)


def _moved(profile: Profile) -> str:
    least, moved = profile.facts.minimal_bytes, profile.dram_bytes
    text = f"{profile.facts.device}: the problem needs to move {decimal(least / 1e6)} MB"
    if moved is None:
        return f"{text}; not all bytes of DRAM were counted"
    ratio = f" ({times(moved / least)})" if least else ""
    return f"{text}; the call moved {decimal(moved / 1e6)} MB of DRAM{ratio}"

"""What ncu writes with `--page details --print-units base`, composed for tests.

The form is that of ncu 2025.3.1 on an H100.
"""

from kernelgen.profile.details import METRICS

# A copy of 1 GB to 1 GB on an H200, about as ncu would see it.
COPY = {
    "gpu__time_duration.sum": "480000",
    "dram__bytes_read.sum": "1000000000",
    "dram__bytes_write.sum": "980000000",
}
UNITS = {
    "gpu__time_duration.sum": "ns",
    "dram__bytes_read.sum": "byte",
    "dram__bytes_write.sum": "byte",
}
MISSING = "(!) n/a"
BEFORE = (
    "==WARNING== Note: Running with unmodified GPU clocks. If not controlled otherwise, profiling "
    "results may be inconsistent.\n"
    "==PROF== Connected to process 537 (/usr/bin/python3.12)\n"
    '==PROF== Profiling "copy" - 0 (1/1): 0%....50%....100% - 19 passes\n'
    "==PROF== Disconnected from process 537\n"
    "[537] python3.12@127.0.0.1\n"
)
RULE = "    ---------------------- ----------- ------------\n"
HEAD = f"{RULE}    Metric Name            Metric Unit Metric Value\n{RULE}"
SECTIONS = f"""\
    Section: GPU Speed Of Light Throughput
{HEAD}    Memory Throughput                %        59.92
    Duration                        ns            1
{RULE}
    OPT   Est. Speedup: 25%
          This kernel launch results in 3 full waves and a partial wave of 117 thread blocks.

"""


def report(*launches: dict[str, str], units: dict[str, str] | None = None) -> str:
    """Return a log with a page of each launch.

    Args:
        launches: metrics that differ from COPY's; `kernel` names the launch.
        units: that differ from UNITS.
    """
    shown = {**UNITS, **(units or {})}
    return BEFORE + "".join(_page({**COPY, **launch}, shown) for launch in launches)


def _page(found: dict[str, str], units: dict[str, str]) -> str:
    kernel = found.get("kernel", "void copy<float, 4>(const float *, float *, long)")
    asked = "".join(
        f"    {name:<22} {'' if found[name] == MISSING else units[name]:>11} {found[name]:>12}\n"
        for name in sorted(METRICS.values())
    )
    return (
        f"  {kernel} (1056, 1, 1)x(512, 1, 1), Context 1, Stream 7, Device 0, CC 9.0\n"
        f"    Section: Command line profiler metrics\n{HEAD}{asked}{RULE}\n{SECTIONS}"
    )

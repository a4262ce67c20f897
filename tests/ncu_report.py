"""Reports as ncu writes them with `--csv --page details --print-units base`, composed for tests.

The form, and the texts of the rules, are those of ncu 2025.3.1 on an H100.
"""

from kernelgen.profile.metrics import STALL_REASONS, names_for, stall_metric

HOPPER = (9, 0)
NAMES = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
    "Block Size", "Grid Size", "Device", "CC", "Section Name", "Metric Name", "Metric Unit",
    "Metric Value", "Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type",
    "Estimated Speedup",
)  # fmt: skip
# A copy of 1 GB to 1 GB on an H200, about as ncu would see it.
COPY = {
    "gpu__time_duration.sum": "480000",
    "dram__bytes_read.sum": "1000000000",
    "dram__bytes_write.sum": "980000000",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "88.2",
    "lts__t_bytes.sum": "2010000000",
    "lts__t_sector_hit_rate.pct": "50.1",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "42",
    "l1tex__throughput.avg.pct_of_peak_sustained_active": "31",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "18",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "9",
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active": "2",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "0",
    "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active": "6",
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active": "0.2",
    "sm__cycles_elapsed.max": "902,400",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "47.5",
    "sm__maximum_warps_per_active_cycle_pct": "50",
    "launch__registers_per_thread": "96",
    "launch__grid_size": "1056",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": "16",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio": "16",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": "0",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": "0",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": "0",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": "1000",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_active": "0.1",
    **dict.fromkeys(map(stall_metric, STALL_REASONS), "0"),
    stall_metric("long_scoreboard"): "6.2",
    stall_metric("wait"): "1.4",
    stall_metric("barrier"): "0.8",
    stall_metric("selected"): "1.0",
    stall_metric("membar"): "0.6",
}
UNITS = {
    "gpu__time_duration.sum": "ns",
    "sm__cycles_elapsed.max": "cycle",
    "dram__bytes_read.sum": "byte",
    "dram__bytes_write.sum": "byte",
    "lts__t_bytes.sum": "byte",
}
# What its rules say: section, rule, type, type and size of the estimated speedup, text.
RULES = (
    (
        "SpeedOfLight", "SOLBottleneck", "INF", "", "",
        (
            "This workload is utilizing greater than 80.0% of the available compute or memory "
            "performance of the device."
        ),
    ),
    (
        "ComputeWorkloadAnalysis", "HighPipeUtilization", "OPT", "local", "87.97",
        (
            "All compute pipelines are under-utilized. Either this workload is very small or it "
            "doesn't issue enough warps per scheduler."
        ),
    ),
    (
        "WarpStateStats", "CPIStall", "WRN", "", "",
        (
            "The optional metric smsp__pcsamp_sample_count could not be found."
        ),
    ),
    (
        "LaunchStats", "LaunchConfiguration", "OPT", "", "",
        (
            "If you execute __syncthreads() to synchronize the threads of a block, it is "
            "recommended to have at least two blocks per multiprocessor."
        ),
    ),
    (
        "Occupancy", "AchievedOccupancy", "OPT", "global", "16.36",
        (
            "The difference between calculated theoretical (100.0%) and measured achieved "
            "occupancy (83.6%) can be the result of warp scheduling overheads. See the CUDA Best "
            "Practices Guide (https://docs.nvidia.com/cuda/cuda-c-best-practices-"
            "guide/index.html#occupancy) for more details on optimizing occupancy."
        ),
    ),
    (
        "Occupancy", "TheoreticalOccupancy", "OPT", "global", "1,029.563",
        (
            "This kernel's theoretical occupancy (32.8%) is limited by the number of required "
            "registers."
        ),
    ),
)  # fmt: skip
BEFORE = (
    "==WARNING== Note: Running with unmodified GPU clocks. If not controlled otherwise, profiling "
    "results may be inconsistent.\n"
    "==PROF== Connected to process 4711 (/usr/bin/python3.11)\n"
)
AFTER = "==PROF== Disconnected from process 4711\n"


def quoted(cells: list[str]) -> str:
    """Return a row of CSV, every cell quoted as ncu does."""
    return ",".join(f'"{cell}"' for cell in cells)


def report(*launches: dict[str, str], units: dict[str, str] | None = None) -> str:
    """Return a log with a table of launches.

    Args:
        launches: metrics that differ from COPY's; `kernel`, `grid` and `block` name the launch. A
            metric that is "" was not collected.
        units: that differ from UNITS.
    """
    shown = {**UNITS, **(units or {})}
    rows = [quoted([*NAMES])]
    for number, launch in enumerate(launches):
        found = {**COPY, **launch}
        start = quoted(
            [
                str(number), "4711", "python3.11", "127.0.0.1",
                launch.get("kernel", "void copy<float>(const float *, float *, long)"),
                "1", "7", launch.get("block", "(512, 1, 1)"),
                launch.get("grid", "(1056, 1, 1)"), "0", "9.0",
            ]
        )  # fmt: skip
        asked = [
            quoted(["Command line profiler metrics", name, shown.get(name, ""), found[name]]) + ","
            for name in sorted(names_for(HOPPER))
        ]
        label = quoted(["GPU Speed Of Light Throughput", "Duration", "ns", "1"]) + ","
        ruled = [
            quoted([section, "", "", "", rule, kind, text, scope, speedup])
            for section, rule, kind, scope, speedup, text in RULES
        ]
        rows += [f"{start},{row}" for row in (*asked, label, *ruled)]
    return BEFORE + AFTER + "".join(f"{row}\n" for row in rows)

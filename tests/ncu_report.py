"""Reports as ncu writes them with `--csv --page raw --print-units base`, composed for tests."""

from kernelgen.profile.metrics import STALL_REASONS, names_for, stall_metric

HOPPER = (9, 0)
FIXED = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
    "Block Size", "Grid Size", "Device", "CC",
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
    "sm__maximum_warps_avg_per_active_cycle": "32",
    "launch__registers_per_thread": "96",
    "launch__shared_mem_per_block_static": "0",
    "launch__shared_mem_per_block_dynamic": "4096",
    "launch__shared_mem_per_block_driver": "1024",
    "launch__grid_size": "1056",
    "launch__block_size": "512",
    "launch__waves_per_multiprocessor": "4",
    "launch__occupancy_limit_registers": "2",
    "launch__occupancy_limit_shared_mem": "40",
    "launch__occupancy_limit_warps": "4",
    "launch__occupancy_limit_blocks": "32",
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
    "launch__shared_mem_per_block_static": "byte/block",
    "launch__shared_mem_per_block_dynamic": "byte/block",
    "launch__shared_mem_per_block_driver": "byte/block",
}
BEFORE = "==PROF== Connected to process 4711 (/usr/bin/python3.11)\n"
PROFILED = '==PROF== Profiling "copy" - 0: 0%....50%....100% - 9 passes\n'
AFTER = "==PROF== Disconnected from process 4711\n"


def quoted(cells: list[str]) -> str:
    """Return a row of CSV, every cell quoted as ncu does."""
    return ",".join(f'"{cell}"' for cell in cells) + "\n"


def report(*launches: dict[str, str], units: dict[str, str] | None = None) -> str:
    """Return a log with a table of launches.

    Args:
        launches: metrics that differ from COPY's; `kernel`, `grid` and `block` name the launch. A
            metric that is "" was not collected.
        units: that differ from UNITS.
    """
    names = list(names_for(HOPPER))
    shown = {**UNITS, **(units or {})}
    rows = [
        quoted([*FIXED, *names]),
        quoted(["" for _ in FIXED] + [shown.get(name, "") for name in names]),
    ]
    for number, launch in enumerate(launches):
        found = {**COPY, **launch}
        rows.append(
            quoted(
                [
                    str(number), "4711", "python3.11", "127.0.0.1",
                    launch.get("kernel", "void copy<float>(const float *, float *, long)"),
                    "1", "7", launch.get("block", "(512, 1, 1)"),
                    launch.get("grid", "(1056, 1, 1)"), "0", "9.0",
                    *(found[name] for name in names),
                ]
            )
        )  # fmt: skip
    return BEFORE + PROFILED + "".join(rows) + AFTER

"""Which of ncu's metrics and sections are asked for, and which field each metric fills.

The names are those of NVIDIA's "Kernel Profiling Guide". None may begin with `sass`, `smsp__sass`
or `sm__sass`, nor may a section need such a metric: ncu collects these by rewriting the kernel,
which then needs more registers, so that blocks that wait for each other may no longer be resident
together, and hang. That leaves out the sections on memory access patterns, spills and bank
conflicts (`MemoryWorkloadAnalysis`, `SourceCounters`): their plain counters are asked for instead.
"""

_REQUESTS = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_"

# Fields of `Counters`, and the metrics that fill them.
METRICS = {
    "time_us": "gpu__time_duration.sum",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_written_bytes": "dram__bytes_write.sum",
    "dram_pct": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_bytes": "lts__t_bytes.sum",
    "l2_hit_pct": "lts__t_sector_hit_rate.pct",
    "l2_pct": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1_pct": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "sm_pct": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "issue_pct": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "fma_pct": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "tensor_pct": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "alu_pct": "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active",
    "xu_pct": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "sm_cycles": "sm__cycles_elapsed.max",
    "occupancy_pct": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "possible_occupancy_pct": "sm__maximum_warps_per_active_cycle_pct",
    "registers": "launch__registers_per_thread",
    "blocks": "launch__grid_size",
    "load_sectors": f"{_REQUESTS}ld.ratio",
    "store_sectors": f"{_REQUESTS}st.ratio",
    "local_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    "local_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
    "shared_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "shared_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "shared_pct": ("l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_active"),
}
# Endings of metrics that are summed over launches; of the others the mean weighted by time is told.
SUMMED = (".sum", ".max")

# Counters by the names under which tables and sentences show them.
SHARES = {
    "DRAM": "dram_pct",
    "L2": "l2_pct",
    "L1": "l1_pct",
    "shared memory": "shared_pct",
    "tensor cores": "tensor_pct",
    "FMA": "fma_pct",
    "ALU": "alu_pct",
    "XU": "xu_pct",
    "issue": "issue_pct",
    "SM MHz": "sm_mhz",
}
OTHERS = {
    "SMs": "sm_pct",
    "L2 hits": "l2_hit_pct",
    "occupancy": "occupancy_pct",
    "possible": "possible_occupancy_pct",
    "registers a thread": "registers",
}

# The sections whose rules advise. Every ncu since 2020 has them, and 2025.3 collects all of them
# without a sass metric (seen on an H100, where they cost no more time than the metrics alone).
SECTIONS = (
    "SpeedOfLight", "ComputeWorkloadAnalysis", "LaunchStats", "Occupancy", "SchedulerStats",
    "WarpStateStats",
)  # fmt: skip

STALL_REASONS = (
    "barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle",
    "long_scoreboard", "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction",
    "not_selected", "selected", "short_scoreboard", "sleeping", "tex_throttle", "wait",
)  # fmt: skip


def stall_metric(reason: str) -> str:
    """Return the metric of a reason: warps that wait for it, for each instruction issued."""
    return f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"


def names_for(capability: tuple[int, int]) -> tuple[str, ...]:
    """Return every metric to ask a device for, in a fixed order, the time first.

    Only Hopper's and later ones have warpgroups, and so `gmma`.
    """
    reasons = [reason for reason in STALL_REASONS if reason != "gmma" or capability >= (9, 0)]
    return (*METRICS.values(), *map(stall_metric, reasons))

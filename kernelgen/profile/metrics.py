"""Which of ncu's metrics and sections are asked for, and which field each metric fills.

The names are those of NVIDIA's "Kernel Profiling Guide". None may begin with `sass`, `smsp__sass`
or `sm__sass`, nor may a section need such a metric: ncu collects these by rewriting the kernel,
which then needs more registers, so that blocks that wait for each other may no longer be resident
together, and hang. That leaves out the sections on memory access patterns, spills and bank
conflicts (`MemoryWorkloadAnalysis`, `SourceCounters`): their plain counters are asked for instead.
"""

from typing import Literal

import msgspec

_FIRST_WITH_WARPGROUPS = 9
Kind = Literal["time", "bytes", "plain"]


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One of ncu's metrics.

    Attributes:
        name: ncu's.
        field: of `Counters`.
        kind: what its unit has to be: of time, of bytes, or one that needs no conversion.
        summed: over launches; else the mean weighted by time.
    """

    name: str
    field: str
    kind: Kind = "plain"
    summed: bool = False


def _sum(name: str, field: str, kind: Kind = "plain") -> Metric:
    return Metric(name=name, field=field, kind=kind, summed=True)


def _mean(name: str, field: str, kind: Kind = "plain") -> Metric:
    return Metric(name=name, field=field, kind=kind)


TIME = _sum("gpu__time_duration.sum", "time_us", "time")
_REQUESTS = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_"

METRICS: tuple[Metric, ...] = (
    TIME,
    _sum("dram__bytes_read.sum", "dram_read_bytes", "bytes"),
    _sum("dram__bytes_write.sum", "dram_written_bytes", "bytes"),
    _mean("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "dram_pct"),
    _sum("lts__t_bytes.sum", "l2_bytes", "bytes"),
    _mean("lts__t_sector_hit_rate.pct", "l2_hit_pct"),
    _mean("lts__throughput.avg.pct_of_peak_sustained_elapsed", "l2_pct"),
    _mean("l1tex__throughput.avg.pct_of_peak_sustained_active", "l1_pct"),
    _mean("sm__throughput.avg.pct_of_peak_sustained_elapsed", "sm_pct"),
    _mean("smsp__issue_active.avg.pct_of_peak_sustained_active", "issue_pct"),
    _mean("sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active", "fma_pct"),
    _mean("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "tensor_pct"),
    _mean("sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active", "alu_pct"),
    _mean("sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active", "xu_pct"),
    _sum("sm__cycles_elapsed.max", "sm_cycles"),
    _mean("sm__warps_active.avg.pct_of_peak_sustained_active", "occupancy_pct"),
    _mean("sm__maximum_warps_per_active_cycle_pct", "possible_occupancy_pct"),
    _mean("launch__registers_per_thread", "registers"),
    _mean("launch__grid_size", "blocks"),
    _mean(f"{_REQUESTS}ld.ratio", "load_sectors"),
    _mean(f"{_REQUESTS}st.ratio", "store_sectors"),
    _sum("l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", "local_load_sectors"),
    _sum("l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum", "local_store_sectors"),
    _sum("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "shared_conflicts"),
    _sum("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "shared_wavefronts"),
    _mean(
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_active", "shared_pct"
    ),
)

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
    reasons = [r for r in STALL_REASONS if r != "gmma" or capability[0] >= _FIRST_WITH_WARPGROUPS]
    return (*(metric.name for metric in METRICS), *map(stall_metric, reasons))

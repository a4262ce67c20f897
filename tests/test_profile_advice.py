"""What counters say to try: each rule on counters that call for it, and on some that do not."""

import msgspec
import pytest
from ncu_report import COPY, report

from kernelgen.profile.advice import RULES, advise, advise_call
from kernelgen.profile.merging import merge
from kernelgen.profile.metrics import STALL_REASONS, stall_metric
from kernelgen.profile.ncu_output import read_launches
from kernelgen.profile.quantities import amount, duration, percent, rate, times
from kernelgen.profile.record import Facts, KernelProfile, Stall
from kernelgen.profile.scene import Scene
from kernelgen.profile.sentences import heading, sentences
from kernelgen.profile.stalls import REASONS, top

FACTS = Facts(
    device="NVIDIA H200",
    sm_count=132,
    l2_cache_bytes=62_914_560,
    minimal_read_bytes=1_000_000_000,
    minimal_written_bytes=1_000_000_000,
    forward_ms=0.48,
    matrix_flops=0,
)
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
L2 = "lts__throughput.avg.pct_of_peak_sustained_elapsed"
L1 = "l1tex__throughput.avg.pct_of_peak_sustained_active"
TIME = "gpu__time_duration.sum"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
POSSIBLE = "sm__maximum_warps_per_active_cycle_pct"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
WAVES, BLOCKS = "launch__waves_per_multiprocessor", "launch__grid_size"
LOADS = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
STORES = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio"
SPILLED = "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
FMA = "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
IDLE = {DRAM: "40"}
ALL = {rule.name for rule in RULES}


def kernel(**changes: str) -> KernelProfile:
    (found,) = merge(read_launches(report(changes)))
    return found


def said(
    changes: dict[str, str], facts: Facts = FACTS, copy_gbps: float | None = None
) -> dict[str, str]:
    scene = Scene(kernel=kernel(**changes), facts=facts, copy_gbps=copy_gbps)
    return {advice.rule: advice.text for advice in advise(scene)}


def test_a_perfect_copy_is_told_that_there_is_nothing_to_gain() -> None:
    text = "at the limit of DRAM: there is nothing to gain here but by moving fewer bytes"
    assert said({}) == {"dram_limit": text}


# What has to be said, and words that it has to hold.
CALLED_FOR = [
    ("dram_limit", {}, "nothing to gain"),
    ("dram_limit", {READ: "3000000000"}, "its time follows the bytes"),
    ("reads", {READ: "3000000000"}, "inputs and parameters are 1.00 GB (3.00x)"),
    ("reads", {READ: "3000000000"}, "L2 cache (62.9 MB)"),
    ("writes", {WRITTEN: "2000000000"}, "writes 2.00 GB where the outputs are 1.00 GB (2.00x)"),
    ("local_memory", {SPILLED: "10000000"}, "moves 320 MB of local memory: registers spill (96"),
    ("scattered_loads", {LOADS: "31.5"}, "loads touch 31.5 sectors a request"),
    ("scattered_stores", {STORES: "17"}, "stores touch 17.0 sectors a request"),
    ("bank_conflicts", {CONFLICTS: "400"}, "40 % of the passes over shared memory may be bank"),
    ("too_small", {**IDLE, BLOCKS: "40"}, "40 blocks for 132 SMs"),
    ("short", {TIME: "2400"}, "a launch takes 2.40 us"),
    ("sm_limit", {**IDLE, SM: "91"}, "the SMs are at 91 %"),
    ("tensor_limit", {**IDLE, SM: "87", TENSOR: "91"}, "the tensor cores are busy 91 %"),
    ("tensor_limit", {**IDLE, SM: "n/a", TENSOR: "91"}, "fewer parts of a split"),
    ("l2_limit", {**IDLE, L2: "88"}, "the L2 cache is at 88 %"),
    ("l1_limit", {**IDLE, L1: "88", SM: "81"}, "L1 and shared memory are at 88 %"),
    ("tail", {**IDLE, WAVES: "1.1"}, "1.10 waves of blocks, and the last one leaves about 45 %"),
    ("uneven", {**IDLE, OCCUPANCY: "20"}, "occupancy is 20 % where the launch allows 50 %"),
    ("low_occupancy", {**IDLE, POSSIBLE: "12.5"}, "at most 12 % of the warps"),
    ("latency", IDLE, "no unit is busy for more than 60 %"),
    ("waits_long_scoreboard", IDLE, "long scoreboard: have more loads in flight"),
    ("waits_wait", IDLE, "more independent instructions"),
    ("waits_barrier", IDLE, "the same work before a barrier"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "changes", "words"), CALLED_FOR)
def test_a_rule_speaks_where_it_is_called_for(
    rule: str, changes: dict[str, str], words: str
) -> None:
    assert words in said(changes)[rule]


def test_every_rule_was_made_to_speak() -> None:
    assert ALL - {rule for rule, _, _ in CALLED_FOR} == {"no_tensor_cores"}


SILENT = [
    ("dram_limit", {DRAM: "84"}),
    ("reads", {READ: "1080000000"}),
    ("writes", {WRITTEN: "1080000000"}),
    ("local_memory", {SPILLED: "1000000"}),
    ("local_memory", {SPILLED: "n/a"}),
    ("scattered_loads", {LOADS: "16"}),
    ("scattered_loads", {LOADS: "n/a"}),
    ("bank_conflicts", {CONFLICTS: "90"}),
    ("too_small", {**IDLE, BLOCKS: "132"}),
    ("too_small", {**IDLE, BLOCKS: "n/a"}),
    ("short", {TIME: "5100"}),
    ("sm_limit", {**IDLE, SM: "79"}),
    # The pipe that is busy is that of the tensor cores: fewer instructions would not help.
    ("sm_limit", {**IDLE, SM: "87", TENSOR: "91"}),
    ("tensor_limit", {**IDLE, SM: "91", TENSOR: "85"}),
    # The SMs that have work are busy, and most have none.
    ("tensor_limit", {**IDLE, SM: "30", TENSOR: "91"}),
    ("tensor_limit", {TENSOR: "91", SM: "88"}),
    ("waits_long_scoreboard", {**IDLE, SM: "87", TENSOR: "91"}),
    ("tail", {**IDLE, WAVES: "9.3"}),
    ("tail", {**IDLE, WAVES: "1"}),
    ("tail", {**IDLE, WAVES: "0.4"}),
    ("uneven", {**IDLE, OCCUPANCY: "36"}),
    ("uneven", {**IDLE, OCCUPANCY: "20", WAVES: "1.1"}),
    ("low_occupancy", {POSSIBLE: "12.5"}),
    ("latency", {**IDLE, SM: "61"}),
    ("latency", {**IDLE, BLOCKS: "40"}),
    ("waits_membar", {**IDLE, stall_metric("membar"): "0.2"}),
    ("waits_long_scoreboard", {}),
]


@pytest.mark.parametrize(("rule", "changes"), SILENT)
def test_a_rule_is_silent_where_it_is_not(rule: str, changes: dict[str, str]) -> None:
    assert rule not in said(changes)


def test_without_counters_nothing_is_said_and_nothing_fails() -> None:
    assert said({**dict.fromkeys(COPY, "n/a"), TIME: "480000"}) == {}


def test_small_problems_may_read_a_little_more() -> None:
    small = msgspec.structs.replace(FACTS, minimal_read_bytes=4000, minimal_written_bytes=4000)
    assert "reads" not in said({READ: "1000000", WRITTEN: "10"}, small)


def test_a_measured_copy_is_the_measure_in_place_of_ncu_s_peak() -> None:
    assert "dram_limit" in said({DRAM: "70"}, copy_gbps=4260.0)
    assert "dram_limit" not in said({DRAM: "99"}, copy_gbps=4600.0)


@pytest.mark.parametrize(
    ("flops", "changes", "words"),
    [
        (137_438_953_472, {}, "the problem has 137 GFLOP of matrix products"),
        (None, {}, "if this is a product of matrices"),
        (0, {}, None),
        (10**9, {TENSOR: "35"}, None),
        (10**9, {FMA: "30"}, None),
    ],
)
def test_unused_tensor_cores_are_named_where_they_could_serve(
    flops: int | None, changes: dict[str, str], words: str | None
) -> None:
    facts = msgspec.structs.replace(FACTS, matrix_flops=flops)
    text = said({**IDLE, SM: "85", FMA: "82", **changes}, facts).get("no_tensor_cores")
    assert text is None if words is None else text is not None and words in text


def test_every_reason_of_ncu_s_has_words() -> None:
    assert set(STALL_REASONS) - set(REASONS) == {"selected"}
    assert all(reason.means for reason in REASONS.values())


def test_issuing_is_no_reason_to_wait_and_small_shares_are_left_out() -> None:
    stalls = tuple(
        Stall(reason=reason, share=share)
        for reason, share in (("selected", 0.5), ("wait", 0.3), ("barrier", 0.16), ("drain", 0.04))
    )
    assert [stall.reason for stall in top(stalls)] == ["wait", "barrier"]


def test_the_sentences_give_bytes_rates_occupancy_and_waits() -> None:
    moves, reaches, asks, computes, occupies, waits = sentences(kernel(), FACTS)
    assert moves == (
        "moves 1.98 GB of DRAM (1.00 GB read, 980 MB written) for the problem's minimum of "
        "2.00 GB (0.99x)"
    )
    assert reaches == "reaches 4.12 TB/s of DRAM, 88 % of its peak"
    assert asks == (
        "asks the L2 cache for 2.01 GB, 50 % of it there; of their peaks: SMs 18 %, L1 31 %, "
        "L2 42 %"
    )
    assert computes == "its pipes are busy: FMA 2 %, ALU 6 %; its SMs run at 1880 MHz"
    assert occupies == (
        "occupancy 48 % of 64 warps, 50 % possible, limited by registers (96 a thread)"
    )
    assert waits == (
        "its warps wait: 62 % long scoreboard (data on the way from L2 or DRAM), 14 % wait (the "
        "fixed few cycles of its own last instruction), 8 % barrier (other warps of the block at "
        "__syncthreads)"
    )
    assert "96 % of a copy's rate" in sentences(kernel(), FACTS, 4290.0)[1]


def test_what_was_not_counted_has_no_sentence() -> None:
    bare = {**dict.fromkeys(COPY, "n/a"), TIME: "480000"}
    assert sentences(kernel(**bare), FACTS) == ()
    assert sentences(kernel(**{**bare, OCCUPANCY: "12"}), FACTS) == ("occupancy 12 %",)
    assert sentences(kernel(**{**bare, TENSOR: "91"}), FACTS) == (
        "its pipes are busy: tensor cores 91 %",
    )
    assert sentences(kernel(**{**bare, "sm__cycles_elapsed.max": "480000"}), FACTS) == (
        "its SMs run at 1000 MHz",
    )


def test_two_limits_of_occupancy_are_both_named_and_none_where_all_warps_fit() -> None:
    both = kernel(launch__occupancy_limit_shared_mem="2")
    assert sentences(both, FACTS)[4].endswith(
        "limited by registers (96 a thread) and shared memory (4.10 kB a block)"
    )
    full = kernel(**{POSSIBLE: "100", "sm__maximum_warps_avg_per_active_cycle": "64"})
    assert sentences(full, FACTS)[4] == "occupancy 48 % of 64 warps, 100 % possible"


def test_bytes_below_the_minimum_are_explained() -> None:
    assert "still in the L2 cache" in sentences(kernel(**{WRITTEN: "100000000"}), FACTS)[0]


def test_the_heading_names_time_share_and_launch() -> None:
    assert heading(kernel(), "copy<float>") == (
        "copy<float>: 480 us, 100 % of the time, 1 launch of (1056, 1, 1) blocks of (512, 1, 1) "
        "threads"
    )


def called(facts: Facts, *launches: dict[str, str]) -> dict[str, str]:
    kernels = merge(read_launches(report(*launches)))
    time_us = sum(one.counters.time_us for one in kernels)
    dram_bytes = sum(one.counters.dram_bytes or 0 for one in kernels)
    found = advise_call(kernels, time_us, dram_bytes, facts)
    return {advice.rule: advice.text for advice in found}


def test_kernels_that_pass_results_through_dram_are_told_to_join() -> None:
    text = called(FACTS, {}, {"kernel": "scale(float)"})["unfused"]
    assert "2 launches move 3.96 GB of DRAM together" in text
    assert "minimum is 2.00 GB (1.98x)" in text
    assert "unfused" not in called(FACTS, {READ: "3000000000"})


def test_time_between_launches_is_told() -> None:
    slow = msgspec.structs.replace(FACTS, forward_ms=1.1)
    assert "a call takes 1.10 ms and its 1 launch 480 us" in called(slow, {})["gaps"]
    assert called(FACTS, {}) == {}


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (amount(0), "0 B"),
        (amount(999), "999 B"),
        (amount(15.06e9), "15.1 GB"),
        (amount(2.4e12), "2.40 TB"),
        (rate(4120), "4.12 TB/s"),
        (rate(0.5), "500 MB/s"),
        (duration(2.345), "2.35 us"),
        (duration(3520), "3.52 ms"),
        (duration(2.5e6), "2.50 s"),
        (times(1.004), "1.00x"),
        (times(31.4), "31x"),
        (percent(0.42), "0.4 %"),
        (percent(0), "0 %"),
        (percent(87.6), "88 %"),
    ],
)
def test_quantities_have_the_digits_that_mean_something(shown: str, expected: str) -> None:
    assert shown == expected

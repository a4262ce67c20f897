"""A profile as it is printed: each sentence where counters call for it, and where they do not."""

import io

import msgspec
import pytest
from ncu_report import COPY, report
from rich.cells import cell_len
from rich.console import Console

from kernelgen.profile.ncu_output import merge, read_launches
from kernelgen.profile.record import Facts, KernelProfile, Profile, Stall
from kernelgen.profile.sentences import (
    amount,
    duration,
    heading,
    of_the_call,
    percent,
    sentences,
    show,
    times,
)

FACTS = Facts(
    device="NVIDIA H200",
    sm_count=132,
    minimal_read_bytes=1_000_000_000,
    minimal_written_bytes=1_000_000_000,
    forward_ms=0.48,
)
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
TIME = "gpu__time_duration.sum"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
LOADS = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
STORES = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio"
SPILLED = "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
IDLE = {DRAM: "40"}
BARE = {**dict.fromkeys(COPY, "n/a"), TIME: "480000"}
SMALL = {TIME: "3000", "kernel": "void at::native::fill<4>(int)"}


@pytest.fixture(autouse=True)
def ordinary_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the caller's terminal out of the tests."""
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


def profile(*launches: dict[str, str], copy_gbps: float | None = None) -> Profile:
    kernels = merge(read_launches(report(*launches)))
    moved = [kernel.counters.dram_bytes for kernel in kernels]
    return Profile(
        schema=1,
        kernelgen="0",
        solution="copy.py",
        solution_sha256="",
        problem="copy",
        case="main",
        ncu="2025.3",
        method="as it was",
        facts=FACTS,
        kernels=kernels,
        time_us=sum(kernel.counters.time_us for kernel in kernels),
        dram_bytes=sum(value or 0 for value in moved),
        copy_gbps=copy_gbps,
        unavailable=("sm__other.sum",),
        warnings=("something to be known",),
    )


def said(changes: dict[str, str], copy_gbps: float | None = None) -> tuple[str, ...]:
    found = profile(changes, copy_gbps=copy_gbps)
    return sentences(found.kernels[0], found)


def printed(found: Profile, *, width: int | None = None) -> list[str]:
    stream = io.StringIO()
    terminal = width is not None
    console = Console(
        file=stream, width=width, force_terminal=terminal, force_interactive=terminal,
        color_system=None, legacy_windows=False,
    )  # fmt: skip
    show(found, console)
    return stream.getvalue().splitlines()


# --- a kernel -------------------------------------------------------------------------------------


def test_the_sentences_give_the_limit_bytes_rates_occupancy_and_waits() -> None:
    limited, moves, reaches, counted, waits = said({})
    assert limited == "limited by DRAM: only fewer bytes help"
    assert moves == (
        "reads 1.00 GB of DRAM for 1.00 GB of inputs and parameters (1.00x), writes 980 MB of DRAM "
        "for 1.00 GB of outputs (0.98x)"
    )
    assert reaches == "reaches 4.12 TB/s of DRAM, 88 % of its peak"
    assert counted == (
        "counted: DRAM 88 %, L2 42 %, L1 31 %, FMA 2 %, ALU 6 %, issue 9 %, SM MHz 1880, SMs 18 %, "
        "L2 hits 50 %, occupancy 48 %, possible 50 %, registers a thread 96"
    )
    assert waits == "its warps wait: 62 % long scoreboard, 14 % wait, 8 % barrier"


def test_a_measured_copy_is_the_measure_in_place_of_ncu_s_peak() -> None:
    limited, _, reaches, *_ = said({DRAM: "70"}, copy_gbps=4290.0)
    assert limited == "limited by DRAM: only fewer bytes help"
    assert reaches == "reaches 4.12 TB/s of DRAM, 96 % of a copy's rate"
    assert said({DRAM: "99"}, copy_gbps=4600.0)[0] == "limited by DRAM: only fewer bytes help"
    assert said({**IDLE}, copy_gbps=4600.0)[0] == "limited by latency"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {READ: "3000000000"},
            "reads 3.00 GB of DRAM for 1.00 GB of inputs and parameters (3.00x)",
        ),
        ({WRITTEN: "2000000000"}, "writes 2.00 GB of DRAM for 1.00 GB of outputs (2.00x)"),
        ({WRITTEN: "100000000"}, "what is less than 1 is another kernel's, or was still in the L2"),
        ({SPILLED: "10000000"}, "local memory moves 320 MB, as where registers spill"),
        ({LOADS: "31.5"}, "loads touch 31.5 sectors a request, contiguous ones 16 at most"),
        ({STORES: "17"}, "stores touch 17.0 sectors a request"),
        ({CONFLICTS: "400"}, "40 % of the passes over shared memory may be bank conflicts"),
        ({"launch__grid_size": "40", **IDLE}, "limited by too few blocks"),
    ],
)
def test_a_sentence_is_said_where_it_is_called_for(changes: dict[str, str], words: str) -> None:
    assert words in "\n".join(said(changes))


@pytest.mark.parametrize(
    "changes",
    [
        {SPILLED: "1000000"},
        {SPILLED: "n/a"},
        {LOADS: "16", STORES: "16"},
        {LOADS: "n/a", STORES: "n/a"},
        {CONFLICTS: "90"},
        {CONFLICTS: "n/a"},
        {READ: "1000000000"},
    ],
)
def test_ordinary_accesses_are_not_mentioned(changes: dict[str, str]) -> None:
    text = "\n".join(said(changes))
    assert not any(word in text for word in ("sectors", "local memory", "conflicts", "less than"))


def test_what_was_not_counted_has_no_sentence() -> None:
    assert said(BARE) == ("limited by not counted",)
    assert said({**BARE, OCCUPANCY: "12"})[1:] == ("counted: occupancy 12 %",)
    assert said({**BARE, TENSOR: "91"})[1:] == ("counted: tensor cores 91 %",)
    assert said({**BARE, "sm__cycles_elapsed.max": "480000"})[1:] == ("counted: SM MHz 1000",)


def test_issuing_is_no_reason_to_wait_and_small_shares_are_left_out() -> None:
    stalls = tuple(
        Stall(reason=reason, share=share)
        for reason, share in (("selected", 0.5), ("wait", 0.3), ("barrier", 0.16), ("drain", 0.04))
    )
    found = profile({})
    kernel = msgspec.structs.replace(found.kernels[0], stalls=stalls)
    assert sentences(kernel, found)[-1] == "its warps wait: 30 % wait, 16 % barrier"


def test_the_heading_names_time_share_and_launch() -> None:
    kernel: KernelProfile = profile({}).kernels[0]
    assert heading(kernel) == (
        "copy<float>: 480 us, 100 % of the time, 1 launch of (1056, 1, 1) blocks of (512, 1, 1) "
        "threads"
    )


# --- the call -------------------------------------------------------------------------------------


def test_the_call_has_its_bytes_beside_the_minimum() -> None:
    assert of_the_call(profile({})) == (
        "The call: 480 us in 1 launch on NVIDIA H200; 1.98 GB of DRAM for the problem's minimum of "
        "2.00 GB (0.99x); without ncu, with warm caches, 480 us"
    )


def test_kernels_that_pass_results_through_dram_are_told_to_be_fewer() -> None:
    words = "(1.98x): fewer kernels would write and read less in between"
    assert words in of_the_call(profile({}, {"kernel": "scale(float)"}))
    assert "fewer kernels" not in of_the_call(profile({READ: "3000000000"}))
    small = profile({READ: "4000", WRITTEN: "4000"}, {**SMALL, READ: "9000", WRITTEN: "9000"})
    facts = msgspec.structs.replace(FACTS, minimal_read_bytes=4000, minimal_written_bytes=4000)
    assert "fewer kernels" not in of_the_call(msgspec.structs.replace(small, facts=facts))


def test_time_between_launches_is_told() -> None:
    slow = msgspec.structs.replace(FACTS, forward_ms=1.1)
    text = of_the_call(msgspec.structs.replace(profile({}), facts=slow))
    assert text.endswith("1.10 ms, of which the rest is Python, launching and waiting")
    assert "Python" not in of_the_call(profile({}))


# --- all of it ------------------------------------------------------------------------------------


def test_what_ncu_advises_follows_with_the_largest_gain_first() -> None:
    lines = printed(profile(IDLE))
    advised = [line for line in lines if line.startswith("  - ")]
    assert len(advised) == 3
    assert advised[0].startswith("  - ncu (TheoreticalOccupancy, estimates a gain of 1030 %): This")
    assert advised[2].startswith("  - ncu (HighPipeUtilization): All compute pipelines")


def test_at_the_limit_of_dram_nothing_else_is_advised() -> None:
    assert not any(line.startswith("  - ") for line in printed(profile({})))


def test_a_pipe_gets_whole_lines() -> None:
    lines = printed(profile({}, SMALL))
    assert lines[0].startswith("copy<float>: 480 us, 99 % of the time")
    assert any(line.startswith("  reads 1.00 GB") for line in lines)
    assert not any("fill" in line for line in lines)
    assert "The other kernels (1) take little each; --json has what was counted of them" in lines
    assert "not available on this device or to this ncu: sm__other.sum" in lines
    assert "warning: something to be known" in lines
    assert lines[-1] == "as it was"


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_terminal_gets_lines_that_are_folded_and_not_cut(width: int) -> None:
    lines = printed(profile(IDLE, SMALL), width=width)
    assert max(map(cell_len, lines)) <= width
    whole = " ".join(" ".join(lines).split())
    assert "…" not in whole
    assert "its warps wait: 62 % long scoreboard, 14 % wait, 8 % barrier" in whole
    # No text of a candidate or of ncu reaches the first column, but where a kernel begins.
    assert lines[0].startswith("copy<float>: ")


def test_a_kernel_s_name_cannot_act_on_the_terminal() -> None:
    lines = printed(profile({"kernel": "evil\x1b[2J\x1b]0;title\x07kernel\u202e(int)"}))
    text = "".join(lines)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "evilkernel" in text


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (amount(0), "0 B"),
        (amount(999), "999 B"),
        (amount(15.06e9), "15.1 GB"),
        (amount(2.4e12), "2.40 TB"),
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

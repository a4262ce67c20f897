"""ncu's reports: tables with their units, what is missing in them, and its messages."""

import msgspec
import pytest
from ncu_report import AFTER, BEFORE, COPY, HOPPER, RULES, report

from kernelgen.errors import KernelgenFault
from kernelgen.profile.metrics import METRICS, STALL_REASONS, names_for
from kernelgen.profile.ncu_output import errors, merge, read_launches, unknown_metrics
from kernelgen.profile.record import Counters

TIME = "gpu__time_duration.sum"
READ = "dram__bytes_read.sum"


def test_a_launch_is_read_with_all_its_counters() -> None:
    (launch,) = read_launches(report({}))
    counters = launch.counters
    assert launch.kernel == "void copy<float>(const float *, float *, long)"
    assert (launch.grid, launch.block) == ("(1056, 1, 1)", "(512, 1, 1)")
    assert counters.time_us == 480.0
    assert counters.dram_bytes == 1.98e9
    assert counters.dram_gbps == pytest.approx(4125.0)
    assert (counters.registers, counters.blocks) == (96.0, 1056.0)
    absent = [field for field in METRICS if getattr(counters, field) is None]
    assert absent == []


def test_every_counter_of_the_record_has_one_metric() -> None:
    assert sorted(METRICS) == sorted(Counters.__struct_fields__)
    assert len(set(METRICS.values())) == len(METRICS)


def test_stalls_are_shares_that_add_up_to_one() -> None:
    (launch,) = read_launches(report({}))
    assert [stall.reason for stall in launch.stalls][:3] == ["long_scoreboard", "wait", "selected"]
    assert launch.stalls[0].share == pytest.approx(0.62)
    assert sum(stall.share for stall in launch.stalls) == pytest.approx(1.0)
    assert len(launch.stalls) == len(STALL_REASONS)


def test_only_hopper_and_later_are_asked_for_warpgroups() -> None:
    assert len(names_for(HOPPER)) == len(names_for((8, 9))) + 1
    assert names_for((8, 0))[0] == TIME
    assert not any("gmma" in name for name in names_for((8, 0)))


@pytest.mark.parametrize(
    ("unit", "value", "time_us"),
    [
        ("ns", "1,234,500", 1234.5),
        ("nsecond", "1234500", 1234.5),
    ],
)
def test_times_are_read_under_both_names_of_their_unit(
    unit: str, value: str, time_us: float
) -> None:
    (launch,) = read_launches(report({TIME: value}, units={TIME: unit}))
    assert launch.counters.time_us == pytest.approx(time_us)


@pytest.mark.parametrize("unit", ["byte", "B"])
def test_bytes_are_read_under_both_names_of_their_unit(unit: str) -> None:
    (launch,) = read_launches(report({READ: "1,234"}, units={READ: unit}))
    assert launch.counters.dram_read_bytes == 1234.0


def test_what_ncu_advises_is_read_with_the_largest_gain_first() -> None:
    (launch,) = read_launches(report({}))
    found = [(advice.rule, advice.speedup_pct) for advice in launch.advice]
    # An estimate for a part of the kernel is none for the kernel.
    assert found == [
        ("TheoreticalOccupancy", 1029.563),
        ("AchievedOccupancy", 16.36),
        ("HighPipeUtilization", None),
        ("LaunchConfiguration", None),
    ]
    texts = [advice.text for advice in launch.advice]
    assert texts[0] == RULES[-1][-1]
    assert "Best Practices Guide for more details" in texts[1]


@pytest.mark.parametrize(
    "change",
    [
        ('"Estimated Speedup Type","Estimated Speedup"', '"A","B"'),
        ('"global","16.36"', '"global","nan"'),
        ('"global","16.36"', '"global","much"'),
    ],
)
def test_advice_without_an_estimate_is_advice_all_the_same(change: tuple[str, str]) -> None:
    text = report({})
    assert change[0] in text
    (launch,) = read_launches(text.replace(*change))
    assert {a.speedup_pct for a in launch.advice if a.rule == "AchievedOccupancy"} == {None}
    assert len(launch.advice) == 4


def test_an_ncu_whose_rules_say_nothing_gives_its_counters() -> None:
    kinds = ('"OPT"', '"INF"', '"WRN"')
    lines = [line for line in report({}).splitlines() if not any(kind in line for kind in kinds)]
    (launch,) = read_launches("\n".join(lines))
    assert (launch.counters.time_us, launch.advice) == (480.0, ())


@pytest.mark.parametrize("missing", ["", "n/a", "nan", "N/A", "-nan", "inf"])
def test_what_was_not_collected_is_absent(missing: str) -> None:
    (launch,) = read_launches(report({READ: missing}))
    assert launch.counters.dram_read_bytes is None
    assert launch.counters.dram_bytes is None
    assert launch.counters.dram_gbps is None
    assert launch.counters.dram_written_bytes == 9.8e8


def test_a_report_without_a_metric_lacks_that_counter() -> None:
    text = report({}).replace('"launch__registers_per_thread"', '"launch__another"')
    (launch,) = read_launches(text)
    assert launch.counters.registers is None


def test_messages_between_rows_are_no_rows() -> None:
    text = report({}, {"kernel": "second(int)"})
    lines = text.splitlines(keepends=True)
    lines.insert(-2, '==PROF== Profiling "second" - 1: 0%....100% - 9 passes\n')
    lines.insert(-2, "==WARNING== Backing up device memory in system memory.\n")
    assert [launch.kernel for launch in read_launches("".join(lines))][1] == "second(int)"


def test_no_table_is_no_launch() -> None:
    assert read_launches(BEFORE + AFTER + "==WARNING== No kernels were profiled.\n") == ()
    assert read_launches("") == ()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (('"gpu__time_duration.sum"', '"gpu__other.sum"'), "gives no time"),
        (('"Kernel Name"', '"Name"'), "no column Kernel Name"),
        (('"Metric Value"', '"Value"'), "no column Metric Value"),
        (('"480000"', '"fast"'), "gpu__time_duration.sum is 'fast', not a number"),
        (('"480000"', '"n/a"'), "gives no time"),
        (('"ns"', '"parsec"'), "has the unit 'parsec', not a base unit"),
        (('"ns"', '"us"'), "has the unit 'us', not a base unit"),
        (('"byte"', '"Kbyte"'), "has the unit 'Kbyte', not a base unit"),
        (('"byte","1000000000",', ""), "a row of its table has 14 entries, not 15 to 20"),
        (('"1000000000",', '"1","2","3","4","5","6","7"'), "a row of its table has 21 entries"),
        (('"1000000000"', '"40"96"'), "cannot be read"),
    ],
)
def test_another_form_is_refused_with_the_place(change: tuple[str, str], why: str) -> None:
    text = report({})
    assert change[0] in text
    with pytest.raises(KernelgenFault, match="the report of this ncu cannot be read") as raised:
        read_launches(text.replace(*change))
    assert why in str(raised.value)


def test_a_scaled_count_is_refused_and_not_read_a_thousand_times_too_small() -> None:
    name = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
    with pytest.raises(KernelgenFault, match="not a base unit"):
        read_launches(report({}, units={name: "Ksector"}))


def test_what_ncu_does_not_know_is_found_in_its_messages() -> None:
    text = (
        BEFORE + "==ERROR== Failed to find metric sm__pipe_tensor_cycles_active.avg.pct\n"
        "==ERROR== Failed to find metric sm__other.sum\n"
        "==ERROR== Failed to find metric sm__other.sum\n"
    )
    assert unknown_metrics(text) == ("sm__pipe_tensor_cycles_active.avg.pct", "sm__other.sum")
    assert errors(text)[1] == "Failed to find metric sm__other.sum"
    assert len(errors(text)) == 2


def test_launches_of_one_kernel_are_one_row() -> None:
    fast = {TIME: "100000", READ: "100000000", "launch__registers_per_thread": "40"}
    slow = {TIME: "300000", READ: "500000000", "launch__registers_per_thread": "80"}
    other = {TIME: "600000", "kernel": "other(int)"}
    large, both = merge(read_launches(report(fast, slow, other)))
    assert (large.kernel, large.launches) == ("other(int)", 1)
    assert large.share == pytest.approx(0.6)
    assert (both.launches, both.counters.time_us) == (2, 400.0)
    assert both.counters.dram_read_bytes == 6e8
    assert both.counters.registers == pytest.approx(70.0)
    assert both.dram_gbps == pytest.approx((6e8 + 2 * 9.8e8) / 400e3)
    assert sum(stall.share for stall in both.stalls) == pytest.approx(1.0)


def test_the_advice_on_several_launches_is_that_on_the_longest() -> None:
    first, second = read_launches(report({}, {TIME: "900000"}))
    second = msgspec.structs.replace(second, advice=second.advice[:1])
    (kernel,) = merge((first, second))
    assert kernel.advice == second.advice


def test_another_grid_is_another_row() -> None:
    kernels = merge(read_launches(report({}, {"grid": "(1, 1, 1)"})))
    assert [kernel.grid for kernel in kernels] == ["(1056, 1, 1)", "(1, 1, 1)"]


def test_a_sum_of_which_a_part_is_missing_is_absent_and_a_mean_is_that_of_the_rest() -> None:
    name = "sm__warps_active.avg.pct_of_peak_sustained_active"
    (kernel,) = merge(read_launches(report({}, {READ: "n/a", name: "n/a"})))
    assert kernel.counters.dram_read_bytes is None
    assert kernel.counters.occupancy_pct == float(COPY[name])

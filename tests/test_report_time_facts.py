"""What the details say of the times: other baselines, their spread, the clocks, the conditions."""

import io
from typing import Any

import msgspec
import pytest
from report_runs import TIMING, failed, passed
from rich.console import Console

from kernelgen.grading.timing.times import (
    Conditions,
    Limit,
    SecondClock,
    Speedup,
    Subject,
    Timing,
)
from kernelgen.grading.verdict import Status
from kernelgen.report.details import details, remarkable, time_facts, time_remarks
from kernelgen.report.table import print_line

STEADY = Subject(what="the candidate", median_ms=5.304, quartiles_ms=(5.3, 5.31))
EAGER = Subject(what="eager, TF32 off", median_ms=9.08, quartiles_ms=(9.07, 9.09))
CLOCK = SecondClock(name="CUPTI", calls=10, events_us=1.5)


def timing(**changes: Any) -> Timing:
    return msgspec.structs.replace(TIMING, **changes)


def texts(of: Timing | None, *warnings: str) -> list[str]:
    """Return the details of a pass with these times, kernels left out; [] if nobody needs them."""
    verdict = passed(timing=of, warnings=warnings, kernels=())
    if not remarkable(verdict):
        return []
    return [line.text for line in details(verdict)]


def test_ordinary_times_need_no_words() -> None:
    ordinary = timing(
        subjects={"candidate": STEADY, "eager": EAGER},
        second_clock=CLOCK,
        conditions=Conditions(sm_mhz=(1965, 1980)),
    )
    assert texts(ordinary) == []
    assert texts(None) == []
    assert list(time_remarks(None)) == []
    assert list(time_facts(None)) == []


def test_baselines_without_a_column_are_named_with_their_flags() -> None:
    what = "torch.compile, mode=max-autotune, TF32 off"
    tuned = Subject(what=what, median_ms=5.2, quartiles_ms=(5.19, 5.21))
    speedups = {
        **TIMING.speedup,
        "compile-max-autotune": Speedup(median=0.98, ci95=(0.97, 0.985)),
        "eager-defaults": Speedup(median=1.5, ci95=(1.4, 1.6)),
    }
    found = texts(timing(speedup=speedups, subjects={"compile-max-autotune": tuned}))
    assert found[1:3] == [
        f"vs compile-max-autotune: 0.98x [0.97, 0.98] slower (5.20 ms, {what})",
        "vs eager-defaults: 1.50x [1.40, 1.60] faster",
    ]


def test_two_groups_of_times_are_told_with_their_medians() -> None:
    samples = tuple([5.0, 5.01, 5.02, 5.01] * 3 + [5.5, 5.51] * 4)
    subject = msgspec.structs.replace(STEADY, bimodal=True)
    found = texts(timing(subjects={"candidate": subject}, samples={"candidate": samples}))
    assert found[1] == (
        "candidate: the times fall into two groups: 12 of 20 around 5.01 ms and 8 of 20 "
        "around 5.50 ms"
    )
    without = timing(subjects={"candidate": subject}, samples={})
    assert texts(without)[1] == "candidate: the times fall into two groups"


@pytest.mark.parametrize(
    ("outliers", "count", "told"), [(2, 10, False), (3, 10, True), (4, 50, False), (5, 50, True)]
)
def test_many_outliers_are_told_and_few_are_not(outliers: int, count: int, told: bool) -> None:  # noqa: FBT001
    subject = msgspec.structs.replace(EAGER, outliers=outliers)
    found = texts(timing(subjects={"eager": subject}, samples={"eager": (9.0,) * count}))
    line = f"eager: {outliers} of {count} samples lie far from the others"
    assert (found[1:2] == [line]) is told


def test_clocks_that_disagree_are_told_and_those_that_agree_are_a_fact() -> None:
    agreeing = {"candidate": msgspec.structs.replace(STEADY, second_clock_ms=5.3, beside_ms=5.31)}
    calm = timing(subjects=agreeing, second_clock=CLOCK)
    line = "CUPTI, 10 calls each: candidate 5.30 ms (events: 5.31)"
    assert texts(calm) == []
    assert texts(calm, "a warning")[1] == line
    apart = {"candidate": msgspec.structs.replace(STEADY, second_clock_ms=4.9, beside_ms=5.31)}
    found = texts(timing(subjects=apart, second_clock=CLOCK))
    assert found[1] == (
        "the two clocks do not agree on candidate; "
        "CUPTI, 10 calls each: candidate 4.90 ms (events: 5.31)"
    )


def test_clocks_of_a_short_kernel_may_differ_by_a_third_of_a_microsecond() -> None:
    short = Subject(
        what="",
        median_ms=0.0020,
        quartiles_ms=(0.0019, 0.0021),
        second_clock_ms=0.0018,
        beside_ms=0.0020,
    )
    assert texts(timing(subjects={"candidate": short}, second_clock=CLOCK)) == []


@pytest.mark.parametrize(
    ("conditions", "line"),
    [
        (
            Conditions(throttled=("thermal slowdown", "power cap"), repeated_blocks=2),
            "the device lowered its clocks (thermal slowdown, power cap), 2 blocks measured again",
        ),
        (Conditions(repeated_blocks=1), "1 block measured again"),
        (Conditions(throttled=("power cap",)), "the device lowered its clocks (power cap)"),
    ],
)
def test_lowered_clocks_are_told(conditions: Conditions, line: str) -> None:
    assert texts(timing(conditions=conditions))[1] == line


def test_the_limit_and_the_conditions_are_facts() -> None:
    limit = Limit(
        limit_ms=5.0, fraction=0.94, bound="arithmetic", source="declared", minimal_bytes=1,
        rate="three bf16 products",
    )  # fmt: skip
    conditions = Conditions(
        sm_mhz=(1965, 1980), memory_mhz=(2619, 2619), temperature_c=(41, 45), power_w=443.6
    )
    subject = msgspec.structs.replace(STEADY, host_ms=0.031)
    found = texts(timing(limit=limit, conditions=conditions, subjects={"candidate": subject}), "w")
    reached = "reached: 94% (bytes and operations declared)"
    assert found[1] == f"limit: 5.00 ms, by arithmetic, three bf16 products; {reached}"
    assert found[2] == "forward returned after 0.0310 ms, with the device at work"
    assert found[3] == (
        "meanwhile: multiprocessors 1965 to 1980 MHz, memory 2619 MHz, temperature 41 to 45 C, "
        "power up to 444 W"
    )


def test_what_a_failure_s_details_say_has_no_times() -> None:
    found = [line.text for line in details(failed(Status.TIMEOUT))]
    assert found[1:] == ["what TIMEOUT found", "and where"]


def test_words_from_a_file_cannot_act_on_the_terminal() -> None:
    hostile = timing(
        conditions=Conditions(throttled=("\x1b[2J\u202ex",)),
        speedup={"\x1b]0;x\x07evil\r": Speedup(median=2.0, ci95=(1.9, 2.1))},
    )
    file = io.StringIO()
    for line in details(passed(timing=hostile)):
        print_line(line, Console(file=file, width=200))
    assert "evil" in file.getvalue()
    assert not set(file.getvalue()) & set("\x1b\x07\r\u202e")

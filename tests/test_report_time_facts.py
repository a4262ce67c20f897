"""Details of the times: other baselines, the limit, the host, lowered clocks."""

import io
from typing import Any

import msgspec
import pytest
from report_runs import TIMING, failed, passed
from rich.console import Console

from kernelgen.grading.timing.times import (
    Conditions,
    Limit,
    Speedup,
    Subject,
    Timing,
)
from kernelgen.grading.verdict import Status
from kernelgen.report.console import print_line
from kernelgen.report.details import details, remarkable, time_facts, time_remarks

STEADY = Subject(what="the candidate", median_ms=5.304, quartiles_ms=(5.3, 5.31))
EAGER = Subject(what="eager, TF32 off", median_ms=9.08, quartiles_ms=(9.07, 9.09))


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
        events_us=1.5,
        conditions=Conditions(),
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


def test_the_limit_and_the_host_s_time_are_facts() -> None:
    limit = Limit(
        limit_ms=5.0, fraction=0.94, bound="arithmetic", source="declared", minimal_bytes=1,
        rate="three bf16 products",
    )  # fmt: skip
    subject = msgspec.structs.replace(STEADY, host_ms=0.031)
    found = texts(timing(limit=limit, subjects={"candidate": subject}), "w")
    reached = "reached: 94% (bytes and operations declared)"
    assert found[1] == f"limit: 5.00 ms, by arithmetic, three bf16 products; {reached}"
    assert found[2] == "forward returned after 0.0310 ms, with the device at work"


def test_who_is_bound_by_the_host_is_told_with_both_times() -> None:
    subjects = {
        name: msgspec.structs.replace(STEADY, host_ms=9.0) for name in ("candidate", "eager")
    }
    found = texts(timing(subjects=subjects, host_bound=("eager",)), "w")
    told = [line for line in found if "returned" in line]
    assert told == [
        "forward returned after 9.00 ms, with the device at work",
        "eager host-bound: forward returned after 9.00 ms, with the device at work",
    ]


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

"""Solutions that a run did not judge, and its rule, at its end."""

import io

import msgspec
from report_runs import TIMING, failed, passed, run_of
from rich.console import Console

from kernelgen.grading.verdict import UNKNOWN_TIME, UNTIMED_BASELINE, Status
from kernelgen.report.run_table import not_judged, show


def test_a_complete_pass_and_a_failure_leave_nothing_open() -> None:
    assert list(not_judged(run_of(passed(), failed(Status.WRONG_VALUES)))) == []


def test_each_reason_is_told_once_with_its_solutions() -> None:
    untimed = passed("a.py", timing=None)
    alone = passed("b.py", timing=msgspec.structs.replace(TIMING, speedup={}))
    why = f"{UNTIMED_BASELINE}compile could not be timed: RuntimeError: no"
    without = passed("c.py", warnings=(why,))
    beside = passed("g.py", timing=None, warnings=(f"{UNKNOWN_TIME}: others",))
    nowhere = failed(Status.NO_DEVICE, "d.py")
    invalid = failed(Status.INVALID_PROBLEM, "e.py")
    run = run_of(untimed, alone, without, nowhere, invalid, passed("f.py", timing=None), beside)
    assert list(not_judged(run)) == [
        "times, none were asked for: a.py, f.py",
        "speedup, no baseline was timed: b.py",
        "speedup over compile, which could not be timed: c.py",
        "anything but the build, there is no device: d.py",
        "the solution, its problem verifies nothing: e.py",
        "times, others used the device: g.py",
    ]


def test_the_end_of_a_run_says_so_and_names_another_rule() -> None:
    verdict = passed("a.py", timing=None, overrides={"tolerance": "0.001"})
    out = io.StringIO()
    show(run_of(verdict), Console(file=out, width=100))
    lines = out.getvalue().splitlines()
    assert "in effect: --tolerance (0.001)" in lines
    assert "not judged: times, none were asked for" in lines

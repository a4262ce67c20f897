"""The table and what stands below it."""

import io
import re

import msgspec
import pytest
from report_runs import TIMING, every_status, failed, passed, run_of
from rich.cells import cell_len
from rich.console import Console

from kernelgen.grading.timing.times import Limit, Speedup
from kernelgen.grading.verdict import Owner, Run, Status, Verdict
from kernelgen.report.columns import LAYOUTS, decimal, speedup_text
from kernelgen.report.order import Order, ordered
from kernelgen.report.table import shorten, show


@pytest.fixture(autouse=True)
def ordinary_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the caller's terminal out of the tests."""
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


NUMBERS = ("5.30", "9.08", "5.31", "1.71x [1.70, 1.72] faster", "94%", "1.3e-06 (7.5e-06)", "2834")
LIMITED = msgspec.structs.replace(
    TIMING,
    limit=Limit(
        limit_ms=5.0,
        fraction=0.9427,
        bound="memory",
        source="counted",
        minimal_bytes=15_032_385_536,
    ),
)


def shown(
    run: Run, *, width: int | None = None, encoding: str = "utf-8", color: bool = False
) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    console = Console(
        file=file,
        width=width,
        force_terminal=width is not None,
        color_system="standard" if color else None,
        highlight=False,
    )
    show(run, console)
    file.flush()
    return raw.getvalue().decode(encoding)


def table_of(text: str) -> list[str]:
    return text.partition("\n\n")[0].splitlines()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_row_is_wider_than_the_terminal(width: int) -> None:
    long = passed("solutions/" + "very_long_name_" * 12 + ".py")
    run = run_of(*every_status().verdicts, long, passed("解" * 60 + ".py"))
    assert max(cell_len(line) for line in shown(run, width=width).splitlines()) <= width


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160, 200])
def test_numbers_are_whole_or_absent(width: int) -> None:
    run = run_of(passed("solutions/" + "n" * 80, timing=LIMITED))
    head, rule, row = table_of(shown(run, width=width))
    cells = re.split(r"\s{2,}", row.strip())
    assert len(cells) == len(re.split(r"\s{2,}", head.strip()))
    assert set(cells[1:]) <= {*NUMBERS, "groupnorm", "✓ PASSED", "0.9", "1.71x faster",
                              "1.00x same", "1.00x [1.00, 1.00] same"}  # fmt: skip
    assert "✓ PASSED" in cells
    assert set(rule) == {"─"}


def test_a_wide_terminal_shows_everything() -> None:
    head, _, row = table_of(shown(run_of(passed(timing=LIMITED)), width=220))
    assert [h for h in (column.heading for column in LAYOUTS[0]) if h not in head] == []
    assert [number for number in NUMBERS if number not in row] == []


def test_the_status_stays_when_the_terminal_narrows() -> None:
    lines = table_of(shown(every_status(), width=40))
    assert len(lines) == len(Status) + 2
    for line, status in zip(lines[2:], Status, strict=True):
        assert line.rstrip().endswith(status.value)


def test_a_status_can_be_read_without_colour() -> None:
    text = shown(
        run_of(passed(), failed(Status.TIMEOUT), failed(Status.INVALID_PROBLEM),
               failed(Status.NO_DEVICE)), width=100,
    )  # fmt: skip
    for marked in ("✓ PASSED", "✗ TIMEOUT", "! INVALID_PROBLEM", "? NO_DEVICE"):
        assert marked in text
    assert "\x1b" not in text


def test_colour_is_used_where_there_is_some() -> None:
    text = shown(run_of(passed(), failed(Status.TIMEOUT)), width=100, color=True)
    assert "\x1b[36m✓ PASSED" in text
    assert "\x1b[1;31m✗ TIMEOUT" in text


def timed(name: str, candidate_ms: float, **changes: object) -> Verdict:
    eager = Speedup(median=9.0 / candidate_ms, ci95=(8.9 / candidate_ms, 9.1 / candidate_ms))
    timing = msgspec.structs.replace(TIMING, candidate_ms=candidate_ms, speedup={"eager": eager})
    return passed(name, timing=timing, **changes)


def names_in(run: Run, order: Order) -> list[str]:
    return [verdict.solution for verdict in ordered(run, order).verdicts]


def test_verdicts_are_sorted_by_problem_then_status_then_time() -> None:
    run = run_of(
        failed(Status.TIMEOUT, "z.py", problem="a"),
        timed("slow.py", 9.0, problem="b"),
        failed(Status.BUILD_ERROR, "y.py", problem="b"),
        timed("quick.py", 3.0, problem="b"),
        failed(Status.BUILD_ERROR, "x.py", problem="b"),
        passed("untimed.py", problem="b", timing=None),
    )
    by_problem = ["z.py", "quick.py", "slow.py", "untimed.py", "y.py", "x.py"]
    assert names_in(run, "problem") == by_problem
    rows = table_of(shown(run, width=80))[2:]
    assert [row.split()[0] for row in rows] == by_problem
    assert names_in(run, "status") == [*by_problem[1:], "z.py"]
    assert names_in(run, "time") == ["quick.py", "slow.py", "untimed.py", "y.py", "x.py", "z.py"]
    assert names_in(run, "speedup") == names_in(run, "time")
    assert names_in(run, "name") == sorted(by_problem)
    assert run.verdicts[0].solution == "z.py", "the run itself stays as it is"


def test_devices_stand_one_after_the_other() -> None:
    run = run_of(
        passed("z.py", problem="z"),
        passed("cpu.py", problem="a", device="CPU"),
        passed("b.py", problem="b"),
        failed(Status.BUILD_ERROR, "y.py", problem="y", device=""),
    )
    assert names_in(run, "problem") == ["b.py", "y.py", "z.py", "cpu.py"]


def test_the_largest_speedup_comes_first_whatever_the_time() -> None:
    large = timed("large.py", 90.0)
    large = msgspec.structs.replace(
        large,
        timing=msgspec.structs.replace(
            TIMING, speedup={"compile": Speedup(median=5.0, ci95=(4.9, 5.1))}
        ),
    )
    assert names_in(run_of(timed("small.py", 8.0), large), "speedup") == ["large.py", "small.py"]


@pytest.mark.parametrize("width", [None, 80, 120])
@pytest.mark.parametrize(
    ("median", "ci95", "shown_as"),
    [
        (1.71, (1.70, 1.72), "1.71x [1.70, 1.72] faster"),
        (0.92, (0.84, 0.97), "0.92x [0.84, 0.97] slower"),
        (0.99, (0.90, 1.01), "0.99x [0.90, 1.01] same"),
        (1.003, (1.0021, 1.004), "1.003x [1.002, 1.004] faster"),
        (1.0003, (1.0002, 1.0004), "1.0003x [1.0002, 1.0004] faster"),
        (1.0, (0.999, 1.001), "1.00x [1.00, 1.00] same"),
        (250.4, (249.6, 251.4), "250x [250, 251] faster"),
    ],
)
def test_what_the_interval_says_stands_beside_it(
    median: float, ci95: tuple[float, float], shown_as: str, width: int | None
) -> None:
    speedup = {"eager": Speedup(median=median, ci95=ci95)}
    timing = msgspec.structs.replace(TIMING, speedup=speedup)
    text = shown(run_of(passed("s.py", timing=timing)), width=width)
    assert shown_as in table_of(text)[-1]


def test_a_narrow_terminal_keeps_the_words() -> None:
    row = table_of(shown(run_of(passed()), width=80))[-1]
    assert re.split(r"\s{2,}", row.strip())[-2:] == ["1.71x faster", "1.00x same"]
    assert table_of(shown(run_of(passed()), width=62))[-1].endswith("1.71x faster")


def test_piped_columns_are_the_same_for_every_run() -> None:
    full, empty = run_of(passed()), run_of(failed(Status.CRASHED, log="x"))
    rows = [*table_of(shown(full)), *table_of(shown(empty))]
    assert {len(re.split(r" {2,}", row.strip())) for row in rows} == {len(LAYOUTS[0])}
    assert re.split(r" {2,}", rows[3]) == ["candidates/bad.py", "groupnorm", "CRASHED", *["-"] * 9]


def test_piped_text_is_plain_and_never_folded() -> None:
    reason = "word " * 100
    text = shown(run_of(failed(Status.WRONG_VALUES, reason=reason)))
    assert f"    {reason.strip()}\n" in text
    assert not set(text) & set("\x1b─│")


@pytest.mark.parametrize("width", [None, 80])
def test_an_ascii_stream_can_carry_it(width: int | None) -> None:
    run = run_of(passed("lösung/" + "n" * 90 + ".py"), failed(Status.TIMEOUT, reason="zu spät ⏰"))
    text = shown(run, width=width, encoding="ascii")
    assert "x candidates/bad.py: TIMEOUT" in text
    assert "zu sp\\xe4t \\u23f0" in text


@pytest.mark.parametrize("width", [None, 40, 80])
@pytest.mark.parametrize("field", ["reason", "log", "solution", "problem", "device", "warnings"])
def test_a_candidate_cannot_paint_the_table(field: str, width: int | None) -> None:
    forged = "\x1b[2J\x1b[H[bold green]x[/]\n\r9 of 9 passed on NVIDIA H200\x9b5A\u202e"
    value = (forged,) if field == "warnings" else forged
    verdict = msgspec.structs.replace(failed(Status.WRONG_VALUES), **{field: value})
    text = shown(run_of(verdict), width=width)
    assert not set(text) & set("\x1b\x9b\r\u202e")
    assert not any(line.startswith("9 of 9") for line in text.splitlines())
    assert text.rstrip().splitlines()[0].startswith("solution")
    if width is None:
        assert "[bold green]x[/]" in text


def test_folded_text_never_reaches_the_first_column() -> None:
    filler = "x" * 36 + " "
    forged = filler + "1 of 1 passed"
    verdict = failed(Status.CRASHED, reason=forged, log=forged[2:] + "!")
    lines = shown(run_of(verdict), width=40).splitlines()
    assert not [line for line in lines if line.startswith("1 of 1")]
    assert [line for line in lines if line.startswith("    1 of 1 passed")]
    assert [line for line in lines if line.startswith("    | 1 of 1 passed!")]


def test_details_give_the_reason_and_the_end_of_the_log() -> None:
    log = "\n".join(f"line {n}" for n in range(30))
    reason = "bad.py:3: error: no `f`\n    3 | f();"
    text = shown(run_of(failed(Status.BUILD_ERROR, reason=reason, log=log)))
    assert text.split("\n\n")[1].splitlines() == [
        "✗ candidates/bad.py: BUILD_ERROR",
        "    bad.py:3: error: no `f`",
        "        3 | f();",
        "    the end of what it printed:",
        *(f"    | line {n}" for n in range(20, 30)),
    ]


def test_a_log_that_repeats_the_reason_is_not_shown_twice() -> None:
    text = shown(run_of(failed(Status.RUNTIME_ERROR, reason="boom", log="boom\n")))
    assert text.count("boom") == 1
    assert "the end of what it printed" not in text


def test_the_owner_is_named_when_it_is_not_the_candidate() -> None:
    text = shown(run_of(failed(Status.OUT_OF_MEMORY, owner=Owner.GRADER)))
    assert "OUT_OF_MEMORY (the grader's doing, not the candidate's)" in text
    assert "doing" not in shown(run_of(failed(Status.OUT_OF_MEMORY)))


def test_a_pass_has_details_only_with_warnings() -> None:
    assert "✓" not in shown(run_of(passed()))
    text = shown(run_of(passed(warnings=("line 3: prints\nremove it",), log="hello")))
    assert "✓ solutions/groupnorm.py: PASSED, with warnings\n" in text
    assert "    warning: line 3: prints\n" in text
    assert "hello" not in text


def test_a_reason_without_end_is_cut() -> None:
    text = shown(run_of(failed(Status.BUILD_ERROR, reason="\n".join(map(str, range(1000))))))
    assert "    39\n    (960 more lines; --json has them)\n" in text


def test_it_ends_with_the_method_and_the_summary() -> None:
    lines = shown(run_of(passed(), passed())).splitlines()
    assert lines[-2:] == ["Times: CUDA events, new inputs for every call",
                          "2 of 2 passed on NVIDIA H200"]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [(2834.2, "2834"), (99.96, "100.0"), (12.345, "12.3"), (5.304, "5.30"), (0.3441, "0.344"),
     (0.0123, "0.0123"), (0.00042, "0.00042")],
)  # fmt: skip
def test_decimal(value: float, text: str) -> None:
    assert decimal(value) == text


def test_speedup_text() -> None:
    speedup = Speedup(median=1.712, ci95=(1.704, 1.721))
    assert speedup_text(speedup, interval=True) == "1.71x [1.70, 1.72]"
    assert speedup_text(speedup, interval=False) == "1.71x"
    assert speedup_text(Speedup(median=250.4, ci95=(249.6, 251.4)), interval=True) == (
        "250x [250, 251]"
    )
    assert speedup_text(None, interval=True) == ""


def test_shorten_keeps_the_end() -> None:
    assert shorten("a/b/solution.py", 12, ascii_only=False) == "…solution.py"
    assert shorten("a/b/solution.py", 12, ascii_only=True) == "...lution.py"
    assert cell_len(shorten("解" * 20, 8, ascii_only=False)) <= 8

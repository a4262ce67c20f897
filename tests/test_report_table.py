"""The table and what stands below it."""

import io
import re
from typing import Any

import msgspec
import pytest
from report_runs import TIMING, every_status, failed, full, passed, run_of
from rich.cells import cell_len
from rich.console import Console

from kernelgen.grading.timing.times import Limit, Speedup
from kernelgen.grading.verdict import Owner, Run, Status, Verdict
from kernelgen.report.columns import decimal
from kernelgen.report.console import WIDTH, Column, print_table, short_names, shorten
from kernelgen.report.run_table import ordered, show


@pytest.fixture(autouse=True)
def ordinary_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the caller's terminal out of the tests."""
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


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
GAP = re.compile(r"\s{2,}")


def shown(
    run: Run,
    *,
    width: int | None = None,
    encoding: str = "utf-8",
    color: bool = False,
    **options: Any,
) -> str:
    """Return what a terminal of that width shows, or what a pipe gets."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    console = Console(
        file=file,
        width=width or WIDTH,
        force_terminal=width is not None,
        color_system="standard" if color else None,
        highlight=False,
    )
    show(run, console, **options)
    file.flush()
    return raw.getvalue().decode(encoding)


def table_of(text: str) -> list[str]:
    """Return the lines of the table: the two of its head, and its rows."""
    lines = text.splitlines()
    second = next(n for n, line in enumerate(lines) if line.startswith("solution"))
    end = lines.index("", second)
    return lines[second - 1 : end]


def cells(row: str) -> list[str]:
    return GAP.split(row.strip())


@pytest.mark.parametrize("width", [None, 40, 80, 200])
def test_no_line_is_wider_than_there_is_room(width: int | None) -> None:
    long = passed("solutions/" + "very_long_name_" * 12 + ".py")
    run = run_of(*every_status().verdicts, long, passed("解" * 60 + ".py"), full())
    text = shown(run, width=width, verbose=True)
    # A pipe's words stay whole.
    names = ("_name_", "解") if width is None else ()
    lines = [line for line in text.splitlines() if not any(name in line for name in names)]
    assert max(map(cell_len, lines)) <= (width or 100)
    assert max(map(cell_len, table_of(text))) <= (width or 100)


@pytest.mark.parametrize("width", [None, 40, 60, 80, 100, 120, 160, 200])
def test_numbers_are_whole_or_absent(width: int | None) -> None:
    run = run_of(passed("solutions/" + "n" * 80, timing=LIMITED))
    *_, row = table_of(shown(run, width=width))
    assert set(cells(row)[2:]) <= {
        "5.30", "9.08", "5.31", "94%", "12%", "2834", "0.9",
        "1.71x", "1.71x [1.70, 1.72]", "1.71x [1.70, 1.72] faster",
        "1.00x", "1.00x [1.00, 1.00]", "1.00x [1.00, 1.00] same",
    }  # fmt: skip
    assert cells(row)[1] == "✓ PASSED"


def test_a_wide_terminal_shows_everything() -> None:
    run = run_of(passed(timing=LIMITED), passed("b.py", problem="other"))
    rows = table_of(shown(run, width=220))
    assert cells(rows[2]) == [
        "groupnorm", "groupnorm", "✓ PASSED", "5.30", "9.08", "5.31",
        "1.71x [1.70, 1.72] faster", "1.00x [1.00, 1.00] same", "94%", "12%", "2834", "0.9",
    ]  # fmt: skip


def test_a_hundred_cells_show_what_matters() -> None:
    rows = table_of(shown(run_of(passed(timing=LIMITED), passed("b.py", timing=LIMITED))))
    assert cells(rows[0]) == ["time", "eager", "vs eager", "vs", "of", "error of", "build"]
    assert cells(rows[1]) == ["solution", "status", "ms", "ms", "[95 %]", "compile", "limit",
                              "allowed", "s"]  # fmt: skip
    assert cells(rows[3]) == ["b", "✓ PASSED", "5.30", "9.08", "1.71x [1.70, 1.72] faster",
                              "1.00x", "94%", "12%", "0.9"]  # fmt: skip


def test_what_is_the_same_everywhere_is_said_once() -> None:
    text = shown(run_of(passed("a.py", timing=None), passed("b.py", timing=None)))
    assert cells(table_of(text)[1]) == ["solution", "status", "allowed", "s"]
    assert text.count("groupnorm") == 1
    assert "\nproblem: groupnorm\n" in text
    assert "problem" not in shown(run_of(passed("groupnorm.py")))


def test_a_time_that_the_host_decides_has_a_star() -> None:
    bound = msgspec.structs.replace(TIMING, host_bound=("eager",))
    for timing, stars in ((TIMING, 0), (bound, 2)):
        run = run_of(passed(timing=timing))
        assert shown(run).count("*") == stars


def test_names_that_clash_are_paths() -> None:
    assert short_names(["a/x.py", "b/y.py", "a/x.py"]) == {"a/x.py": "x", "b/y.py": "y"}
    assert list(short_names(["a/x.py", "b/x.py"]).values()) == ["a/x.py", "b/x.py"]
    assert "\na/x.py " in shown(run_of(passed("a/x.py"), passed("b/x.py")))


def test_a_baseline_that_was_asked_for_has_a_column() -> None:
    speedup = {"max-autotune": Speedup(median=1.5, ci95=(1.4, 1.6))}
    timing = msgspec.structs.replace(TIMING, speedup=speedup)
    text = shown(run_of(passed(timing=timing)))
    assert "vs max-autotune" in table_of(text)[0]
    assert "1.50x [1.40, 1.60] faster" in table_of(text)[-1]


def test_the_status_stays_when_the_terminal_narrows() -> None:
    lines = table_of(shown(every_status(), width=40))
    assert len(lines) == len(Status) + 2
    for line, status in zip(lines[2:], Status, strict=True):
        assert cells(line)[1].endswith(status.value)


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


def names_in(run: Run) -> list[str]:
    return [verdict.solution for verdict in ordered(run).verdicts]


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
    assert names_in(run) == by_problem
    rows = table_of(shown(run, width=80))[2:]
    assert [f"{row.split()[0]}.py" for row in rows] == by_problem
    assert run.verdicts[0].solution == "z.py", "the run itself stays as it is"


def test_devices_stand_one_after_the_other() -> None:
    run = run_of(
        passed("z.py", problem="z"),
        passed("cpu.py", problem="a", device="CPU"),
        passed("b.py", problem="b"),
        failed(Status.BUILD_ERROR, "y.py", problem="y", device=""),
    )
    assert names_in(run) == ["b.py", "y.py", "z.py", "cpu.py"]


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


def test_a_narrow_terminal_keeps_the_interval_longer_than_the_word() -> None:
    for width, vs_eager in (
        (100, "1.71x [1.70, 1.72] faster"),
        (66, "1.71x [1.70, 1.72]"),
        (50, "1.71x"),
    ):
        assert vs_eager in cells(table_of(shown(run_of(passed()), width=width))[-1])


def test_piped_text_is_plain_and_keeps_its_words_whole() -> None:
    word = "w" * 150
    text = shown(run_of(failed(Status.WRONG_VALUES, reason=f"{'word ' * 30}{word}")))
    assert f"\n    {word}\n" in text
    assert f"    {'word ' * 19}".rstrip() in text.splitlines()
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
    if width is None and field == "reason":
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
    assert text.split("\n\n")[0].splitlines() == [
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


def test_details_come_first_and_those_of_a_pass_are_asked_for() -> None:
    warned = passed("w.py", warnings=("line 3: prints\nremove it",), log="hello")
    run = run_of(passed(), warned, failed(Status.TIMEOUT))
    text = shown(run)
    assert text.index("candidates/bad.py: TIMEOUT") < text.index("solution")
    assert "\nwarning: line 3: prints: w\n" in text
    told = shown(run, verbose=True)
    assert "✓ solutions/groupnorm.py: PASSED\n" in told
    assert "✓ w.py: PASSED, with warnings\n" in told
    assert "    warning: line 3: prints\n" in told
    assert "line 3: prints: w.py" not in told
    assert "hello" not in told


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


def test_shorten_keeps_one_end() -> None:
    assert shorten("some words", 6, ascii_only=False, keep="start") == "some …"
    assert shorten("a/b/solution.py", 12, ascii_only=False) == "…solution.py"
    assert shorten("a/b/solution.py", 12, ascii_only=True) == "...lution.py"
    assert cell_len(shorten("解" * 20, 8, ascii_only=False)) <= 8


NARROW: Column[str] = Column(heading="m", cell=lambda row: row[:1], rank=1)
COLUMNS: list[Column[str]] = [
    Column(heading="name", cell=lambda row: row * 4, name=True),
    Column(heading="middle", cell=lambda row: f"{row} {row}", rank=2, narrower=NARROW),
    Column(heading="empty", cell=lambda _: "", rank=9),
    Column(heading="sometimes", cell=lambda row: "1" if row == "abcdefgh" else "", number=True),
]


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (80, ["abcdefgh" * 4, "abcdefgh abcdefgh", "1"]),
        (60, ["…" + ("abcdefgh" * 4)[-29:], "abcdefgh abcdefgh", "1"]),
        (50, ["abcdefgh" * 4, "a", "1"]),
        (40, ["…" + ("abcdefgh" * 4)[-25:], "a", "1"]),
        (30, ["…" + ("abcdefgh" * 4)[-18:], "1"]),
    ],
)
def test_columns_give_way_by_rank_and_then_names(width: int, expected: list[str]) -> None:
    file = io.StringIO()
    print_table(COLUMNS, ["abcdefgh", "x"], Console(file=file, width=width, highlight=False))
    lines = file.getvalue().splitlines()
    assert cells(lines[1]) == expected
    assert cells(lines[2])[-1] == "-"
    assert "empty" not in lines[0]


def test_kernelbenchs_rows_are_in_order_and_named_by_their_problems() -> None:
    files = [(10, "10_Batched", 0), (9, "9_Tall_skinny", 1), (9, "9_Tall_skinny", 0)]
    verdicts = [
        passed(f"runs/a/level_1_problem_{n}_sample_{s}_kernel.py", problem=name)
        for n, name, s in files
    ]
    rows = shown(run_of(*verdicts)).partition("\nsolution ")[2].splitlines()[1:4]
    assert [row.partition("  ")[0] for row in rows] == [
        "1/9 Tall_skinny #1",
        "1/9 Tall_skinny #0",
        "1/10 Batched #0",
    ]
    twice = run_of(*verdicts, passed("runs/b/level_1_problem_10_sample_0_kernel.py", problem="x"))
    assert "runs/a/level_1_problem_10_sample_0_kernel.py" in shown(twice, width=200)


def test_a_name_of_kernelbench_is_cut_behind_its_numbers() -> None:
    path = "runs/a/level_2_problem_6_sample_1_kernel.py"
    warned = ("the first thing", f"{path}:12: `depth` is the reference's")
    made = passed(path, problem=f"6_{'Conv_' * 20}", warnings=warned)
    lines = shown(run_of(made), width=60).splitlines()
    (row,) = (line for line in lines if "PASSED" in line and "✓" in line)
    assert row.startswith("2/6 Conv_")
    assert "… #1 " in row
    assert "warning: `depth` is the reference's: 2/6 #1" in lines

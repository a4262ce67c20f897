"""What a selftest shows: the table at any width, and what is going on meanwhile."""

import io

import pytest
from report_runs import failed, passed
from rich.cells import cell_len
from rich.console import Console

from kernelgen.grading.verdict import Status, Verdict
from kernelgen.report.progress import Verbosity
from kernelgen.selftest.corpus import Kind
from kernelgen.selftest.record import SCHEMA_VERSION, Outcome, Result, SelftestRun
from kernelgen.selftest.report import progress, show


@pytest.fixture(autouse=True)
def ordinary_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the caller's terminal out of the tests."""
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


def result(
    file: str, outcome: Outcome, verdict: Verdict | None = None, misses: tuple[str, ...] = ()
) -> Result:
    return Result(
        file=file,
        kind=Kind.HOSTILE,
        device="cpu",
        round=1,
        expected=Status.TAMPERED,
        outcome=outcome,
        exploit=("T05", "H22"),
        seconds=None if verdict is None else 3.25,
        misses=misses,
        verdict=verdict,
    )


CAUGHT = result("hostile_caught.py", Outcome.AS_EXPECTED, failed(Status.TAMPERED))
MISSED = result(
    "hostile_missed.py",
    Outcome.MISS,
    failed(Status.CRASHED, reason="\x1b[2J\x1b]0;x\x07it said \u202e so"),
    ("the status is CRASHED, not TAMPERED", "the reason does not contain 'clock'"),
)
GAP = result("hostile_gap.py", Outcome.KNOWN_GAP, passed(), ("the status is PASSED, not TAMPERED",))
IDLE = result("cuda/hostile_idle.py", Outcome.NOT_RUN)


def run_of(*results: Result, interrupted: bool = False) -> SelftestRun:
    return SelftestRun(
        schema=SCHEMA_VERSION,
        environment={},
        seed=3,
        jobs=2,
        rounds=1,
        seconds=61.4,
        interrupted=interrupted,
        results=results,
    )


def console_of(file: io.TextIOBase, width: int | None = None) -> Console:
    return Console(
        file=file,  # type: ignore[arg-type]
        width=width,
        force_terminal=width is not None,
        color_system=None,
        highlight=False,
    )


def shown(
    run: SelftestRun, *, width: int | None = None, encoding: str = "utf-8", verbose: bool = False
) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    show(run, console_of(file, width), verbose=verbose)
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_lines_fit_a_terminal(width: int) -> None:
    long = result("hostile_" + "very_long_name_" * 9 + ".py", Outcome.MISS, passed(), ("x" * 300,))
    text = shown(run_of(CAUGHT, MISSED, GAP, IDLE, long), width=width, verbose=True)
    rows = text.partition("\nkind ")[0].splitlines()
    assert max(map(cell_len, rows)) <= width
    assert all(row[:2] in ("  ", "✓ ", "✗ ", "! ", "? ", "") for row in rows)


def test_a_line_has_the_outcome_the_status_the_classes_and_the_time() -> None:
    for width in (None, 200):
        first = shown(run_of(CAUGHT), width=width, verbose=True).splitlines()[0]
        assert first == "✓ hostile_caught.py: as expected, TAMPERED [T05 H22] (3.2 s)"


def test_only_what_is_not_as_expected_is_told_unless_all_is_asked_for() -> None:
    text = shown(run_of(CAUGHT, MISSED, GAP, IDLE))
    assert "hostile_caught.py" not in text
    assert "hostile_idle.py" not in text
    assert text.index("hostile_gap.py") < text.index("hostile_missed.py")
    everything = shown(run_of(CAUGHT, MISSED, GAP, IDLE), verbose=True)
    assert "hostile_caught.py" in everything
    assert "? cuda/hostile_idle.py: not run [T05 H22]\n" in everything


def test_a_candidate_s_words_cannot_act_on_the_terminal() -> None:
    text = shown(run_of(MISSED), width=80)
    assert "\x1b" not in text
    assert "| it said \\u202e so" in text


def test_an_ascii_stream_gets_ascii() -> None:
    text = shown(run_of(CAUGHT, MISSED, GAP, IDLE), encoding="ascii", verbose=True)
    assert "x hostile_missed.py: miss, CRASHED" in text


def test_the_sums_count_each_outcome_apart() -> None:
    text = shown(run_of(CAUGHT, MISSED, GAP, IDLE))
    rows = [line.split() for line in text.splitlines()]
    assert ["hostile", "4", "1", "1", "1", "1"] in rows
    assert ["timing", "4", "1", "1", "1", "1"] in rows
    assert text.replace("\n  ", " ").splitlines()[-1] == (
        "1 of 3 as expected (1 missed, 1 known gaps, 1 not run) on NVIDIA H200, in 61 s, "
        "2 at once; --seed 3 repeats the order"
    )


@pytest.mark.parametrize(
    ("run", "code"),
    [
        (run_of(CAUGHT, GAP, IDLE), 0),
        (run_of(CAUGHT, MISSED), 1),
        (run_of(IDLE), 3),
        (run_of(), 3),
        (run_of(MISSED, interrupted=True), 130),
    ],
)
def test_exit_code(run: SelftestRun, code: int) -> None:
    assert run.exit_code == code


def told_to_a_pipe(verbosity: Verbosity) -> str:
    file = io.StringIO()
    with progress(console_of(file), verbosity) as reporter:
        reporter.begin([CAUGHT.file, MISSED.file])
        reporter.phase(1, "case 1 of 2: \x1b[2Jmain")
        reporter.finished(1, MISSED)
        reporter.finished(0, CAUGHT)
    return file.getvalue()


def test_a_pipe_gets_a_line_for_each_result() -> None:
    assert told_to_a_pipe(Verbosity.NORMAL).splitlines() == [
        "[2/2] hostile_missed: ✗ miss: the status is CRASHED, not TAMPERED (0.0 s)",
        "[1/2] hostile_caught: ✓ as expected: TAMPERED",
    ]
    assert told_to_a_pipe(Verbosity.QUIET) == ""


def test_a_terminal_keeps_a_line_for_what_runs_and_one_for_what_was_missed() -> None:
    file = io.StringIO()
    with progress(console_of(file, width=100), Verbosity.NORMAL) as reporter:
        assert reporter.display is not None
        reporter.begin([CAUGHT.file, MISSED.file])
        reporter.phase(0, "building")
        reporter.phase(1, "case 1 of 2: \x1b[2Jmain")
        descriptions = [task.description for task in reporter.display.tasks]
        assert descriptions == ["all", "[1/2] hostile_caught", "[2/2] hostile_missed"]
        assert reporter.display.tasks[2].fields["phase"] == "case 1 of 2: main"
        reporter.finished(1, MISSED)
        reporter.finished(0, CAUGHT)
        (whole,) = reporter.display.tasks
        assert whole.fields["phase"] == "2 of 2"
    left = [line for line in file.getvalue().splitlines() if "(0.0 s)" in line]
    assert len(left) == 1
    assert "hostile_missed: ✗ miss: the status is CRASHED, not TAMPERED" in left[0]

"""Progress of a run that is graded."""

import io
import time

import pytest
from report_runs import failed, passed
from rich.console import Console

from kernelgen.grading.options import Observer
from kernelgen.grading.verdict import Status
from kernelgen.report.progress import (
    Remaining,
    Reporter,
    Said,
    progress,
    verdict_said,
)

NAMES = ("a/groupnorm.py", "a/bad.py")
PHASES = ("building", "case 1 of 3: main", "case 2 of 3: odd", "case 3 of 3: volume", "timing")
PASS = passed(NAMES[0])
FAIL = failed(Status.WRONG_VALUES, NAMES[1], reason="12 of 30 are wrong\nworst at [0]")


@pytest.fixture(autouse=True)
def ordinary_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the caller's terminal out of the tests."""
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


def report(observer: Observer, names: tuple[str, ...] = NAMES) -> None:
    """Play a run of two files, one after the other."""
    observer.begin(names)
    for index, verdict in enumerate((PASS, FAIL)):
        for phase in PHASES:
            observer.phase(index, phase)
        observer.finished(index, verdict)


def told(
    *,
    quiet: bool = False,
    verbose: bool = False,
    terminal: bool = False,
    encoding: str = "utf-8",
) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    console = Console(file=file, force_terminal=terminal, color_system=None, width=80)
    with progress(console, quiet=quiet, verbose=verbose) as observer:
        report(observer)
    file.flush()
    return raw.getvalue().decode(encoding)


def without_times(text: str) -> list[str]:
    return [line.rpartition(" (")[0] or line for line in text.splitlines()]


def test_quiet_is_silent() -> None:
    assert told(quiet=True) == ""
    assert told(quiet=True, terminal=True) == ""


def test_a_pipe_gets_one_line_a_file() -> None:
    first, second = without_times(told())
    assert first.startswith("[1/2] groupnorm: ✓ PASSED: 5.30 ms, 1.71x [1.70, 1.72] eager, 1.00x")
    assert second == "[2/2] bad: ✗ WRONG_VALUES: 12 of 30 are wrong"


@pytest.mark.parametrize("terminal", [False, True])
def test_verbose_tells_every_phase(terminal: bool) -> None:  # noqa: FBT001
    lines = without_times(told(verbose=True, terminal=terminal))
    assert [f"[1/2] groupnorm: {phase}" for phase in PHASES] == lines[:5]
    assert [f"[2/2] bad: {phase}" for phase in PHASES] == lines[6:11]


def test_lines_are_flushed_as_they_come() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="utf-8")
    observer = Reporter(Console(file=file), verdict_said, every_phase=True)
    observer.begin(NAMES)
    observer.phase(0, "building")
    assert raw.getvalue() == b"[1/2] groupnorm: building\n"


def test_a_terminal_keeps_only_the_verdicts() -> None:
    text = told(terminal=True)
    assert "building" in text
    assert text.count("✓ PASSED") == 1
    assert text.count("✗ WRONG_VALUES") == 1
    assert "\x1b[?25h" in text, "the cursor comes back"


def test_a_live_line_lives_while_its_file_is_graded() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    with progress(console) as observer:
        display = observer.display
        assert display is not None
        observer.begin(NAMES)
        observer.phase(0, "building")
        observer.phase(1, "building")
        observer.phase(1, "timing")
        assert [(task.description, task.fields["phase"]) for task in display.tasks] == [
            ("all", "0 of 2"),
            ("[1/2] groupnorm", "building"),
            ("[2/2] bad", "timing"),
        ]
        observer.finished(0, PASS)
        assert [task.description for task in display.tasks] == ["all", "[2/2] bad"]
        assert display.tasks[0].fields["phase"].startswith("1 of 2")


def test_one_file_needs_no_line_for_all_of_them() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    with progress(console) as observer:
        assert observer.display is not None
        observer.begin(NAMES[:1])
        observer.phase(0, "building")
        assert [task.description for task in observer.display.tasks] == ["[1/1] groupnorm"]


def test_an_interrupt_gives_the_terminal_back() -> None:
    def interrupted(console: Console) -> None:
        with progress(console) as observer:
            observer.begin(NAMES)
            observer.phase(0, "building")
            raise KeyboardInterrupt

    file = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        interrupted(Console(file=file, force_terminal=True))
    assert file.getvalue().rstrip().endswith("\x1b[2K")
    assert "\x1b[?25h" in file.getvalue()


def test_an_ascii_terminal_gets_plain_lines() -> None:
    text = told(terminal=True, encoding="ascii")
    assert "[2/2] bad: x WRONG_VALUES: 12 of 30 are wrong" in text


def test_files_of_one_name_are_told_apart() -> None:
    file = io.StringIO()
    report(
        Reporter(Console(file=file, width=200), verdict_said, every_phase=True),
        ("a/x.py", "b/x.py"),
    )
    assert "[1/2] a/x.py: building" in file.getvalue()
    assert "[2/2] b/x.py: building" in file.getvalue()


def test_a_candidate_cannot_paint_the_progress() -> None:
    file = io.StringIO()
    observer = Reporter(Console(file=file, width=200), verdict_said, every_phase=True)
    observer.begin(["[red]x\x1b[2J\n.py"])
    observer.phase(0, "case \x1b[31mred")
    observer.finished(0, failed(Status.CRASHED, reason="\x1b[H[1/1] forged: PASSED\rx"))
    lines = file.getvalue().splitlines()
    assert len(lines) == 2
    assert all(line.startswith("[1/1] [red]x\\n: ") for line in lines)
    assert "\x1b" not in file.getvalue()


def test_a_verdict_without_a_phase_has_no_time() -> None:
    file = io.StringIO()
    observer = Reporter(Console(file=file), verdict_said)
    observer.begin(NAMES)
    observer.finished(0, passed(timing=None))
    assert file.getvalue() == "[1/2] groupnorm: ✓ PASSED\n"


def test_a_line_fits_the_console_and_keeps_its_time() -> None:
    file = io.StringIO()
    reporter = Reporter(Console(file=file, width=60), verdict_said, every_phase=True)
    reporter.begin(NAMES)
    reporter.phase(1, "building")
    reporter.finished(1, failed(Status.CRASHED, reason="word " * 40))
    line = file.getvalue().splitlines()[1]
    assert len(line) == 60
    assert line.startswith("[2/2] bad: ✗ CRASHED: word word")
    assert line.endswith("… (0.0 s)")


def say(result: int) -> Said:
    return Said(word="even" if result % 2 == 0 else "odd", expected=result % 2 == 0)


@pytest.mark.parametrize("terminal", [False, True])
def test_of_hundreds_a_terminal_keeps_what_is_not_expected(terminal: bool) -> None:  # noqa: FBT001
    file = io.StringIO()
    console = Console(file=file, width=60, force_terminal=terminal, color_system=None)
    with progress(console, say, brief=True) as reporter:
        reporter.begin(["a.py", "b.py"])
        for index in range(2):
            reporter.phase(index, "building")
            reporter.finished(index, index)
    assert "[2/2] b: odd" in file.getvalue()
    assert ("[1/2] a: even" in file.getvalue()) is not terminal
    assert ("building" in file.getvalue()) is terminal


def test_a_search_adds_what_it_tries() -> None:
    file = io.StringIO()
    console = Console(file=file, width=80)
    with progress(console, say, verbose=True) as reporter:
        for number in range(2):
            index = reporter.add(f"threads={number}.5")
            reporter.phase(index, "timing")
            reporter.finished(index, number)
    assert file.getvalue().splitlines() == [
        "[1] threads=0.5: timing",
        "[1] threads=0.5: even (0.0 s)",
        "[2] threads=1.5: timing",
        "[2] threads=1.5: odd (0.0 s)",
    ]


@pytest.mark.parametrize(
    ("total", "done", "after_s", "left"),
    [
        (4, 0, 30.0, ""),
        (4, 1, 10.0, "about 30 s left"),
        (4, 3, 30.0, "about 10 s left"),
        (100, 10, 60.0, "about 9 min left"),
        (4, 4, 30.0, ""),
        (4, 3, 3.0, ""),
    ],
)
def test_what_is_left_takes_as_long_as_what_is_done(
    monkeypatch: pytest.MonkeyPatch, total: int, done: int, after_s: float, left: str
) -> None:
    now_s = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    remaining = Remaining(total)
    remaining.done = done
    now_s[0] += after_s
    assert remaining.left == left
    assert remaining.how_far == f"{done} of {total}" + (f", {left}" if left else "")

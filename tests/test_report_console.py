"""The consoles: what a pipe, a closed pipe and a forced colour lead to."""

import io
import sys

import msgspec
import pytest
from report_runs import passed, run_of
from rich.console import Console

from kernelgen.report.console import console_for
from kernelgen.report.run_table import show


class ClosedPipe(io.StringIO):
    """A stream whose reader has gone."""

    def write(self, _text: str) -> int:
        """Fail as the operating system does."""
        raise BrokenPipeError(32, "Broken pipe")


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def test_a_broken_pipe_is_left_to_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", ClosedPipe())
    console = console_for(stderr=False)
    with pytest.raises(BrokenPipeError):
        console.print("text")


def test_forced_colour_does_not_make_a_pipe_interactive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    console = console_for(stderr=True)
    assert console.is_terminal
    assert not console.is_interactive


@pytest.mark.parametrize(("term", "interactive"), [("xterm", True), ("dumb", False)])
def test_a_terminal_is_interactive_unless_it_is_dumb(
    monkeypatch: pytest.MonkeyPatch,
    term: str,
    interactive: bool,  # noqa: FBT001
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert console_for(stderr=True).is_interactive is interactive


def test_text_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    console_for(stderr=False).print("[red]:tada:[/] 'a' 1")
    assert stream.getvalue() == "[red]:tada:[/] 'a' 1\n"


@pytest.mark.parametrize(
    ("torch", "told"), [("2.13.1+cpu", False), ("2.14.0", True), ("3.0", True)]
)
def test_a_torch_that_is_newer_than_the_tested_one_is_named(torch: str, *, told: bool) -> None:
    run = msgspec.structs.replace(run_of(passed()), environment={"torch": torch})
    file = io.StringIO()
    show(run, Console(file=file, width=100))
    assert (f"warning: torch {torch} is newer than 2.13" in file.getvalue()) == told

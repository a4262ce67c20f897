"""The sign and the colour of each outcome."""

from kernelgen.selftest.record import Outcome

_MARKS = {
    Outcome.AS_EXPECTED: ("✓", "+"),
    Outcome.MISS: ("✗", "x"),
    Outcome.KNOWN_GAP: ("!", "!"),
    Outcome.CLOSED_GAP: ("!", "!"),
    Outcome.NOT_RUN: ("?", "?"),
}
_STYLES = {Outcome.AS_EXPECTED: "cyan", Outcome.MISS: "bold red"}


def mark(outcome: Outcome, *, ascii_only: bool) -> str:
    """Return the one-character sign that goes before an outcome."""
    return _MARKS[outcome][ascii_only]


def style(outcome: Outcome) -> str:
    """Return the rich style of an outcome."""
    return _STYLES.get(outcome, "yellow")

"""Text from candidates cannot act on a terminal."""

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgen.report.printable import printable, printable_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ünï çödé 内核", "plain, ünï çödé 内核"),
        ("\x1b[1;32mPASSED\x1b[0m", "PASSED"),
        ("\x1b[2J\x1b[Hfirst", "first"),
        ("\x9b31mred", "red"),
        ("\x1b]0;a title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bcreset", "reset"),
        ("\x1b(0lines", "lines"),
        ("\x1b\x1b[31m[31mnested", "\\x1b[31mnested"),
        ("\x1b]0;never closed", "\\x1b]0;never closed"),
        ("bell\x07 null\x00", "bell\\x07 null\\x00"),
        ("\u202edesrever", "\\u202edesrever"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("lone \udcff", "lone \\udcff"),
        ("a\tb", "a   b"),
        ("over\rwritten", "over\\rwritten"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_ascii_escapes_what_the_stream_cannot_carry() -> None:
    assert printable("ü ✓ a", ascii_only=True) == "\\xfc \\u2713 a"


def test_lines_split_at_carriage_returns_and_drop_blank_ones() -> None:
    assert printable_lines("one\r\ntwo\rthree\n\n  \n four ") == ["one", "two", "three", " four"]


def test_a_long_line_is_cut() -> None:
    assert printable("x" * 5000) == "x" * 2000 + " (cut here)"


@given(st.text(alphabet=st.characters() | st.sampled_from("\x1b[]0;m\x9b\x9d\x07\\\n\r")))
def test_nothing_that_acts_is_left(text: str) -> None:
    for line in [printable(text), *printable_lines(text)]:
        assert not {"Cc", "Cf", "Cs", "Zl", "Zp"} & {unicodedata.category(char) for char in line}


@pytest.mark.parametrize("piece", ["\x1b]", "\x9d", "\x1b[", "\x1b[0", "\x1b ", "\x90\x1b"])
def test_hostile_text_takes_no_longer_than_its_length(piece: str) -> None:
    start = time.monotonic()
    printable(piece * 200_000)
    assert time.monotonic() - start < 5

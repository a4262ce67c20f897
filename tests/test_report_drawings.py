"""The numbers behind the page's drawings, and the colours of its sources."""

import math
import re
from html import unescape
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_runs import FULL_TIMING, LONG_SOURCE, TIMING

from kernelgen.grading.timing.times import Speedup
from kernelgen.report.html import highlight
from kernelgen.report.html.highlight import highlighted
from kernelgen.report.html.overview import Scale, speedup_scale
from kernelgen.report.html.solution import subject_table
from kernelgen.report.numbers import byte_size, error_size, percent, plain, times
from kernelgen.report.printable import printable_block, visible

POSITIVE = st.floats(min_value=1e-6, max_value=1e6)


def test_a_log_scale_has_equal_lengths_for_equal_factors() -> None:
    scale = Scale(low=0.5, high=8.0)
    places = [scale.at(value) for value in (0.5, 1, 2, 4, 8)]
    steps = [b - a for a, b in pairwise(places)]
    assert steps == pytest.approx([steps[0]] * 4)
    assert scale.at(100.0) == scale.at(8.0), "what lies beyond is drawn at the end"


@given(st.lists(st.tuples(POSITIVE, POSITIVE, POSITIVE), max_size=5))
def test_every_speedup_and_one_have_a_place(found: list[tuple[float, float, float]]) -> None:
    ordered = [sorted(ends) for ends in found]
    speedups = [Speedup(median=mid, ci95=(low, high)) for low, mid, high in ordered]
    scale = speedup_scale(speedups)
    for value in (1.0, *(end for ends in ordered for end in ends)):
        assert scale.low <= value <= scale.high
    assert 0 < scale.at(1.0) < 100


@given(POSITIVE, st.floats(min_value=1.5, max_value=1e9))
def test_ticks_are_few_round_and_inside(low: float, factor: float) -> None:
    ticks = Scale(low=low, high=low * factor).ticks
    assert 1 <= len(ticks) <= 8
    assert list(ticks) == sorted(set(ticks))
    assert all(low <= tick * (1 + 1e-9) and tick <= low * factor * (1 + 1e-9) for tick in ticks)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.8, 1.75, (0.8, 1.0, 1.2, 1.4, 1.6)),
        (0.5, 20.0, (0.5, 1, 2, 5, 10, 20)),
        (0.8, 300.0, (1, 3, 10, 30, 100, 300)),
        (1e-3, 1e3, (1e-3, 1e-2, 0.1, 1, 10, 100, 1000)),
    ],
)
def test_ticks_hold_one(low: float, high: float, expected: tuple[float, ...]) -> None:
    assert Scale(low=low, high=high).ticks == pytest.approx(expected)


def test_the_table_of_subjects_has_columns_of_what_is_known() -> None:
    columns = dict(subject_table(FULL_TIMING))
    assert columns["subject"] == ["candidate", "eager", "compile", "max-autotune"]
    assert columns["#quartiles"][1] == "8.970\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}9.020"
    assert subject_table(TIMING) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""), (0.0, "0"), (5.3041, "5.304"), (0.0123456, "0.01235"),
        (9.99951e-4, "1.000e-03"), (1234.5, "1\xa0234"), (1e7, "1.000e+07"), (-2.5, "-2.500"),
        (math.inf, "inf"),
    ],
)  # fmt: skip
def test_plain_numbers(value: float | None, text: str) -> None:
    assert plain(value) == text


def test_numbers_with_units() -> None:
    sign = "\N{MULTIPLICATION SIGN}"
    assert [times(value) for value in (1.0014, 12.346, 123.46, 1234.6)] == [
        f"1.001{sign}", f"12.35{sign}", f"123.5{sign}", f"1235{sign}",
    ]  # fmt: skip
    assert (byte_size(512), byte_size(2**30 * 14), byte_size(1020)) == (
        "512 B", "14 GiB", "1020 B",
    )  # fmt: skip
    assert (error_size(None), error_size(math.nan), error_size(1.26e-6)) == (
        "not finite", "not finite", "1.3e-06",
    )  # fmt: skip
    assert percent(0.125) == "12.5\xa0%"


def text_of(markup: str) -> str:
    return unescape(re.sub(r"</?i[^>]*>", "", markup))


@settings(deadline=None)
@given(st.text())
def test_highlighting_changes_no_letter(source: str) -> None:
    assert text_of(highlighted(source)) == visible(source)


def test_highlighting_keeps_every_line_in_its_place() -> None:
    source = "\n\n" + LONG_SOURCE.replace("\n", "\r\n") + "\x0c\n\n"
    assert text_of(highlighted(source)) == visible(source)
    assert visible(source).count("\n") == source.count("\n")


def test_python_and_the_cuda_in_its_strings_have_their_own_colours() -> None:
    markup = str(highlighted(LONG_SOURCE)).replace("&#34;", '"').replace(" </i>", "</i>")
    for word in (
        "<i class=c># problem: groupnorm", '<i class=s>"""A solution."""',
        "<i class=k>import</i>", "<i class=c>// Each block takes a segment.",
        "<i class=k>__global__</i>", "<i class=t>float</i>", "<i class=n>0.5f</i>",
        '<i class=s>"a string"',"<i class=k>def</i>", "<i class=d>ModelNew</i>",
    ):  # fmt: skip
        assert word in markup, word
    assert "<i class=p>#include" in markup


def test_a_string_that_is_not_cuda_stays_a_string() -> None:
    assert highlighted('x = """if (a < b) return;"""') == (
        "x = <i class=s>&#34;&#34;&#34;if (a &lt; b) return;&#34;&#34;&#34;</i>"
    )


def test_broken_python_is_shown_whole() -> None:
    source = 'def broken(:\n    x = """#include <a>\n int f() {'
    assert text_of(highlighted(source)) == source


def test_a_source_that_takes_too_long_comes_without_colours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(highlight, "_MOST_SECONDS", -1.0)
    assert highlighted("import os < 1") == "import os &lt; 1"


def test_a_source_that_is_too_long_comes_without_colours() -> None:
    source = "import os\n" * 40_000
    assert highlighted(source) == source


def test_a_block_keeps_its_lines_and_loses_what_acts() -> None:
    assert printable_block("a\tb\r\nc\rd\x1b[31m\x00\u202e") == "a\tb\nc\nd\\x00\\u202e"
    assert visible("\x1b[31m") == "\\x1b[31m"

"""A sweep's record, table and plot, on points made by hand."""

import io
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from report_runs import HARM
from rich.console import Console
from sweep_records import KIB, MIB, MIXED, recorded, sweep_of, timed

from kernelgen.errors import UserError
from kernelgen.grading.verdict import Status
from kernelgen.report.json_report import encode
from kernelgen.sweep.plot import plot
from kernelgen.sweep.record import Sweep, read_sweep
from kernelgen.sweep.table import show

SVG = "{http://www.w3.org/2000/svg}"


def shown(found: Sweep) -> str:
    file = io.StringIO()
    show(found, Console(file=file, width=200, highlight=False, markup=False))
    return file.getvalue()


def test_the_table_has_a_row_a_point_in_readable_units() -> None:
    table, rest = shown(MIXED).split("\n\n")
    rows = [re.split(r" {2,}", row.strip()) for row in table.splitlines()]
    assert rows[0] == [
        "segment", "tensor", "status", "time ms", "vs eager [95 %]", "vs compile [95 %]",
        "of limit",
    ]  # fmt: skip
    assert rows[1] == [
        "4 KiB", "1 MiB", "✓ PASSED", "2.00", "1.20x [1.19, 1.21] faster",
        "1.01x [0.99, 1.02] same", "50%",
    ]  # fmt: skip
    assert rows[3] == ["4 KiB", "256 MiB", "✗ WRONG_VALUES", "-", "-", "-", "-"]
    assert rows[5][-1] == "-"
    lines = rest.splitlines()
    assert lines[:3] == [
        "segment 4 KiB, tensor 256 MiB: WRONG_VALUES", "    3 of 8", "    elements",
    ]  # fmt: skip
    assert lines[3:] == [
        "vs eager: 4 faster, 0 same, 1 slower",
        "vs compile: 0 faster, 5 same, 0 slower",
        "of the limit: 50% to 125%",
        "Times: CUDA events, new inputs for every call",
        "softmax: 5 of 6 points passed on NVIDIA H200",
    ]


def test_what_was_not_graded_is_said() -> None:
    text = shown(sweep_of(timed(256, KIB), planned=4))
    assert text.endswith("softmax: 1 of 1 points passed on NVIDIA H200; 3 not graded\n")
    nothing = msgspec.structs.replace(sweep_of(planned=2), device="", method="")
    assert shown(nothing) == "softmax: 0 of 0 points passed; 2 not graded\n"


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    assert read_sweep(Path(recorded(tmp_path))) == MIXED


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "not a record of a sweep"),
        ('{"schema": 7}', "the record has schema 7"),
        ('{"schema": 1, "environment": {}, "verdicts": []}', "`kernelgen sweep --json FILE`"),
        (encode(MIXED).replace("WRONG_VALUES", "PASSED").replace("PASSED", "CRASHED"), "a reason"),
        (encode(MIXED).replace('"tensor": 1048576', '"tensor": 0'), "above 0"),
        (encode(MIXED).replace('"tensor": 1048576', '"other": 1'), "has the labels"),
    ],
)
def test_what_is_no_record_is_refused_in_one_line(
    tmp_path: Path, content: str, complaint: str
) -> None:
    file = tmp_path / "run.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as refused:
        read_sweep(file)
    assert str(refused.value).startswith(f"{file}: ")
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


def marks(root: ET.Element) -> list[str]:
    """Return the words of every mark that is a point."""
    return [title.text or "" for path in root.iter(f"{SVG}path") for title in path]


def test_the_plot_has_a_mark_for_every_share_and_a_gap_where_one_is_missing() -> None:
    root = ET.fromstring(plot(MIXED))
    assert marks(root) == [
        "segment 4 KiB, tensor 1 MiB: 50.0\N{NO-BREAK SPACE}% of the limit, 2 ms",
        "segment 4 KiB, tensor 16 MiB: 88.0\N{NO-BREAK SPACE}% of the limit, 2 ms",
        "segment 4 KiB, tensor 2 GiB: 93.0\N{NO-BREAK SPACE}% of the limit, 2 ms",
        "segment 1 MiB, tensor 16 MiB: 125.0\N{NO-BREAK SPACE}% of the limit, 2 ms",
    ]
    lengths = [len((line.get("points") or "").split()) for line in root.iter(f"{SVG}polyline")]
    assert lengths == [2, 1, 1, 2, 2], "three runs of points, and two lines of the legend"
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert {"segment", "4 KiB", "1 MiB", "2 GiB", "0%", "100%", "125%"} <= set(words)
    assert any("not shown: 2 points" in (word or "") for word in words)


def test_higher_shares_are_higher_and_larger_sizes_further_right() -> None:
    root = ET.fromstring(plot(sweep_of(timed(256, KIB, 0.2), timed(256, MIB, 0.9))))
    line = next(root.iter(f"{SVG}polyline"))
    (x0, y0), (x1, y1) = (map(float, p.split(",")) for p in (line.get("points") or "").split())
    assert x0 < x1
    assert y0 > y1


def test_ten_lines_have_ten_marks() -> None:
    points = [timed(256 << index, 8 * MIB, 0.05 * index) for index in range(10)]
    root = ET.fromstring(plot(sweep_of(*points)))
    outlines = {(path.get("d"), (path.get("class") or "").split()[0])
                for path in root.iter(f"{SVG}path")}  # fmt: skip
    assert len(outlines) == 10


def test_the_plot_stands_alone_in_light_and_dark_and_is_the_same_each_time(tmp_path: Path) -> None:
    text = plot(MIXED)
    assert text == plot(read_sweep(Path(recorded(tmp_path))))
    assert text.endswith("</svg>\n")
    assert "prefers-color-scheme:dark" in text
    assert not re.search(r"<script|href|url\(|@import|\bon\w+=", text)


@pytest.mark.parametrize("found", [sweep_of(planned=1), sweep_of(timed(256, 256, None))])
def test_a_plot_of_nothing_is_a_plot(found: Sweep) -> None:
    assert marks(ET.fromstring(plot(found))) == []


def test_no_text_of_a_record_becomes_markup() -> None:
    found = msgspec.structs.replace(MIXED, problem=HARM, device=HARM)
    root = ET.fromstring(plot(found))
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "title", "style", "rect", "text", "line", "polyline", "path",
    }  # fmt: skip


@pytest.mark.parametrize("fraction", [-1.0, 1e300])
def test_an_impossible_share_is_drawn_at_an_end(fraction: float) -> None:
    text = plot(sweep_of(timed(256, KIB, fraction)))
    assert max(map(len, re.findall(r"[\d.]+", text))) < 12


def test_a_record_cannot_contradict_itself() -> None:
    point = timed(256, KIB)
    with pytest.raises(ValueError, match="needs a reason"):
        msgspec.structs.replace(point, status=Status.CRASHED)

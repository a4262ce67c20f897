"""A sweep's record, table and plot, on points made by hand."""

import io
import re
import sys
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


def shown(found: Sweep, width: int = 200) -> str:
    file = io.StringIO()
    show(found, Console(file=file, width=width, highlight=False, markup=False))
    return file.getvalue()


def test_the_table_has_a_row_a_point_in_readable_units() -> None:
    why, table, rest = shown(MIXED).split("\n\n")
    assert why.splitlines() == [
        "segment 4 KiB, tensor 256 MiB: WRONG_VALUES", "    3 of 8", "    elements",
    ]  # fmt: skip
    rows = [re.split(r" {2,}", row.strip()) for row in table.splitlines()]
    assert rows[0] == ["time", "vs eager", "vs compile", "of"]
    assert rows[1] == ["segment", "tensor", "status", "ms", "[95 %]", "[95 %]", "limit"]
    assert rows[2] == [
        "4 KiB", "1 MiB", "✓ PASSED", "2.00", "1.20x [1.19, 1.21] faster",
        "1.01x [0.99, 1.02] same", "50%",
    ]  # fmt: skip
    assert rows[4] == ["4 KiB", "256 MiB", "✗ WRONG_VALUES", "-", "-", "-", "-"]
    assert rows[6][-1] == "-"
    assert rest.splitlines() == [
        "vs eager: 4 faster, 0 same, 1 slower",
        "vs compile: 0 faster, 5 same, 0 slower",
        "of the limit: 50% to 125%",
        "Times: CUDA events, new inputs for every call",
        "softmax: 5 of 6 points passed on NVIDIA H200",
    ]


def test_a_pipe_gets_a_hundred_cells() -> None:
    text = shown(MIXED, width=100)
    assert max(map(len, text.splitlines())) <= 100
    assert "1.20x [1.19, 1.21] faster" in text


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
        ("{", "not a kernelgen sweep"),
        ('{"schema": 7}', "the sweep has schema 7"),
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


def drawn(found: Sweep) -> ET.Element:
    pytest.importorskip("matplotlib")
    return ET.fromstring(plot(found))


def groups(root: ET.Element, start: str) -> list[ET.Element]:
    return [group for group in root.iter(f"{SVG}g") if (group.get("id") or "").startswith(start)]


def test_the_plot_has_a_line_a_series_with_a_gap_where_a_share_is_missing() -> None:
    pytest.importorskip("matplotlib")
    text = plot(MIXED).decode()
    root = ET.fromstring(text)
    lines = groups(root, "line2d")
    paths = [path.get("d") or "" for line in lines for path in line.findall(f"{SVG}path")]
    assert any(path.count("M") == 2 for path in paths), "the line of 4 KiB has a gap"
    marks = [len(list(line.iter(f"{SVG}use"))) for line in lines]
    assert 3 in marks, "three points of 4 KiB have a share"
    for word in ("segment", "4 KiB", "1 MiB", "2 GiB", "softmax on NVIDIA H200"):
        assert f"<!-- {word}" in text
    assert "2 not shown" in text


def test_the_plot_is_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert plot(MIXED) == plot(read_sweep(Path(recorded(tmp_path))))


@pytest.mark.parametrize(
    "found",
    [
        sweep_of(planned=1),
        sweep_of(timed(256, 256, None)),
        sweep_of(timed(256, KIB, -1.0)),
        sweep_of(timed(256, KIB, 1e300)),
        sweep_of(*(timed(256 << n, 8 * MIB << n, 0.02 * n) for n in range(30))),
    ],
)
def test_a_plot_of_nothing_or_of_impossible_shares_is_a_plot(found: Sweep) -> None:
    assert drawn(found).tag == f"{SVG}svg"


def test_no_text_of_a_record_becomes_markup() -> None:
    usual = {element.tag for element in drawn(MIXED).iter()}
    harmful = msgspec.structs.replace(MIXED, problem=f"{HARM} $x$ --> <g>", device=HARM)
    assert {element.tag for element in drawn(harmful).iter()} <= usual


def test_without_matplotlib_a_plot_is_one_line_and_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"pip install 'kernelgen\[plot\]'"):
        plot(MIXED)


def test_a_record_cannot_contradict_itself() -> None:
    point = timed(256, KIB)
    with pytest.raises(ValueError, match="needs a reason"):
        msgspec.structs.replace(point, status=Status.CRASHED)

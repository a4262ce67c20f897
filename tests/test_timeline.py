"""The timeline of a run: its phases, in rows of what ran at once."""

import json
from pathlib import Path
from unittest import mock

from click.testing import CliRunner
from report_runs import passed

from kernelgen.cli import program
from kernelgen.report.timeline import Timeline


class Heard:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def begin(self, solutions: object) -> None:
        """Keep it."""
        self.told.append(solutions)

    def phase(self, index: int, text: str) -> None:
        """Keep it."""
        self.told.append((index, text))

    def finished(self, index: int, verdict: object) -> None:
        """Keep it."""
        self.told.append((index, verdict))


def test_phases_are_spans_in_rows_of_what_ran_at_once(tmp_path: Path) -> None:
    heard, verdict = Heard(), passed()
    with mock.patch("kernelgen.report.timeline.time.monotonic", side_effect=range(10, 40)):
        noted = Timeline().telling(heard)
        noted.begin(["a/first.py", "second.py", "third.py"])
        noted.phase(0, "building")  # at 10 s
        noted.phase(1, "building")  # 11
        noted.phase(0, "timing")  # 12, 13
        noted.finished(0, verdict)  # 14
        noted.phase(2, "building")  # 15, in the row of the first one
        noted.finished(1, verdict)  # 16
        noted.finished(2, verdict)  # 17
    noted.write(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    found = [(one["tid"], one["name"], one["ts"] / 1e6, one["dur"] / 1e6) for one in events]
    assert found == [
        (1, "first", 0, 4),
        (1, "building", 0, 2),
        (1, "timing", 3, 1),
        (2, "second", 1, 5),
        (2, "building", 1, 5),
        (1, "third", 5, 2),
        (1, "building", 5, 2),
    ]
    assert {one["args"]["file"] for one in events} == {"a/first.py", "second.py", "third.py"}
    assert heard.told[1:3] == [(0, "building"), (1, "building")]
    assert heard.told[-1] == (2, verdict)


def test_a_run_writes_its_own(tmp_path: Path) -> None:
    file, trace = tmp_path / "relu.py", tmp_path / "trace.json"
    file.write_text(Path("solutions/cpu/relu.py").read_text())
    given = ["grade", str(file), "--device", "cpu", "--no-timing", "--trace", str(trace)]
    result = CliRunner().invoke(program, given)
    assert result.exit_code == 0, result.output
    names = [one["name"] for one in json.loads(trace.read_text())["traceEvents"]]
    assert names[0] == "relu"
    assert any(name.startswith("case ") for name in names)

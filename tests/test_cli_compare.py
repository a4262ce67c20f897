"""`kernelgen compare`: files, options, output and exit codes."""

import io
import json
import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from compare_runs import run_of, timed, timing
from report_runs import failed, passed
from rich.cells import cell_len
from rich.console import Console

from kernelgen.cli import program
from kernelgen.comparison.comparing import compare
from kernelgen.comparison.record import Compared, Comparison, Outcome
from kernelgen.comparison.table import show
from kernelgen.grading.verdict import Run, Status, Verdict
from kernelgen.report.json_report import Recorded, write

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "compare.md").read_text(encoding="utf-8")

OLD = run_of(
    timed("sol/same.py", timing(5.0, seed=1)),
    timed("sol/slow.py", timing(5.0, seed=3)),
    passed("sol/broken.py"),
    failed(Status.CRASHED, "sol/mended.py"),
    passed("sol/gone.py"),
)
NEW = run_of(
    timed("sol/same.py", timing(5.0, seed=2)),
    timed("sol/slow.py", timing(5.6, seed=4)),
    failed(Status.WRONG_VALUES, "sol/broken.py", reason="\x1b[2J3 of 8 \u202e elements\nmore"),
    passed("sol/mended.py"),
    passed("sol/new.py"),
)


@pytest.fixture(autouse=True)
def no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the caller's terminal out of the tests."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Return the paths of the two runs."""
    return written(tmp_path, OLD, NEW)


def written(folder: Path, old: Run, new: Run) -> tuple[str, str]:
    for name, run in (("old.json", old), ("new.json", new)):
        write(run, folder / name)
    return str(folder / "old.json"), str(folder / "new.json")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(program, ["compare", *arguments])


def test_a_pipe_gets_plain_aligned_columns(files: tuple[str, str]) -> None:
    result = invoke(*files)
    remarks, table = result.stdout.rpartition("\n\n")[0].rsplit("\n\n", 1)
    assert max(map(cell_len, result.stdout.splitlines())) <= 100
    rows = [re.split(r" {2,}", row.strip()) for row in table.splitlines()]
    assert rows[0] == [
        "result", "solution", "status", "old ms", "new ms", "speed [95 %]",
    ]  # fmt: skip
    assert [row[:2] for row in rows[1:]] == [
        ["✗ broke", "sol/broken.py"],
        ["✗ regressed", "sol/slow.py"],
        ["✓ mended", "sol/mended.py"],
        ["same", "sol/same.py"],
        ["new", "sol/new.py"],
        ["gone", "sol/gone.py"],
    ]
    assert {len(row) for row in rows} == {6}
    assert rows[1][2:] == ["WRONG_VALUES, was PASSED", "5.30", "-", "-"]
    assert "sol/broken.py: broke\n    3 of 8 \\u202e elements\n" in f"{remarks}\n"
    assert result.stdout.splitlines()[-1] == (
        "1 broke, 1 regressed, 1 mended, 1 same, 1 new, 1 gone (bound 2 %)"
    )
    assert not set(result.stdout) & set("\x1b\u202e─│")
    assert (result.exit_code, result.stderr) == (1, "")


def test_quiet_prints_reasons_to_fail_and_the_sums(files: tuple[str, str]) -> None:
    result = invoke(*files, "-q")
    for name in ("same", "mended", "new", "gone"):
        assert f"sol/{name}.py" not in result.stdout
    assert "✗ regressed  sol/slow.py" in result.stdout
    assert "1 same" in result.stdout
    assert result.exit_code == 1


def test_nothing_worse_is_one_line_if_quiet(files: tuple[str, str]) -> None:
    result = invoke(files[0], files[0], "-q")
    assert result.stdout == "4 same, 1 still fails (bound 2 %)\n"
    assert result.exit_code == 0


@pytest.mark.parametrize(("bound", "code"), [("2", 1), ("50", 0), ("0", 1), ("-1", 2), ("nan", 2)])
def test_the_bound_decides_the_exit_code(tmp_path: Path, bound: str, code: int) -> None:
    slow = (OLD.verdicts[1], NEW.verdicts[1])
    paths = written(tmp_path, run_of(slow[0]), run_of(slow[1]))
    assert invoke(*paths, "--bound", bound).exit_code == code


def test_another_machine_is_refused_and_named(tmp_path: Path) -> None:
    paths = written(tmp_path, OLD, msgspec.structs.replace(NEW, environment={"torch": "2.99"}))
    result = invoke(*paths)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "torch is 2.99, was 2.11.0" in result.stderr
    allowed = invoke(*paths, "--across-devices")
    assert allowed.exit_code == 1
    assert "warning: other machines, whose times say little: torch is 2.99" in allowed.stdout


def test_what_could_not_be_judged_again_is_no_pass(tmp_path: Path) -> None:
    old, new = run_of(passed("s.py")), run_of(failed(Status.NO_DEVICE, "s.py"))
    result = invoke(*written(tmp_path, old, new))
    assert result.exit_code == 3
    assert "? not judged" in result.stdout


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "cannot be read: No such file"), ("{", "not a kernelgen report"),
     ('{"schema": 9}', "the report has schema 9")],
)  # fmt: skip
def test_a_file_that_is_no_report_is_named(
    files: tuple[str, str], tmp_path: Path, content: str | None, complaint: str
) -> None:
    place = tmp_path / "other.json"
    if content is not None:
        place.write_text(content)
    result = invoke(files[0], str(place))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {place}: {complaint}")
    assert len(result.stderr.splitlines()) == 1


def test_json_is_the_record_and_the_table_goes_elsewhere(files: tuple[str, str]) -> None:
    result = invoke(*files, "--json", "-")
    found = msgspec.json.decode(result.stdout, type=Comparison)
    assert (found.old, found.new, found.bound_percent) == (*files, 2.0)
    assert [one.outcome for one in found.solutions][:2] == [Outcome.BROKE, Outcome.REGRESSED]
    assert "✗ regressed" in result.stderr
    assert result.exit_code == 1


def shown(old: Run, new: Run, *, width: int) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=True, color_system=None)
    runs = Recorded(name="old.json", run=old), Recorded(name="new.json", run=new)
    show(compare(*runs, bound_percent=2.0), console, quiet=False)
    return file.getvalue()


@pytest.mark.parametrize("width", [60, 160])
def test_a_terminal_keeps_the_result_and_has_the_speedups_where_there_is_room(width: int) -> None:
    text = shown(OLD, NEW, width=width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert re.search(r"✗ regressed.*0\.\d\dx \[0\.\d\d, 0\.\d\d\]", text)
    assert bool(re.search(r"1\.\d\dx, was 1\.\d\dx", text)) == (width > 100)


def test_a_name_cannot_act_on_the_terminal() -> None:
    hostile = passed("\x1b[2Jx\r\n9 of 9 passed\u202e.py", problem="\x1b]0;x\x07")
    text = shown(run_of(hostile), run_of(hostile), width=60)
    assert not set(text) & set("\x1b\r\x07\u202e")
    assert not any(line.startswith("9 of 9") for line in text.splitlines())


def test_the_page_has_every_field_of_a_solution() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.split("## The record")[1], re.MULTILINE)
    assert rows == [field.name for field in msgspec.structs.fields(Compared)]


def test_the_page_explains_every_outcome_and_option() -> None:
    table = PAGE.split("| result | meaning |")[1].split("\n\n")[0]
    words = {word for row in re.findall(r"^\| ([^|`]+) \|", table, re.MULTILINE)
             for word in row.strip().split(", ")}  # fmt: skip
    assert words == {outcome.value for outcome in Outcome}
    help_text = invoke("--help").stdout
    options = set(re.findall(r"^\s+(?:-q, )?(--[a-z-]+)", help_text, re.MULTILINE)) - {"--help"}
    assert all(option in PAGE for option in options)
    assert len(options) == 5


def test_two_models_are_compared_by_problem_with_the_best_of_their_samples(tmp_path: Path) -> None:
    def sample(number: int, sample: int) -> str:
        return f"runs/x/level_1_problem_{number}_sample_{sample}_kernel.py"

    def quick(number: int, ms: float, n: int = 0) -> Verdict:
        return timed(sample(number, n), timing(ms, seed=number + n), problem=f"{number}_Name")

    def wrong(number: int, n: int = 0) -> Verdict:
        path = sample(number, n)
        return failed(Status.WRONG_VALUES, path, problem=f"{number}_Name")

    first = run_of(quick(19, 5.0), quick(2, 3.0), wrong(2, 1), wrong(3), quick(4, 1.0), wrong(5))
    other = run_of(quick(19, 8.0), quick(19, 4.0, 1), quick(2, 3.0), quick(3, 1.0), wrong(5))
    paths = written(tmp_path, first, other)
    result = invoke(*paths, "--models", "--json", str(tmp_path / "both.json"))
    table, figures, sums = result.stdout.rstrip("\n").split("\n\n")
    assert result.exit_code == 0
    rows = [re.split(r" {2,}", row.strip()) for row in table.splitlines()[2:]]
    assert [(row[0], row[-1]) for row in rows] == [
        ("1/2 Name", "-"),
        ("1/3 Name", "new"),
        ("1/4 Name", "-"),
        ("1/5 Name", "-"),
        ("1/19 Name", "new"),
    ]
    assert rows[1][1:3] == ["WRONG_VALUES", rows[1][2]]
    assert re.search(r"pass rate +3 of 6, 50% +4 of 5, 80% *\n", figures)
    assert re.search(r"pass@1 +50% of 5 problems +75% of 4 problems *\n", figures)
    assert re.search(r"fast_1 vs eager +50% +80% *\n", figures)
    assert sums == "old wins 0, new wins 2, 1 same, 1 still fails, 1 in old alone"
    both = json.loads((tmp_path / "both.json").read_text())
    assert both["figures"]["fast_1 vs eager"] == ["50%", "80%"]

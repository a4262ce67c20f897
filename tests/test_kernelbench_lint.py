"""`kernelgen lint --kernelbench PATH`: several problems at once, the record, and its table."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from click.testing import CliRunner, Result
from kernelbench_trees import PROBLEM, checkout
from tables import lint_table, read_lint
from test_grade_supervisor import left_behind

from kernelgen.cli import program
from kernelgen.errors import ExitCode, UserError
from kernelgen.grading.verdict import Status
from kernelgen.kernelbench.checkout import Checkout
from kernelgen.lint.linting import Linting
from kernelgen.lint.record import CaseLint, Lint
from kernelgen.problem.record import Problem
from kernelgen.report.json_report import write

MODEL_WITH_PARAMETERS = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(40, 40) for _ in range(3)))

    def forward(self, x):
        return self.layers(x)
"""


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(program, ["lint", "-q", *map(str, arguments)])


def case(**changes: Any) -> CaseLint:
    made = CaseLint(problem="1_Twice", case="main", file="level1/1_Twice.py", sha256="")
    return msgspec.structs.replace(made, **changes)


def problems(folder: Path) -> list[Problem]:
    bench = Checkout(checkout(folder))
    return [bench.problem(1, 1), bench.problem(1, 12), bench.problem(2, 1)]


def lint(folder: Path, phase: Callable[[str], None], *, jobs: int) -> Lint:
    linting = Linting(problems(folder), "cpu", phase)
    linting.run(jobs)
    return linting.record()


def test_a_checkout_is_linted_several_problems_at_once_into_a_record(tmp_path: Path) -> None:
    bench, record = checkout(tmp_path), tmp_path / "lint.json"
    level = bench / "KernelBench" / "level1"
    (level / "2_Random.py").write_text(
        PROBLEM.format(summary="R", forward="x + torch.seed() / 2**64")
    )
    (level / "3_Zero.py").write_text(PROBLEM.format(summary="Z", forward="(x - 99).relu()"))
    (level / "4_Far.py").write_text(
        PROBLEM.format(summary="F", forward="(x * 1e5 + x.double().sin().to(x)) - x * 1e5")
    )
    result = invoke("--kernelbench", bench, "--level", "1-1", "--jobs", "2", "--json", record)
    assert result.exit_code == 1, result.output
    found = read_lint(record)
    assert [one.file for one in found.cases] == [
        "level1/1_Twice.py",
        "level1/2_Random.py",
        "level1/3_Zero.py",
        "level1/4_Far.py",
        "level1/12_Half_More.py",
    ]
    good, random, zero, far, also = found.cases
    assert good.findings == also.findings == ()
    assert {one.untried for one in found.cases} == {0}
    assert random.status is far.status is Status.INVALID_PROBLEM
    assert "different results on equal inputs" in random.reason
    assert "in float32 is off from itself in float64" in far.reason
    assert "all zeros" in zero.trivial
    assert "inputs[0]" in zero.idle
    assert len({one.sha256 for one in found.cases}) == 5
    assert found.device
    assert found.seconds > 0
    assert left_behind() == {}


def test_what_is_refused_beside_others_is_linted_again_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(_: object, __: object, ___: Path, problem: Problem) -> tuple[CaseLint, ...]:
        asked.append(problem.name)
        if asked.count(problem.name) > 1:
            return (case(problem=problem.name),)
        if problem.name == "1_Twice":
            return (case(status=Status.OUT_OF_MEMORY, reason="does not fit"),)
        note = "no memory for float64" if problem.name == "12_Half_More" else ""
        return (case(problem=problem.name, note=note),)

    monkeypatch.setattr("kernelgen.lint.linting.Linting._lint", answer)
    monkeypatch.setattr("kernelgen.lint.linting.ForkServer", mock.MagicMock())
    found = lint(tmp_path, lambda _: None, jobs=2)
    assert sorted(asked) == ["12_Half_More", "12_Half_More", "1_Negative", "1_Twice", "1_Twice"]
    assert sorted(asked[-2:]) == ["12_Half_More", "1_Twice"]
    assert [(one.problem, one.findings) for one in found.cases] == [
        ("1_Twice", ()),
        ("12_Half_More", ()),
        ("1_Negative", ()),
    ]
    asked.clear()
    alone = lint(tmp_path, lambda _: None, jobs=1)
    assert asked == ["1_Twice", "12_Half_More", "1_Negative"]
    assert alone.cases[0].status is Status.OUT_OF_MEMORY


def test_a_failure_ends_all_that_was_started(tmp_path: Path) -> None:
    def fail(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lint(tmp_path, fail, jobs=2)
    assert left_behind() == {}


def test_an_interrupted_run_records_what_it_found_and_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[str] = []

    def answer(self: Linting, _: object, __: Path, problem: Problem) -> tuple[CaseLint, ...]:
        match problem.name:
            case "1_Twice":
                return (case(problem=problem.name),)
            case "12_Half_More":  # perhaps for want of memory beside the others
                refused.append(problem.name)
                return (case(status=Status.OUT_OF_MEMORY, reason="does not fit"),)
            case _:
                while not (self._found and refused):
                    time.sleep(0.01)
                raise KeyboardInterrupt

    monkeypatch.setattr("kernelgen.lint.linting.Linting._lint", answer)
    monkeypatch.setattr("kernelgen.lint.linting.ForkServer", mock.MagicMock())
    record = tmp_path / "lint.json"
    result = invoke("--kernelbench", checkout(tmp_path), "--jobs", "2", "--json", record)
    assert result.exit_code == ExitCode.INTERRUPTED
    assert "1 cases, 0 findings, 2 problems left" in result.output
    linted = read_lint(record)
    assert ([one.problem for one in linted.cases], linted.left) == (["1_Twice"], 2)


def test_a_run_that_found_nothing_yet_leaves_an_earlier_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Linting, "run", mock.Mock(side_effect=KeyboardInterrupt))
    record = tmp_path / "lint.json"
    record.write_text("earlier")
    assert (
        invoke("--kernelbench", checkout(tmp_path), "--json", record).exit_code
        == ExitCode.INTERRUPTED
    )
    assert record.read_text() == "earlier"


def test_what_there_was_no_time_to_try_is_counted_and_no_finding(tmp_path: Path) -> None:
    file = tmp_path / "problem.py"
    text = PROBLEM.format(summary="Layers.", forward="x")
    start, stop = text.index("\nclass Model"), text.index("rows = ")
    file.write_text(text[:start] + MODEL_WITH_PARAMETERS + "\n\n" + text[stop:])
    record = tmp_path / "lint.json"
    result = invoke(file, "--time-limit", "0", "--json", record)
    assert (result.exit_code, read_lint(record).cases[0].untried) == (0, 7)
    assert "ok     problem: main (7 inputs and parameters not tried)" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--level", "1"], "--level goes with --kernelbench PATH"),
        (["--problems", "1"], "--problems goes with --kernelbench PATH"),
        (["--kernelbench", "BENCH", "--level", "3"], "no level 3; there are 1, 2"),
        (["--kernelbench", "BENCH", "--problems", "99"], "has none of the problems"),
        (["--kernelbench", "BENCH", "--json", "absent/lint.json"], "its folder does not exist"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    bench = str(checkout(tmp_path))
    result = invoke(*[bench if argument == "BENCH" else argument for argument in arguments])
    assert result.exit_code == 2
    assert words in result.output
    assert len(result.output.splitlines()) == 1


# The table


def recorded(folder: Path, *cases: CaseLint) -> Path:
    file = folder / "h200" / "kernelbench" / "lint.json"
    file.parent.mkdir(parents=True)
    made = Lint(schema=1, environment={}, device="NVIDIA H200", seconds=321.0, cases=cases)
    write(made, file)
    return folder


def test_the_table_has_what_cannot_be_graded_and_why(tmp_path: Path) -> None:
    folder = recorded(
        tmp_path,
        case(),
        case(file="level1/2_A.py", status=Status.INVALID_PROBLEM, reason="it is | random\nmore"),
        case(file="level1/3_B.py", trivial=("all zeros",), idle=("inputs[0]", "conv.bias")),
        case(file="level2/4_C.py", idle=("conv.bias",), untried=3),
        case(file="level2/5_D.py", note="outputs are compared with the float32 reference"),
    )
    assert lint_table(folder).splitlines() == [
        (
            "On NVIDIA H200, of 5 problems 3 can be graded, 1 let an answer without work or "
            "without an input pass, 1 are refused (321 s in all)."
        ),
        "",
        "| problem |  | why |",
        "| --- | --- | --- |",
        "| level1/2_A.py | refused | it is \\| random |",
        "| level1/3_B.py | a pass says little | all zeros passes; inputs[0] makes no difference |",
        "",
        (
            "A parameter makes no difference, so that a candidate may leave it out (2): "
            "level1/3_B.py, level2/4_C.py."
        ),
        "",
        "Compared with float32 results, for want of float64 ones (1): level2/5_D.py.",
        "",
        "Not every input and parameter was tried (1): level2/4_C.py.",
    ]


def test_another_record_is_refused_with_its_place(tmp_path: Path) -> None:
    file = recorded(tmp_path) / "h200" / "kernelbench" / "lint.json"
    file.write_text("{}")
    with pytest.raises(UserError, match="not a kernelgen lint"):
        lint_table(tmp_path)


def test_the_record_is_written_also_where_nobody_reads_the_table(tmp_path: Path) -> None:
    bench, record = checkout(tmp_path), tmp_path / "lint.json"
    with mock.patch("kernelgen.cli.lint._show", side_effect=BrokenPipeError):
        invoke("--kernelbench", bench, "--level", "1-1", "--json", record)
    assert len(read_lint(record).cases) == 2

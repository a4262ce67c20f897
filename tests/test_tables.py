"""The tables of times in documents."""

from pathlib import Path

import msgspec
import pytest
from tables import HEADLINES, headline, public_table, read_runs, results_table

from kernelgen.grading.timing.times import Limit, Speedup, Timing
from kernelgen.grading.verdict import (
    SCHEMA_VERSION,
    BuildRecord,
    CaseResult,
    Correctness,
    Owner,
    Run,
    Status,
    Verdict,
)
from kernelgen.problem.record import digest


def passed(problem: str, device: str = "NVIDIA H200") -> Verdict:
    case = CaseResult(
        name="main",
        agreed=True,
        calls=3,
        elements=8,
        wrong=0,
        max_abs_err=1e-6,
        ref_max_abs_err=2e-6,
        exact="float64",
    )
    return Verdict(
        problem=problem,
        solution=f"solutions/{problem}.py",
        solution_sha256="00",
        status=Status.PASSED,
        owner=Owner.CANDIDATE,
        reason="",
        device=device,
        correctness=Correctness(
            max_abs_err=1e-6, ref_max_abs_err=2e-6, expected_cases=("main",), cases=(case,)
        ),
        timing=Timing(
            candidate_ms=4.56,
            eager_ms=9.08,
            compile_ms=5.3,
            speedup={
                "eager": Speedup(median=1.991, ci95=(1.98, 2.0)),
                "compile": Speedup(median=1.162, ci95=(1.16, 1.17)),
            },
        ),
        build=BuildRecord(seconds=0.94, cached=False),
    )


def failed(problem: str, solution: str = "mine.py") -> Verdict:
    return Verdict(
        problem=problem,
        solution=solution,
        solution_sha256="00",
        status=Status.WRONG_VALUES,
        owner=Owner.CANDIDATE,
        reason="3 of 8 elements",
        device="NVIDIA H200",
    )


def run_of(*verdicts: Verdict) -> Run:
    return Run(schema=SCHEMA_VERSION, environment={}, verdicts=verdicts)


def here(verdict: Verdict, root: Path) -> Verdict:
    """Return a verdict on a file that is still what was graded."""
    file = root / verdict.solution
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(verdict.problem)
    return msgspec.structs.replace(verdict, solution_sha256=digest(verdict.problem))


def test_a_row_has_problem_times_limit_speedups_with_interval_and_build(tmp_path: Path) -> None:
    run = run_of(here(timed("groupnorm", "solutions/groupnorm.py", 4.0), tmp_path))
    run = msgspec.structs.replace(run, environment={"torch": "2.11.0"})
    measured_with, _, heading, rule, row = results_table((run,), tmp_path).splitlines()
    assert measured_with == "NVIDIA H200, torch 2.11.0:"
    assert row == (
        "| groupnorm | solutions/groupnorm.py | 4.00 | 50% | 9.08 | 5.30 "
        "| 1.99x [1.98, 2.00] faster | 1.16x [1.16, 1.17] faster | 0.9 |"
    )
    assert heading.count("|") == rule.count("|") == row.count("|")


def test_the_headline_has_the_families_on_every_gpu_and_nothing_else(tmp_path: Path) -> None:
    runs = (
        run_of(passed("softmax"), passed("another"), passed("groupnorm", device="NVIDIA B200")),
        run_of(here(timed("groupnorm", "solutions/groupnorm.py", 4.0), tmp_path)),
    )
    *console, _, heading, rule, row_b200, row_h200, softmax, _, note = headline(
        runs, tmp_path
    ).splitlines()
    assert console == [
        "```console",
        "$ kernelgen render groupnorm",
        "$ kernelgen grade solutions/groupnorm.py",
        "[1/1] groupnorm: ✓ PASSED: 4.56 ms, 1.99x [1.98, 2.00] eager, 1.16x [1.16, 1.17] compile",
        "```",
    ]
    rows = [row_b200, row_h200, softmax]
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| NVIDIA B200", "solutions/groupnorm.py †"],
        ["| NVIDIA H200", "solutions/groupnorm.py"],
        ["| NVIDIA H200", "solutions/softmax.py †"],
    ]
    assert rows[1] == (
        "| NVIDIA H200 | solutions/groupnorm.py | 4.00 | 1.99x [1.98, 2.00] faster "
        "| 1.16x [1.16, 1.17] faster | 50% |"
    )
    assert heading.count("|") == rule.count("|") == rows[1].count("|")
    assert note == "† The file has changed since it was recorded."


def test_every_headline_is_a_shipped_problem_that_was_recorded() -> None:
    root = Path(__file__).parent.parent
    table = headline(read_runs(root / "benchmarks", "*/*.json"), root)
    for name in HEADLINES:
        assert (root / "problems" / f"{name}.yaml").exists()
        assert f"| solutions/{name}.py" in table


@pytest.mark.parametrize("text", [None, "another"], ids=["gone", "changed"])
def test_a_solution_that_is_not_what_was_recorded_is_marked(
    tmp_path: Path, text: str | None
) -> None:
    run = run_of(here(passed("a"), tmp_path), here(passed("b"), tmp_path))
    file = tmp_path / "solutions/b.py"
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    *_, same, other, _, note = results_table((run,), tmp_path).splitlines()
    assert "| solutions/a.py |" in same
    assert "| solutions/b.py † |" in other
    assert note == "† The file has changed since it was recorded."


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("# template: a (sha256 1)\n\nx = 1\n", False),
        ("# template: a (sha256 2)\n# template: b\nx = 1\n", False),
        ("x = 1\n", False),
        ("# template: a (sha256 2)\nx = 2\n", True),
        ("# template: a (sha256 1)\n\nx = 1\n# later\n", True),
    ],
)
def test_comments_before_the_code_are_no_other_state(
    tmp_path: Path, text: str, *, marked: bool
) -> None:
    recorded = "# template: a (sha256 1)\n\nx = 1\n"
    verdict = msgspec.structs.replace(
        here(passed("a"), tmp_path), solution_sha256=digest(recorded), source=recorded
    )
    (tmp_path / "solutions/a.py").write_text(text)
    assert ("| solutions/a.py † |" in results_table((run_of(verdict),), tmp_path)) == marked


def test_a_failure_shows_its_status_and_no_time(tmp_path: Path) -> None:
    run = run_of(here(failed("groupnorm"), tmp_path))
    row = results_table((run,), tmp_path).splitlines()[-1]
    assert row == "| groupnorm | mine.py | WRONG_VALUES |  |  |  |  |  |  |"


def test_rows_are_in_order_whatever_the_order_of_the_records() -> None:
    one, two = run_of(passed("b"), passed("softmax")), run_of(passed("a"))
    rows = results_table((one, two), Path()).splitlines()[4:7]
    assert [row.split(" | ")[0] for row in rows] == ["| a", "| b", "| softmax"]
    assert results_table((one, two), Path()) == results_table((two, one), Path())
    one, two = run_of(passed("softmax")), run_of(passed("softmax", device="NVIDIA A100"))
    rows = headline((one, two), Path()).splitlines()[8:10]
    assert [row.split(" | ")[0] for row in rows] == ["| NVIDIA A100", "| NVIDIA H200"]
    assert headline((one, two), Path()) == headline((two, one), Path())


def test_a_cell_cannot_break_the_table() -> None:
    row = results_table((run_of(failed("p", "a|b\n<img>.py")),), Path()).splitlines()[4]
    assert "a\\|b" in row
    assert "\\<img>" in row


def timed(problem: str, solution: str, time_ms: float) -> Verdict:
    limit = Limit(
        limit_ms=2.0, fraction=2.0 / time_ms, bound="memory", source="counted", minimal_bytes=8
    )
    verdict = passed(problem)
    assert verdict.timing is not None
    timing = msgspec.structs.replace(verdict.timing, candidate_ms=time_ms, limit=limit)
    return msgspec.structs.replace(verdict, solution=solution, timing=timing)


def test_public_kernels_stand_beside_ours_the_fastest_first(tmp_path: Path) -> None:
    softmax = run_of(
        here(timed("softmax_8x8", "solutions/softmax.py", 2.5), tmp_path),
        here(timed("softmax_8x8", "benchmarks/public/other.py", 4.0), tmp_path),
        here(failed("softmax_8x8", "benchmarks/public/broken.py"), tmp_path),
    )
    environment = {"torch": "2.11.0", "imports": "other-kernels 0.2"}
    softmax = msgspec.structs.replace(softmax, environment=environment)
    norm = run_of(here(timed("norm_8x8", "solutions/norm.py", 9.0), tmp_path))
    norm = msgspec.structs.replace(norm, environment={"torch": "2.11.0"})
    table = public_table((softmax, norm), tmp_path).splitlines()
    assert table[0] == "NVIDIA H200, torch 2.11.0, other-kernels 0.2:"
    assert [line.split(" | ")[1] for line in table[4:]] == [
        "solutions/norm.py",
        "solutions/softmax.py",
        "benchmarks/public/other.py",
        "benchmarks/public/broken.py",
    ]
    assert table[2].startswith(
        "| problem | solution | time ms | of limit | eager ms | compile ms |"
    )
    assert table[6] == (
        "| softmax_8x8 | benchmarks/public/other.py | 4.00 | 50% | 9.08 | 5.30 "
        "| 1.99x [1.98, 2.00] faster | 1.16x [1.16, 1.17] faster |"
    )
    assert "| WRONG_VALUES |" in table[7]
    (tmp_path / "solutions/softmax.py").write_text("another")
    changed = public_table((softmax, norm), tmp_path).splitlines()
    assert "| solutions/softmax.py † |" in changed[5]
    assert changed[-1] == "† The file has changed since it was recorded."


def test_the_demo_grades_the_solutions_of_the_first_screen(repository: Path) -> None:
    script = (repository / "scripts" / "demo.sh").read_text()
    assert f"for name in {' '.join(HEADLINES)}; do" in script

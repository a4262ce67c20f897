"""The plans of a run: one a problem, of what was graded, whatever a problem does."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from calibrations import calibration
from report_runs import passed, run_of
from test_tracing import problem

from kernelgen.build.toolchain import cache_folder
from kernelgen.errors import KernelgenFault
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.plan_record import PlanRecord
from kernelgen.grading.verdict import Verdict
from kernelgen.hardware import identity
from kernelgen.hardware.calibration import keep
from kernelgen.problem.record import Problem
from kernelgen.report import planned
from kernelgen.report.planned import with_plans
from kernelgen.solution.file import RENDERED

NOBODY: Mapping[Path, Problem] = {}
CPU = GradeOptions(device="cpu")


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(identity, "first_gpu", lambda: "there is no GPU")


def plan_of(found: Problem, options: GradeOptions = CPU) -> PlanRecord:
    """Return the plan beside one verdict on a problem."""
    verdict = passed("a.py", problem=found.name)
    (plan,) = with_plans(run_of(verdict), options, {Path("a.py"): found}).plans
    assert (plan.problem, plan.device) == (found.name, verdict.device)
    return plan


def test_stages_are_recorded(tmp_path: Path) -> None:
    found = problem(
        tmp_path, "return torch.relu(self.lin(x).t() + 1)", layers="self.lin = nn.Linear(8, 16)"
    )
    plan = plan_of(found)
    product, turned, rest = plan.stages
    assert (product.kind, product.name, product.formula) == ("library", "linear", "")
    assert product.flops == 2 * 4 * 8 * 16
    assert (turned.kind, turned.moved_bytes) == ("view", 0)
    assert (rest.kind, rest.shape, rest.moved_bytes) == ("map", (16, 4), 2 * 4 * 64)
    assert rest.formula.startswith("relu(add(")
    assert plan.moved_bytes == product.moved_bytes + rest.moved_bytes
    assert (plan.expected_ms, plan.limit, plan.reason) == (None, None, "")


def test_times_are_those_of_the_gpu_that_graded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = calibration(copy_gbps=100.0)
    monkeypatch.setattr(identity, "first_gpu", lambda: here.device)
    keep(cache_folder(), here)
    found = problem(tmp_path, "return torch.relu(x)", x="torch.rand(1024, 1024)")
    options = GradeOptions(device="cuda")
    plan = plan_of(found, options)
    assert plan.limit is not None
    assert plan.expected_ms == plan.limit.limit_ms == pytest.approx(8 * 1024**2 / 100e6)
    assert plan.stages[0].bound == "memory"

    other = passed("a.py", problem=found.name, device="NVIDIA B200")
    (unknown,) = with_plans(run_of(other), options, {Path("a.py"): found}).plans
    assert unknown.stages
    assert unknown.limit is None


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        ("torch.rand(4)", "no kernels can be planned: forward depends on values"),
        ("1 / 0", "its code raises ZeroDivisionError"),
    ],
)
def test_a_problem_that_cannot_be_traced_says_why(tmp_path: Path, x: str, reason: str) -> None:
    plan = plan_of(problem(tmp_path, "return x * x.sum().item()", x=x))
    assert plan.stages == ()
    assert plan.reason.startswith(reason)


def test_sizes_are_those_of_the_device_that_the_file_is_for() -> None:
    kept = [
        passed(
            "softmax.py", problem="softmax", source=f"{RENDERED}\nx = '{source}'\n", device=source
        )
        for source in ("__global__", "cpu")
    ]
    on_gpu, on_cpu = with_plans(run_of(*kept), GradeOptions(), NOBODY).plans
    assert on_gpu.moved_bytes > on_cpu.moved_bytes


def counted(monkeypatch: pytest.MonkeyPatch, answers: list[BaseException | None]) -> list[str]:
    """Have problems planned without a trace, or fail as the answers say; return their names."""
    asked: list[str] = []

    def made(found: Problem, *_: object) -> PlanRecord:
        answer = answers[len(asked)] if len(asked) < len(answers) else None
        asked.append(found.name)
        if answer is not None:
            raise answer
        return PlanRecord(problem=found.name, device="NVIDIA H200")

    monkeypatch.setattr(planned, "plan_of", made)
    return asked


def of(*problems: str) -> tuple[Verdict, ...]:
    """Return verdicts on shipped problems."""
    return tuple(
        passed(f"{n}.py", problem=name, source=f"{RENDERED}\n# problem: {name}\n")
        for n, name in enumerate(problems)
    )


def test_a_problem_is_planned_once_for_all_its_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = counted(monkeypatch, [])
    nowhere = passed("a.py", problem="matmul", device="")
    run = run_of(*of("softmax", "softmax", "layernorm", "softmax"), nowhere)
    found = with_plans(run, CPU, NOBODY)
    assert asked == ["softmax", "layernorm"]
    assert [found.plan_for(verdict) is not None for verdict in run.verdicts] == [True] * 4 + [False]
    assert found.verdicts == run.verdicts


@pytest.mark.parametrize(
    "failure", [KernelgenFault("not contained"), RecursionError("deep"), AssertionError("odd")]
)
def test_what_fails_costs_one_plan(monkeypatch: pytest.MonkeyPatch, failure: BaseException) -> None:
    counted(monkeypatch, [failure])
    first, second = with_plans(run_of(*of("softmax", "layernorm")), CPU, NOBODY).plans
    assert str(failure) in first.reason
    assert second.reason == ""


def test_a_problem_that_is_gone_has_no_plan() -> None:
    (plan,) = with_plans(run_of(passed("nothing_of_this_name.py")), CPU, NOBODY).plans
    assert "nothing_of_this_name" in plan.reason


def test_an_interrupt_keeps_the_plans_that_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    counted(monkeypatch, [None, KeyboardInterrupt()])
    found = with_plans(run_of(*of("softmax", "layernorm", "matmul")), CPU, NOBODY)
    assert [plan.problem for plan in found.plans] == ["softmax"]
    assert len(found.verdicts) == 3


def test_the_formula_of_a_pool_has_what_follows_it(tmp_path: Path) -> None:
    found = problem(tmp_path, "return torch.relu(nn.functional.avg_pool1d(x.abs(), 2)) + 1")
    (pool,) = plan_of(found, CPU).stages
    assert (pool.kind, pool.formula) == ("pool", "add(relu(mean of 2(abs(x))), 1)")


def test_eval_mode_is_in_the_plan(tmp_path: Path) -> None:
    found = problem(tmp_path, "return self.drop(x) + 1", layers="self.drop = nn.Dropout(0.5)")
    kinds = [
        [stage.kind for stage in plan_of(found, options).stages]
        for options in (CPU, GradeOptions(device="cpu", eval_mode=True))
    ]
    assert "library" in kinds[0]
    assert kinds[1] == ["map"]

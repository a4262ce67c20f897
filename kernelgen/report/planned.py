"""The plans of a run's problems, made once all is judged, as records for its reports."""

import contextlib
import functools
from collections.abc import Mapping
from pathlib import Path

from msgspec import structs

from kernelgen.build.toolchain import cache_folder
from kernelgen.engines.known import engine_of
from kernelgen.engines.naming import without_overload
from kernelgen.engines.stage import Library, Stage
from kernelgen.errors import ProblemError, UserError
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.plan_record import PlannedStage, PlanRecord
from kernelgen.grading.timing.limit import limit_of, work_of
from kernelgen.grading.verdict import Run, Verdict
from kernelgen.hardware.calibration import Calibration, look_up
from kernelgen.hardware.identity import identity_here
from kernelgen.planning.cost import StageCost, StageTime, costs, stage_times
from kernelgen.planning.of_problem import plan_of_problem
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Device, Problem
from kernelgen.report.console import tracked
from kernelgen.solution.file import SolutionFile


def with_plans(run: Run, options: GradeOptions, problems: Mapping[Path, Problem]) -> Run:
    """Return a run with the plan of each rendered file that was graded on a device.

    What goes wrong costs a plan and no more: all is judged by now. So does ^C, which ends it.
    `problems` tells what a file was graded on where the options do not.
    """
    plans: dict[tuple[str, str], PlanRecord] = {}
    rates = functools.cache(rates_here)

    def planned(verdict: Verdict) -> PlanRecord:
        graded = SolutionFile(
            path=Path(verdict.solution), text=verdict.source, sha256=verdict.solution_sha256
        )
        device = graded.wants if options.device == "auto" else options.device
        try:
            known = problems.get(graded.path) or options.problem
            problem = options.applied_to(known or load_problem(graded.problem_name, graded.path))
            return plan_of(problem, device, rates(device, verdict.device), verdict.device)
        except ProblemError as error:
            reason = error.message
        except UserError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 (a plan is not worth a report)
            reason = f"{type(error).__name__}: {error}"
        return PlanRecord(problem=verdict.problem, device=verdict.device, reason=reason)

    with contextlib.suppress(KeyboardInterrupt):
        for verdict in tracked(run.verdicts, "plans"):
            key = (verdict.problem, verdict.device)
            if all(key) and key not in plans and verdict.rendered:
                plans[key] = planned(verdict)
    return structs.replace(run, plans=tuple(plans.values()))


def plan_of(
    problem: Problem, device: Device, calibration: Calibration | None, device_name: str = ""
) -> PlanRecord:
    """Return the plan of a problem's main case, at the sizes for a kind of device.

    Times are told by the calibration, of the device of that name; None leaves them out.

    Raises:
        ProblemError: there is none.
        KernelgenFault: the process that traces does not start, or cannot be contained.
    """
    plan = plan_of_problem(structs.replace(problem, cases=()), problem.all_cases()[0], device).plan
    cost = costs(plan)
    spans = stage_times(cost, calibration) if calibration else (None,) * len(plan.stages)
    made = PlanRecord(
        problem=problem.name,
        device=device_name,
        stages=tuple(map(_planned, plan.stages, cost.stages, spans)),
        minimal_bytes=cost.minimal_bytes,
        fixed_sizes=plan.fixed_sizes(),
        identities=plan.identities,
    )
    if calibration is None or made.expected_ms is None:
        return made
    limit = limit_of(made.expected_ms, work_of(cost, problem, device), calibration)
    return structs.replace(made, limit=limit)


def rates_here(device: Device, name: str | None = None) -> Calibration | None:
    """Return the rates of this machine's device if they are known, and it has that name."""
    identity = identity_here(device)
    if isinstance(identity, str) or name not in (None, identity.name):
        return None
    return look_up(cache_folder(), identity).calibration


def _planned(stage: Stage, cost: StageCost, span: StageTime | None) -> PlannedStage:
    bound = span.bound if span is not None else ""
    if isinstance(stage, Library):
        kind, name, formula = "view" if stage.view else "library", without_overload(stage.aten), ""
        shape = stage.types[0].shape if stage.types and stage.types[0] else ()
    else:
        kind, name = str(stage.__struct_config__.tag), stage.name
        formula = engine_of(stage).words(stage)
        shape = stage.result.type.shape
    return PlannedStage(
        kind=kind,
        name=name,
        shape=shape,
        formula=formula,
        moved_bytes=cost.moved_bytes,
        flops=cost.work.flops,
        bound=bound,
        expected_ms=span.expected_ms if span is not None and bound else None,
    )

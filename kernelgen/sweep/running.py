"""The points of a plan on their way to times: graded one after another, in one lane."""

import contextlib
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from kernelgen.grading.launch import scratch_folder
from kernelgen.grading.options import GradeOptions, Observer, compiles_baselines
from kernelgen.grading.queue.identity import versions
from kernelgen.grading.queue.job import Job
from kernelgen.grading.supervisor.lane import Lane, open_oracles
from kernelgen.grading.verdict import Verdict
from kernelgen.report.outcome import stopped_code
from kernelgen.sandbox.survey import require_namespaces
from kernelgen.sweep.plan import Plan, name_of
from kernelgen.sweep.record import SCHEMA_VERSION, Sweep, graded_point


def sweep(plan: Plan, options: GradeOptions, observer: Observer) -> tuple[Sweep, int | None]:
    """Grade and time the solution of every point, each on its own problem.

    The candidate, the oracle and the device are new for each; what starts them, and what they
    import, is shared.

    Returns:
        What was found; and after ^C or SIGTERM, which end all that was started, the program's exit
        code: 130 or 143.

    Raises:
        KernelgenFault: the grader's own processes cannot be started.
        ContainmentError: `options.sandbox` is `require`, and this machine has not all of it.
    """
    if options.sandbox == "require":
        require_namespaces()
    observer.begin([name_of(point.labels) for point in plan.points])
    verdicts: list[Verdict] = []
    environment: dict[str, Any] = versions()
    stopped: int | None = None
    try:
        with (
            scratch_folder() as scratch,
            contextlib.closing(
                open_oracles(scratch, compiles=compiles_baselines(options))
            ) as oracles,
            Lane(scratch, oracles) as lane,
        ):
            for index, point in enumerate(plan.points):
                own = msgspec.structs.replace(options, problem=point.problem)
                # Labels may hold what no file name can, and their sizes tell.
                sizes = "_".join(str(point.labels[label]) for label in (plan.series, plan.x))
                path = Path(f"{plan.problem.name}_{sizes}.py")
                job = Job(path=path, data=point.source.encode(), options=own)
                verdict = lane.grade_one(job, index, partial(observer.phase, index))
                environment |= lane.environment
                verdicts.append(verdict)
                observer.finished(index, verdict)
    except (KeyboardInterrupt, SystemExit) as stop:
        # What was found by then is not lost, also not to a deadline that ends us by SIGTERM.
        stopped = stopped_code(stop)
    devices = [verdict.device for verdict in verdicts if verdict.device]
    methods = [verdict.timing.method for verdict in verdicts if verdict.timing]
    found = Sweep(
        schema=SCHEMA_VERSION,
        environment=environment,
        problem=plan.problem.name,
        problem_sha256=plan.problem.sha256,
        backend=plan.backend,
        series=plan.series,
        x=plan.x,
        planned=plan.of_file,
        points=tuple(
            graded_point(point.labels, point.constants, verdict)
            for point, verdict in zip(plan.points, verdicts, strict=False)
        ),
        device=devices[0] if devices else "",
        method=next((method for method in methods if method), ""),
    )
    return found, stopped

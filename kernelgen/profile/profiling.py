"""`kernelgen profile`: from a solution to what ncu counted in one of its calls."""

import contextlib
import difflib
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

import kernelgen
from kernelgen.build.toolchain import find_compiler, find_toolkit
from kernelgen.child_python import python_command
from kernelgen.errors import ToolchainError, UserError
from kernelgen.grading.judged import Judged
from kernelgen.grading.launch import scratch_folder
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.supervisor.containment import plan_for
from kernelgen.grading.supervisor.explain import (
    explain_exit,
    explain_failure,
    judge_over_limit,
    last_place,
    own_words,
)
from kernelgen.grading.timing.device_conditions import DeviceConditions
from kernelgen.grading.tools.one_call import write_request
from kernelgen.grading.tools.workplace import Workplace, run_inside
from kernelgen.grading.verdict import Status
from kernelgen.grading.wire.messages import CandidateFailed
from kernelgen.hardware.device import VISIBLE_GPUS, survey_gpus, visible_gpus
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Case, Device, Problem
from kernelgen.profile.metrics import names_for
from kernelgen.profile.ncu import Collected, collect, find_ncu
from kernelgen.profile.ncu_output import merge
from kernelgen.profile.profile_host import FACTS, FAILED
from kernelgen.profile.record import SCHEMA_VERSION, Facts, Profile, ProfileOptions
from kernelgen.sandbox.contained import Ended
from kernelgen.sandbox.record import NOT_CONTAINED, refuse_uncontained
from kernelgen.sandbox.survey import require_namespaces
from kernelgen.solution.contract import check_contract
from kernelgen.solution.file import SolutionFile, read_solution

_DEVICE: Device = "cuda"
_LOOK_EVERY_S = 0.1
_METHOD = (
    "ncu {version}: each kernel of the second call run again for every group of counters, caches "
    "emptied before each, clocks left as they are; times are not to be quoted, `kernelgen grade` "
    "takes those"
)
_DURING = {
    "import": "while being imported",
    "construct": "while ModelNew was constructed",
    "call": "while forward was called",
}


def profile(path: Path, options: ProfileOptions, phase: Callable[[str], None]) -> Profile:
    """Profile one call of a solution's forward.

    Raises:
        UserError: the file, the problem or the case cannot be used.
        ToolchainError: ncu, a GPU, a compiler or the right to read counters is missing.
        ContainmentError: `options.sandbox` is `require`, and this machine has not all of it.
        Judged: the solution or the problem fails without ncu already; the status says how.
        KernelgenFault: the machine or kernelgen failed.
    """
    solution = read_solution(path)
    problem = options.problem or _find_problem(solution)
    case = _find_case(problem, options.case)
    _check_contract(solution, problem, options)
    ncu = find_ncu()
    survey = survey_gpus()
    if not survey.devices:
        raise ToolchainError(f"no GPU to profile on: {survey.reason}; run it where there is one")
    gpu = survey.devices[0]
    if "load_inline" in solution.text:
        find_compiler()
        if "cuda_sources" in solution.text:
            find_toolkit()
    with scratch_folder() as scratch:
        inside = _workplace(solution, problem, options, scratch)
        write_request(solution, problem, case, _DEVICE, inside.folder)
        phase("building and calling it, without ncu")
        facts = _rehearse(solution, inside)
        phase("profiling under ncu")
        with watched(gpu.uuid) as conditions:
            collected = collect(
                ncu,
                names_for(gpu.compute_capability),
                options.most_launches,
                inside,
                lambda count: phase(f"again, without {count} metrics that this ncu does not know"),
            )
    kernels = merge(collected.launches)
    known = [moved for kernel in kernels if (moved := kernel.counters.dram_bytes) is not None]
    return Profile(
        schema=SCHEMA_VERSION,
        kernelgen=kernelgen.__version__,
        solution=str(solution.path),
        solution_sha256=solution.sha256,
        problem=problem.name,
        case=case.name,
        ncu=ncu.version,
        method=_METHOD.format(version=ncu.version),
        facts=facts,
        kernels=kernels,
        time_us=sum(kernel.counters.time_us for kernel in kernels),
        dram_bytes=sum(known) if len(known) == len(kernels) else None,
        copy_gbps=options.copy_gbps,
        conditions=conditions.seen(repeated_blocks=0),
        unavailable=collected.unavailable,
        warnings=_warnings(collected, options, inside),
    )


def _find_problem(solution: SolutionFile) -> Problem:
    try:
        return load_problem(solution.problem_name)
    except UserError as error:
        if solution.declared_problem is not None:
            raise
        raise UserError(
            f"{solution.path}: which problem it solves is unknown: {error}; name it with --problem"
        ) from error


def _find_case(problem: Problem, name: str | None) -> Case:
    cases = {case.name: case for case in problem.all_cases()}
    if name is None:
        return problem.all_cases()[0]
    if name in cases:
        return cases[name]
    close = difflib.get_close_matches(name, cases, n=1)
    mend = f"did you mean {close[0]}? " if close else ""
    words = f"{problem.name} has no such case; {mend}It has: {', '.join(cases)}"
    raise UserError(f"--case {name}: {words}")


def _check_contract(solution: SolutionFile, problem: Problem, options: ProfileOptions) -> None:
    findings = check_contract(solution, problem, allow_imports=options.allow_imports)
    # Whatever runs may be profiled: also what has no kernel of its own.
    broken = [f for f in findings if f.severity == "error" and f.status == "BROKEN_CONTRACT"]
    if broken:
        lines = [
            f"{solution.path}{'' if found.line is None else f':{found.line}'}: {found.message}"
            for found in broken
        ]
        raise Judged(Status.BROKEN_CONTRACT, "\n".join(lines))


def _workplace(
    solution: SolutionFile, problem: Problem, options: ProfileOptions, scratch: Path
) -> Workplace:
    if options.sandbox == "require":
        require_namespaces()
    folder, own = scratch / "profile", scratch / "own"
    for place in (folder, own):
        place.mkdir()
    asked = GradeOptions(sandbox=options.sandbox, allow_imports=options.allow_imports)
    return Workplace(
        plan=plan_for(asked, solution, problem, own),
        folder=folder,
        environment={VISIBLE_GPUS: visible_gpus(1)[0]},
        deadline_s=options.timeout_s,
    )


def _rehearse(solution: SolutionFile, inside: Workplace) -> Facts:
    """Build a solution and call it without ncu: what fails here is its own doing, not the tool's.

    What it builds stays in the folder for the run under ncu.

    Raises:
        Judged: the solution or its problem fails.
        KernelgenFault: it could not be contained.
    """
    folder = str(inside.folder.resolve())
    command = python_command("kernelgen.profile.profile_host", "rehearse", folder)
    ended = run_inside(command, inside)
    failed = inside.folder / FAILED
    if failed.exists():
        said = msgspec.json.decode(failed.read_bytes(), type=CandidateFailed)
        raise _judged(said, solution, ended)
    facts = inside.folder / FACTS
    if ended.code == 0 and facts.exists():
        return msgspec.json.decode(facts.read_bytes(), type=Facts)
    if ended.over:
        raise judge_over_limit(ended.over, "while it was built and called")
    if ended.code is None:
        reason = (
            f"building and calling it took longer than {inside.deadline_s:g} s, and it was ended"
            f"{last_place(ended.log, solution)}; --timeout gives it more"
        )
        raise Judged(Status.TIMEOUT, reason)
    if ended.code in (NOT_CONTAINED, -signal.SIGKILL):
        # The solution may have ended itself so, whatever it printed: what is contained without it
        # tells whether this machine contains anything.
        refuse_uncontained(run_inside(["true"], inside).log)
    reason = explain_exit(ended.code) + last_place(ended.log, solution)
    printed = own_words(ended.log)
    raise Judged(Status.CRASHED, f"its process ended: {reason}\n{printed}".rstrip())


def _judged(failed: CandidateFailed, solution: SolutionFile, ended: Ended) -> Judged:
    if failed.phase == "reference":
        reason = f"the problem's reference fails: {failed.type_name}: {failed.message}"
        return Judged(Status.INVALID_PROBLEM, reason)
    status, reason = explain_failure(failed, solution, _DURING[failed.phase], ended.log)
    if solution.wants == "cpu":
        reason += "\nits source is written for the CPU, and profiling runs it on a GPU"
    return Judged(status, reason)


@contextlib.contextmanager
def watched(uuid: str) -> Iterator[DeviceConditions]:
    """Look at a GPU's clocks and power in a thread; "" looks at none. All was seen at the end."""
    ended = threading.Event()
    with DeviceConditions(uuid) as conditions:

        def look() -> None:
            conditions.look()
            while not ended.wait(_LOOK_EVERY_S):
                conditions.look()

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield conditions
        finally:
            ended.set()
            thread.join()


def _warnings(collected: Collected, options: ProfileOptions, inside: Workplace) -> tuple[str, ...]:
    found = [f"ncu: {complaint}" for complaint in collected.complaints]
    if len(collected.launches) >= options.most_launches:
        found.append(
            f"only the first {options.most_launches} launches of the call were profiled; "
            "--launches takes more"
        )
    if options.sandbox != "off" and inside.plan.level == "none":
        found.append(f"the solution was not contained: {'; '.join(inside.plan.missing)}")
    return tuple(found)

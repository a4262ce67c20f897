"""`kernelgen profile`: from a solution to what ncu counted in one of its calls."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from kernelgen.errors import ToolchainError, UserError
from kernelgen.grading.supervisor import explain
from kernelgen.grading.supervisor.containment import plan_for
from kernelgen.grading.supervisor.session import require_tools
from kernelgen.grading.tools.one_call import write_request
from kernelgen.grading.tools.workplace import Workplace, run_inside
from kernelgen.grading.verdict import Judged, Status
from kernelgen.grading.wire.messages import CandidateFailed
from kernelgen.hardware.device import VISIBLE_GPUS, survey_gpus, visible_gpus
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Case, Device, Problem
from kernelgen.profile.ncu import collect, dram_bytes_in, find_ncu, host_command, launches_in
from kernelgen.profile.profile_host import FACTS, FAILED
from kernelgen.profile.record import Facts, Profile, ProfileOptions
from kernelgen.sandbox.contained import Ended
from kernelgen.sandbox.survey import require_namespaces
from kernelgen.scratch import temporary_folder
from kernelgen.solution.contract import check_contract
from kernelgen.solution.file import SolutionFile, read_solution

_DEVICE: Device = "cuda"
_DURING = {
    "import": "while being imported",
    "construct": "while ModelNew was constructed",
    "call": "while forward was called",
}


def profile(path: Path, options: ProfileOptions, phase: Callable[[str], None]) -> Profile:
    """Profile one call of a solution's forward.

    Raises:
        UserError: the file, the problem or the case cannot be used.
        ToolchainError: ncu, a GPU or the right to read counters is missing.
        ContainmentError: `options.sandbox` is `require`, and this machine has not all of it.
        Judged: the solution or the problem fails without ncu already, or a compiler is missing; the
            status says how.
        KernelgenFault: the machine or kernelgen failed.
    """
    solution = read_solution(path)
    problem = options.problem or load_problem(solution.problem_name, solution.path)
    case = _find_case(problem, options.case)
    _check_contract(solution, problem, options)
    ncu = find_ncu()
    survey = survey_gpus()
    if not survey.devices:
        raise ToolchainError(f"no GPU to profile on: {survey.reason}; run it where there is one")
    require_tools(solution)
    with temporary_folder() as scratch:
        inside = _workplace(solution, problem, options, scratch)
        reference = problem.reference_source(case, _DEVICE)
        write_request(solution, problem, reference, _DEVICE, inside.folder)
        phase("building and calling it, without ncu")
        facts = _rehearse(solution, inside)
        phase("profiling under ncu")
        log = collect(ncu, options.most_launches, inside)
    warnings = tuple(_warnings(launches_in(log), options, inside))
    return Profile(facts=facts, log=log, dram_bytes=dram_bytes_in(log), warnings=warnings)


def _find_case(problem: Problem, name: str | None) -> Case:
    cases = {case.name: case for case in problem.all_cases()}
    found = problem.all_cases()[0] if name is None else cases.get(name)
    if found is None:
        raise UserError(f"--case {name}: {problem.name} has no such case, but {', '.join(cases)}")
    return found


def _check_contract(solution: SolutionFile, problem: Problem, options: ProfileOptions) -> None:
    findings = check_contract(solution, problem, allow_imports=options.allow_imports)
    # Whatever runs may be profiled: also what has no kernel of its own.
    broken = [f for f in findings if f.severity == "error" and f.status == "BROKEN_CONTRACT"]
    if broken:
        lines = "\n".join(found.at(solution.path) for found in broken)
        raise Judged(Status.BROKEN_CONTRACT, lines)


def _workplace(
    solution: SolutionFile, problem: Problem, options: ProfileOptions, scratch: Path
) -> Workplace:
    if options.sandbox == "require":
        require_namespaces()
    folder, own = scratch / "profile", scratch / "own"
    for place in (folder, own):
        place.mkdir()
    return Workplace(
        plan=plan_for(options, solution, problem, own),
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
    ended = run_inside(host_command(inside), inside)
    failed = inside.folder / FAILED
    if failed.exists():
        said = msgspec.json.decode(failed.read_bytes(), type=CandidateFailed)
        raise _judged(said, solution, ended)
    facts = inside.folder / FACTS
    if ended.code == 0 and facts.exists():
        return msgspec.json.decode(facts.read_bytes(), type=Facts)
    if ended.over:
        raise explain.judge_over_limit(ended.over, "while it was built and called")
    if ended.code is None:
        reason = (
            f"building and calling it took longer than {inside.deadline_s:g} s, and it was ended"
            f"{explain.last_place(ended.log, solution)}; --timeout gives it more"
        )
        raise Judged(Status.TIMEOUT, reason)
    reason = explain.explain_exit(ended.code) + explain.last_place(ended.log, solution)
    printed = explain.own_words(ended.log)
    raise Judged(Status.CRASHED, f"its process ended: {reason}\n{printed}".rstrip())


def _judged(failed: CandidateFailed, solution: SolutionFile, ended: Ended) -> Judged:
    if failed.phase == "reference":
        reason = f"the problem's reference fails: {failed.type_name}: {failed.message}"
        return Judged(Status.INVALID_PROBLEM, reason)
    status, reason = explain.explain_failure(failed, solution, _DURING[failed.phase], ended.log)
    if solution.wants == "cpu":
        reason += "\nits source is written for the CPU, and profiling runs it on a GPU"
    return Judged(status, reason)


def _warnings(launches: int, options: ProfileOptions, inside: Workplace) -> Iterator[str]:
    if launches >= options.most_launches:
        yield (
            f"only the first {options.most_launches} launches of the call were profiled; "
            "--launches takes more"
        )
    if options.sandbox != "off" and inside.plan.level == "none":
        yield f"the solution was not contained: {'; '.join(inside.plan.missing)}"

"""Linting problems: the oracle alone, case by case, without any candidate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from kernelgen.grading.judged import Judged
from kernelgen.grading.launch import scratch_folder, worker_environment
from kernelgen.grading.supervisor.oracle_client import OracleClient, oracle_setup
from kernelgen.grading.supervisor.workers import ForkServer
from kernelgen.grading.wire import messages as m
from kernelgen.problem.record import Device, Problem


class CaseLint(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one case of a problem.

    Attributes:
        problem, case: names.
        refused: nothing can be graded on it; the findings say why.
        findings: one sentence each; none if nothing was found.
    """

    problem: str
    case: str
    refused: bool
    findings: tuple[str, ...]


def lint(
    problems: Sequence[Problem], device: Device, phase: Callable[[str], None]
) -> tuple[CaseLint, ...]:
    """Lint every case of every problem on a device.

    Raises:
        KernelgenFault: the grader's own processes cannot be started.
    """
    found: list[CaseLint] = []
    with scratch_folder() as scratch, ForkServer(worker_environment(), scratch) as server:
        for number, problem in enumerate(problems):
            folder = scratch / str(number)
            folder.mkdir()
            oracle = OracleClient(server, folder, {})
            try:
                oracle.ask(oracle_setup(problem, device, None))
                for position, case in enumerate(problem.all_cases()):
                    phase(f"{problem.name}: {case.name}")
                    found.append(_lint_case(oracle, problem, case.name, position))
            except Judged as judged:
                found.append(_refusal(problem, "", judged))
            finally:
                oracle.end()
    return tuple(found)


def _lint_case(oracle: OracleClient, problem: Problem, name: str, position: int) -> CaseLint:
    try:
        linted = oracle.ask(m.LintCase(case=position))
    except Judged as judged:
        return _refusal(problem, name, judged)
    return CaseLint(problem=problem.name, case=name, refused=False, findings=linted.findings)


def _refusal(problem: Problem, case: str, judged: Judged) -> CaseLint:
    findings = (f"{judged.status.value}: {judged.reason}",)
    return CaseLint(problem=problem.name, case=case, refused=True, findings=findings)

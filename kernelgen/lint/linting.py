"""Linting problems: the oracle alone, case by case, without any candidate.

Several problems may be linted at once. That one is refused may be the others' doing, who have taken
the memory that a library needs: it is linted again by itself, and that counts.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kernelgen.grading.identity import versions
from kernelgen.grading.judged import Judged
from kernelgen.grading.launch import scratch_folder, worker_environment
from kernelgen.grading.supervisor.oracle_client import OracleClient, oracle_setup
from kernelgen.grading.supervisor.workers import ForkServer
from kernelgen.grading.wire import messages as m
from kernelgen.lint.record import SCHEMA_VERSION, CaseLint, Lint
from kernelgen.problem.record import Device, Problem


def lint(
    problems: Sequence[Problem],
    device: Device,
    phase: Callable[[str], None],
    *,
    jobs: int = 1,
    limit_s: float | None = None,
) -> Lint:
    """Lint every case of every problem on a device.

    Args:
        problems: any.
        device: where their references run.
        phase: told what is going on, by any thread.
        jobs: how many problems at once.
        limit_s: try the inputs and parameters of a case for no longer; None tries all.

    Raises:
        KernelgenFault: the grader's own processes cannot be started.
    """
    begin = time.monotonic()
    crew = _Linters(problems, device, phase, limit_s)
    crew.work(range(len(problems)), jobs)
    if jobs > 1:
        crew.work([n for n, cases in crew.found.items() if any(map(_is_doubtful, cases))], 1)
    return Lint(
        schema=SCHEMA_VERSION,
        environment=versions() | crew.environment,
        device=crew.device_name,
        seconds=round(time.monotonic() - begin, 1),
        cases=tuple(case for number in sorted(crew.found) for case in crew.found[number]),
    )


def _is_doubtful(case: CaseLint) -> bool:
    return case.refused or bool(case.note)


class _Linters:
    """Threads that take problems from one queue, each with a fork server of its own.

    Attributes:
        found: position of a problem -> its cases.
        environment, device_name: of the device, once it was used.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        device: Device,
        phase: Callable[[str], None],
        limit_s: float | None,
    ) -> None:
        self._problems, self._device = problems, device
        self._phase, self._limit_s = phase, limit_s
        self._waiting: deque[int] = deque()
        self._servers: list[ForkServer] = []
        self.found: dict[int, tuple[CaseLint, ...]] = {}
        self.environment: dict[str, Any] = {}
        self.device_name = ""

    def work(self, positions: Sequence[int], jobs: int) -> None:
        """Lint the problems at these positions."""
        self._waiting.extend(positions)
        with ThreadPoolExecutor(jobs) as threads:
            try:
                for done in [threads.submit(self._take_turns) for _ in range(jobs)]:
                    done.result()
            except BaseException:
                self._waiting.clear()
                for server in list(self._servers):
                    server.stop()
                raise

    def _take_turns(self) -> None:
        if not self._waiting:
            return
        with scratch_folder() as scratch, ForkServer(worker_environment(), scratch) as server:
            self._servers.append(server)
            while True:
                try:
                    position = self._waiting.popleft()
                except IndexError:  # another one took the last
                    return
                folder = scratch / str(position)
                folder.mkdir()
                self.found[position] = self._lint(server, folder, self._problems[position])

    def _lint(self, server: ForkServer, folder: Path, problem: Problem) -> tuple[CaseLint, ...]:
        found: list[CaseLint] = []
        begin, oracle = time.monotonic(), OracleClient(server, folder, {})
        try:
            ready = oracle.ask(oracle_setup(problem, self._device, None))
            self.environment, self.device_name = ready.environment, ready.device_name
            for position, case in enumerate(problem.all_cases()):
                self._phase(f"{problem.name}: {case.name}")
                begin = time.monotonic()
                found.append(self._lint_case(oracle, problem, case.name, position))
        except Judged as judged:
            found.append(_case(problem, "", begin, status=judged.status, reason=judged.reason))
        finally:
            oracle.end()
        return tuple(found)

    def _lint_case(
        self, oracle: OracleClient, problem: Problem, name: str, position: int
    ) -> CaseLint:
        begin = time.monotonic()
        try:
            linted = oracle.ask(m.LintCase(case=position, limit_s=self._limit_s))
        except Judged as judged:
            return _case(problem, name, begin, status=judged.status, reason=judged.reason)
        return _case(
            problem,
            name,
            begin,
            trivial=linted.trivial,
            idle=linted.idle,
            untried=linted.untried,
            note=linted.note,
        )


def _case(problem: Problem, name: str, begin: float, **found: Any) -> CaseLint:
    return CaseLint(
        problem=problem.name,
        case=name,
        file=f"{problem.path.resolve().parent.name}/{problem.path.name}",
        sha256=problem.sha256,
        seconds=round(time.monotonic() - begin, 2),
        **found,
    )

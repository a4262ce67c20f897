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

import msgspec

from kernelgen.grading.judged import Judged
from kernelgen.grading.launch import scratch_folder, worker_environment
from kernelgen.grading.queue.identity import versions
from kernelgen.grading.supervisor.oracle_client import OracleClient, oracle_setup
from kernelgen.grading.supervisor.workers import ForkServer
from kernelgen.grading.wire import messages as m
from kernelgen.lint.record import SCHEMA_VERSION, CaseLint, Lint
from kernelgen.problem.record import Device, Problem


class Linting:
    """Problems that threads take from one queue, each with a fork server of its own."""

    def __init__(
        self,
        problems: Sequence[Problem],
        device: Device,
        phase: Callable[[str], None],
        limit_s: float | None = None,
    ) -> None:
        """Take problems; nothing runs yet.

        Args:
            problems: any.
            device: where their references run.
            phase: told what is going on, by any thread.
            limit_s: try the inputs and parameters of a case for no longer; None tries all.
        """
        self._problems, self._device = problems, device
        self._phase, self._limit_s = phase, limit_s
        self._waiting: deque[int] = deque()
        self._servers: list[ForkServer] = []
        self._found: dict[int, tuple[CaseLint, ...]] = {}  # by the problem's position
        self._doubtful: list[int] = []
        self._stopped = False
        self._environment: dict[str, Any] = {}
        self._device_name = ""
        self._begin = time.monotonic()

    def run(self, jobs: int = 1) -> None:
        """Lint every case of every problem, so many problems at once.

        Raises:
            KernelgenFault: the grader's own processes cannot be started.
        """
        self._work(range(len(self._problems)), jobs)
        self._work(self._doubtful, 1)

    def record(self) -> Lint:
        """Return what was found so far, also after an interruption."""
        found = [self._found.get(number) for number in range(len(self._problems))]
        return Lint(
            schema=SCHEMA_VERSION,
            environment=versions() | self._environment,
            device=self._device_name,
            seconds=round(time.monotonic() - self._begin, 1),
            cases=tuple(case for cases in found for case in cases or ()),
            left=found.count(None),
        )

    def _work(self, positions: Sequence[int], jobs: int) -> None:
        self._waiting.extend(positions)
        with ThreadPoolExecutor(jobs) as threads:
            try:
                for done in [threads.submit(self._take_turns, jobs == 1) for _ in range(jobs)]:
                    done.result()
            except BaseException:
                self._stopped = True
                self._waiting.clear()
                for server in list(self._servers):
                    server.stop()
                raise

    def _take_turns(self, alone: bool) -> None:  # noqa: FBT001 - a thread's argument
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
                cases = self._lint(server, folder, self._problems[position])
                if self._stopped:  # and so, perhaps, the oracle: that says nothing of the problem
                    return
                if not alone and any(case.refused or case.note for case in cases):
                    self._doubtful.append(position)
                else:
                    self._found[position] = cases

    def _lint(self, server: ForkServer, folder: Path, problem: Problem) -> tuple[CaseLint, ...]:
        found: list[CaseLint] = []
        begin, oracle = time.monotonic(), OracleClient(server, folder, {})
        try:
            ready = oracle.ask(oracle_setup(problem, self._device, None))
            self._environment, self._device_name = ready.environment, ready.device_name
            for position, case in enumerate(problem.all_cases()):
                self._phase(f"{problem.name}: {case.name}")
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
        return _case(problem, name, begin, **msgspec.structs.asdict(linted))


def _case(problem: Problem, name: str, begin: float, **found: Any) -> CaseLint:
    return CaseLint(
        problem=problem.name,
        case=name,
        file=f"{problem.path.resolve().parent.name}/{problem.path.name}",
        sha256=problem.sha256,
        seconds=round(time.monotonic() - begin, 2),
        **found,
    )

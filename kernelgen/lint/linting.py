"""Linting problems: the oracle alone, case by case, without any candidate.

Several problems may be linted at once. That one is refused may be the others' doing, who have taken
the memory that a library needs: it is linted again by itself, and that counts.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import msgspec

from kernelgen.grading.queue.job import versions
from kernelgen.grading.supervisor.oracle_client import OracleClient, oracle_setup
from kernelgen.grading.supervisor.workers import ForkServer
from kernelgen.grading.verdict import Judged
from kernelgen.grading.wire import messages as m
from kernelgen.lint.record import SCHEMA_VERSION, CaseLint, Lint
from kernelgen.problem.record import Device, Problem
from kernelgen.scratch import temporary_folder


class Linting:
    """Problems and what was found about them."""

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
        self._found: dict[int, tuple[CaseLint, ...]] = {}  # by the problem's position
        self._environment: dict[str, Any] = {}
        self._device_name = ""
        self._begin = time.monotonic()

    def run(self, jobs: int = 1) -> None:
        """Lint every case of every problem, so many problems at once.

        Raises:
            KernelgenFault: the grader's own processes cannot be started.
        """
        everything = range(len(self._problems))
        with temporary_folder() as scratch, ForkServer(scratch) as server:
            self._work(server, scratch, everything, jobs)
            self._work(server, scratch, [n for n in everything if n not in self._found], 1)

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

    def _work(self, server: ForkServer, scratch: Path, positions: Sequence[int], jobs: int) -> None:
        with ThreadPoolExecutor(jobs) as threads:
            waiting = {
                threads.submit(self._lint, server, scratch, self._problems[position]): position
                for position in positions
            }
            try:
                for done in as_completed(waiting):
                    cases = done.result()
                    if jobs == 1 or not any(case.refused or case.note for case in cases):
                        self._found[waiting[done]] = cases
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                server.stop()
                raise

    def _lint(self, server: ForkServer, scratch: Path, problem: Problem) -> tuple[CaseLint, ...]:
        folder = Path(tempfile.mkdtemp(dir=scratch)) / "oracle"
        folder.mkdir()
        found: list[CaseLint] = []
        oracle = OracleClient(server, folder, {})
        try:
            ready = oracle.ask(oracle_setup(problem, self._device, None))
            self._environment, self._device_name = ready.environment, ready.device_name
            for position, case in enumerate(problem.all_cases()):
                self._phase(f"{problem.name}: {case.name}")
                found.append(self._lint_case(oracle, problem, case.name, position))
        except Judged as judged:
            found.append(_case(problem, "", status=judged.status, reason=judged.reason))
        finally:
            oracle.end()
        return tuple(found)

    def _lint_case(
        self, oracle: OracleClient, problem: Problem, name: str, position: int
    ) -> CaseLint:
        try:
            linted = oracle.ask(m.LintCase(case=position, limit_s=self._limit_s))
        except Judged as judged:
            return _case(problem, name, status=judged.status, reason=judged.reason)
        return _case(problem, name, **msgspec.structs.asdict(linted))


def _case(problem: Problem, name: str, **found: Any) -> CaseLint:
    return CaseLint(
        problem=problem.name,
        case=name,
        file=f"{problem.path.resolve().parent.name}/{problem.path.name}",
        sha256=problem.sha256,
        **found,
    )

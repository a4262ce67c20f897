"""The supervisor's side of an oracle, and what each silence of it means."""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from kernelgen.grading.launch import trusted_environment
from kernelgen.grading.supervisor.explain import explain_end, judge_over_limit
from kernelgen.grading.supervisor.servers import WorkerGone
from kernelgen.grading.supervisor.workers import ForkServer, Worker
from kernelgen.grading.verdict import Judged, Owner, Status
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.channel import ChannelGarbage
from kernelgen.hardware.device import usable_cores
from kernelgen.problem.record import Device, Problem
from kernelgen.sandbox.watch import OverLimit

ORACLE_TIMEOUT_S = 600.0


def oracle_setup(problem: Problem, device: Device, memory_limit_bytes: int | None) -> m.SetUpOracle:
    """Return an oracle's first message, with a new secret seed in it."""
    return m.SetUpOracle(
        device=device,
        cases=tuple(
            m.CaseSource(name=case.name, source=problem.reference_source(case, device))
            for case in problem.all_cases()
        ),
        tolerance=problem.tolerance,
        rule=problem.rule,
        manner=problem.manner,
        batch_independent=problem.batch_independent,
        seed=secrets.token_hex(16),
        memory_limit_bytes=memory_limit_bytes,
        threads=usable_cores(),
    )


def stage_of(message: m.Request[Any], cases: tuple[str, ...]) -> str:
    """Return what the oracle does on a message, such as `while it opened case main`."""
    if isinstance(message, m.MeasureCase | m.LintCase | m.OpenCase):
        return f"{message.stage} case {cases[message.case]}"
    if isinstance(message, m.TimeBaseline):
        return f"{message.stage} {message.name}"
    return message.stage


class OracleClient:
    """An oracle that runs, for one candidate after another.

    Args:
        folder: an empty one, its own.
        environment: on top of what the user has set, which the reference may need.

    Attributes:
        worker: its process.
        folder: what it writes; its log lies beside it.
        healthy: it has answered all that it was asked, so that another candidate may have it.
    """

    def __init__(self, server: ForkServer, folder: Path, environment: Mapping[str, str]) -> None:
        self.worker: Worker = server.fork(folder, {**trusted_environment(), **environment})
        self.folder, self.healthy = folder, True
        self._case_names: tuple[str, ...] = ()

    def ask(self, message: m.Request[m.AnswerT], timeout_s: float = ORACLE_TIMEOUT_S) -> m.AnswerT:
        """Return its answer; it is trusted, so a failure is ours or the problem's.

        Raises:
            Judged: it refused, failed, or took too long.
        """
        if isinstance(message, m.SetUpOracle):
            self._case_names = tuple(case.name for case in message.cases)
        sound, self.healthy = self.healthy, False
        stage = stage_of(message, self._case_names)
        try:
            self.worker.send(message)
            reply = self.worker.receive(timeout_s)
            if isinstance(reply, m.Answer):
                answer = message.read(reply)
                self.healthy = sound
                return answer
        except OverLimit as over:
            raise judge_over_limit(over, stage) from None
        except WorkerGone as gone:
            words = self.worker.log_tail()
            reason = f"the oracle ended unexpectedly {stage}: {explain_end(gone)}\n{words}"
            raise Judged(Status.GRADER_ERROR, reason.rstrip()) from None
        except TimeoutError:
            reason = f"the oracle took longer than {timeout_s:.0f} s {stage}; use smaller constants"
            raise Judged(Status.GRADER_ERROR, reason) from None
        except (ChannelGarbage, msgspec.MsgspecError) as error:
            reason = f"the oracle sent no record {stage}: {error}"
            raise Judged(Status.GRADER_ERROR, reason) from error
        self.healthy = sound and reply.status is not Status.GRADER_ERROR
        # Memory that the oracle lacks is the grader's matter, never the candidate's.
        owner = Owner.GRADER if reply.status is Status.OUT_OF_MEMORY else None
        raise Judged(reply.status, reply.reason, owner)

    def end(self) -> None:
        """End its process."""
        try:
            self.worker.end()
        finally:
            self.worker.release()

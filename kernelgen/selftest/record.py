"""What a selftest found: a frozen record, which `--json` writes."""

from enum import Enum
from typing import Any

import msgspec

from kernelgen.errors import ExitCode
from kernelgen.grading.verdict import Status, Verdict
from kernelgen.problem.record import Device
from kernelgen.selftest.corpus import Candidate, Kind

SCHEMA_VERSION = 1


class Outcome(str, Enum):
    """What came of one candidate.

    Attributes:
        AS_EXPECTED: it got the verdict that its header names.
        MISS: it got another one.
        KNOWN_GAP: it got another one, and its header says that the grader cannot do better yet.
        CLOSED_GAP: it got the verdict that its header names although the header says it would not.
        NOT_RUN: it was not graded, which says nothing about the grader.
    """

    AS_EXPECTED = "as expected"
    MISS = "miss"
    KNOWN_GAP = "known gap"
    CLOSED_GAP = "closed gap"
    NOT_RUN = "not run"


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of one candidate in one round.

    Attributes:
        file: below the folder of candidates, such as `cuda/wrong_device.py`.
        kind: what it is.
        device: what it runs on.
        round: 1 for the first.
        expected: the status that its header names.
        outcome: what came of it.
        exploit: the classes of attack that it stands for.
        seconds: wall time of its grading, of which several may have shared the machine; absent if
            it ended before anything was started.
        misses: where the verdict departs from the header, in words.
        note: why it was not run, or what its header says about the gap.
        verdict: what grading it found; absent if it was not run.
    """

    file: str
    kind: Kind
    device: Device
    round: int
    expected: Status
    outcome: Outcome
    exploit: tuple[str, ...] = ()
    seconds: float | None = None
    misses: tuple[str, ...] = ()
    note: str = ""
    verdict: Verdict | None = None

    @classmethod
    def of(cls, candidate: Candidate, **found: Any) -> "Result":
        """Return what was found of a candidate."""
        return cls(
            file=candidate.name,
            kind=candidate.kind,
            device=candidate.device,
            expected=candidate.expect,
            exploit=candidate.exploit,
            **found,
        )

    @property
    def got(self) -> str:
        """Return the status that it got, or "" if it was not run."""
        return "" if self.verdict is None else self.verdict.status.value


class SelftestRun(msgspec.Struct, frozen=True, kw_only=True):
    """A whole selftest.

    Attributes:
        schema: version of this form.
        environment: facts about the machine and the versions in use.
        seed: of the order; --seed repeats it.
        jobs: how many candidates were graded at once.
        rounds: how often each was to be graded.
        seconds: wall time.
        interrupted: whether it was ended before all had been graded.
        results: in the order in which they came, those that were not run last.
    """

    schema: int
    environment: dict[str, Any]
    seed: int
    jobs: int
    rounds: int
    seconds: float
    interrupted: bool
    results: tuple[Result, ...]

    def count(self, outcome: Outcome) -> int:
        """Return how many results have that outcome."""
        return sum(result.outcome is outcome for result in self.results)

    @property
    def exit_code(self) -> ExitCode:
        """Return what `kernelgen selftest` returns to the shell."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if self.count(Outcome.NOT_RUN) == len(self.results):
            return ExitCode.GRADER_FAULT
        if self.count(Outcome.MISS):
            return ExitCode.CANDIDATE_FAILED
        return ExitCode.OK

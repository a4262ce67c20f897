"""Findings about problems: frozen records, which `--json` writes."""

from typing import Any

import msgspec

from kernelgen.grading.verdict import Status

SCHEMA_VERSION = 1


class CaseLint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fault of one case of a problem.

    Attributes:
        problem, case: names; of the case "" where the whole problem is refused.
        file: of the problem, with its folder's name.
        sha256: of that file.
        status: PASSED if a candidate can be graded on it, else why none can.
        reason: for that, in words.
        trivial: answers without any work that pass, such as `all zeros`.
        idle: inputs and parameters that make no difference.
        untried: inputs and parameters that there was no time to try.
        note: why results are compared with float32 ones, or "".
    """

    problem: str
    case: str
    file: str
    sha256: str
    status: Status = Status.PASSED
    reason: str = ""
    trivial: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    untried: int = 0
    note: str = ""

    def __post_init__(self) -> None:
        if (self.status is Status.PASSED) == bool(self.reason):
            raise ValueError("a reason goes with a refusal, and only with one")

    @property
    def refused(self) -> bool:
        """Whether nothing can be graded on it."""
        return self.status is not Status.PASSED

    @property
    def findings(self) -> tuple[str, ...]:
        """One sentence for each thing that is wrong."""
        return (
            *([f"{self.status.value}: {self.reason}"] if self.refused else []),
            *(f"{name} passes" for name in self.trivial),
            *(f"{name} makes no difference" for name in self.idle),
            *([self.note] if self.note else []),
        )


class Lint(msgspec.Struct, frozen=True, kw_only=True):
    """Problems that were linted on one device.

    Attributes:
        schema: version of this form.
        environment: versions, and facts about the device.
        device: its name.
        seconds: that all of it took.
        cases: in the order of the problems.
        left: problems that it was interrupted before.
    """

    schema: int
    environment: dict[str, Any]
    device: str
    seconds: float
    cases: tuple[CaseLint, ...]
    left: int = 0

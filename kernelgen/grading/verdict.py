"""The result of grading a candidate: `Status`, `Verdict`, and what may be combined.

Grading ends with a status other than PASSED by `Judged`; in the oracle, by `ProblemFault`.
A verdict is a frozen record whose invariants are checked when it is made: PASSED needs a complete
correctness record, a failure may not carry a speedup. docs/json.md has the form's rules.
"""

from enum import Enum
from html import escape
from typing import Any, Literal

import msgspec

from kernelgen.grading.plan_record import PlanRecord
from kernelgen.grading.reward import RewardPolicy
from kernelgen.grading.timing.times import Timing
from kernelgen.sandbox.record import Containment
from kernelgen.solution.file import RENDERED


class Owner(str, Enum):
    """Causer of a status."""

    CANDIDATE = "candidate"
    PROBLEM = "problem"
    GRADER = "grader"


class Status(str, Enum):
    """How grading ended; each member's meaning is in docs/statuses.md."""

    PASSED = "PASSED"
    BROKEN_CONTRACT = "BROKEN_CONTRACT"
    BUILD_ERROR = "BUILD_ERROR"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    CRASHED = "CRASHED"
    TIMEOUT = "TIMEOUT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    WRONG_STRUCTURE = "WRONG_STRUCTURE"
    WRONG_SHAPE = "WRONG_SHAPE"
    WRONG_DTYPE = "WRONG_DTYPE"
    NON_FINITE = "NON_FINITE"
    WRONG_VALUES = "WRONG_VALUES"
    MUTATED_INPUT = "MUTATED_INPUT"
    NO_CUSTOM_KERNEL = "NO_CUSTOM_KERNEL"
    TAMPERED = "TAMPERED"
    INVALID_PROBLEM = "INVALID_PROBLEM"
    GRADER_ERROR = "GRADER_ERROR"
    NO_DEVICE = "NO_DEVICE"


_OWNERS = {
    Status.INVALID_PROBLEM: (Owner.PROBLEM,),
    Status.GRADER_ERROR: (Owner.GRADER,),
    Status.NO_DEVICE: (Owner.GRADER,),
    # A problem that does not fit the device is no wrong answer: the owner says so.
    Status.OUT_OF_MEMORY: (Owner.CANDIDATE, Owner.GRADER),
}


class WorstElement(msgspec.Struct, frozen=True, kw_only=True):
    """The element that lies furthest outside its bound.

    Attributes:
        output: path of the output in the returned structure, such as `output` or `output[1]`.
        index: of the element, one number a dimension.
        got: the candidate's value.
        expected: the exact value.
        bound: the largest |got - expected| that would have agreed.
    """

    output: str
    index: tuple[int, ...]
    got: float
    expected: float
    bound: float


class CaseResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One verified call: which case, how many calls of it agreed, and how far off it was.

    Attributes:
        name: of the case.
        agreed: every output of every call agreed.
        calls: verified calls of this case, timed ones included.
        elements: output elements a call.
        wrong: elements outside the bound in the worst call.
        max_abs_err: largest |candidate - exact| over all calls; None if it is not finite.
        ref_max_abs_err: the same for the pinned fp32 reference.
        of_allowed: the largest share that an error is of what is allowed at its element, 1 at most
            in a pass; at most that, where all errors keep the absolute term alone. None if it is
            not finite, or the record is older.
        exact: how the exact result was computed: `float64`, `float64 by chunks` or `float32`.
        worst: the worst element, if any was wrong.
        deterministic: whether a second call on the same inputs gave the same bits; None if no
            second call came back.
        repeat_max_diff: the largest difference of those two results; None if it was not measured or
            is not finite.
    """

    name: str
    agreed: bool
    calls: int
    elements: int
    wrong: int
    max_abs_err: float | None
    ref_max_abs_err: float | None
    exact: str
    of_allowed: float | None = None
    worst: WorstElement | None = None
    deterministic: bool | None = None
    repeat_max_diff: float | None = None


class Correctness(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that was verified.

    Attributes:
        max_abs_err: the largest over the cases; None if no finite error was measured.
        ref_max_abs_err: the same for the pinned fp32 reference.
        of_allowed: the largest over the cases.
        expected_cases: names of the cases that have to agree for a pass, in order.
        cases: what was found, in the order in which it was run.
        parameters: candidate's parameter -> the reference's one that it was given.
        precision: the pins that were in force, such as `cuda_matmul_tf32` -> False.
    """

    max_abs_err: float | None
    ref_max_abs_err: float | None
    expected_cases: tuple[str, ...]
    cases: tuple[CaseResult, ...]
    parameters: dict[str, str] = {}
    precision: dict[str, bool | str | int] = {}
    of_allowed: float | None = None

    @property
    def complete(self) -> bool:
        """Whether every expected case is present, each verified at least once and agreeing."""
        agreed = {case.name for case in self.cases if case.agreed and case.calls > 0}
        return bool(self.expected_cases) and set(self.expected_cases) == agreed


class BuildRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The candidate's import and construction, compilation included.

    Attributes:
        seconds: wall time.
        cached: all that it builds was in the build cache.
    """

    seconds: float
    cached: bool


class SanitizerFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of error that compute-sanitizer reports in one kernel.

    Attributes:
        tool: `memcheck` or `racecheck`.
        severity: `error` or `warning`, as the tool gives it.
        what: such as `invalid __global__ read of size 4 bytes`.
        kernel: in which, with its parameters' types; "" if the tool does not say.
        count: how often it was reported.
        first: where, by which thread and at which address, as far as the tool says.
    """

    tool: str
    severity: Literal["error", "warning"]
    what: str
    kernel: str
    count: int
    first: str


class SanitizerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the candidate under compute-sanitizer.

    Attributes:
        case: whose inputs it got.
        tools: that looked at the whole call, or found something.
        findings: what they found; empty after a clean run.
    """

    case: str
    tools: tuple[str, ...]
    findings: tuple[SanitizerFinding, ...]


KernelOwner = Literal[
    "candidate", "triton", "cublas", "cudnn", "aten", "nccl", "inductor", "copy", "unknown"
]
"""The owner of a kernel; `triton` is the candidate's own too, written in Triton."""

OWN_KERNELS: tuple[KernelOwner, ...] = ("candidate", "triton")
"""Those that count as the candidate's own."""


class KernelUse(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel that ran in traced calls of the main case; on a CPU, an operator of torch's.

    Attributes:
        name: without its parameters, and without its template arguments where they are long.
        owner: whose it is.
        calls: how often it ran in a call of forward, on average.
        share: of the GPU time of a call; on a CPU, of its wall time. From 0 to 1.
        time_us: in a call of forward, on average.
    """

    name: str
    owner: KernelOwner
    calls: float
    share: float
    time_us: float


UNKNOWN_TIME = "the time is not known"
"""How a warning begins that says why a candidate passed and has no time."""

UNTIMED_BASELINE = "the baseline "
"""How a warning begins that says why a baseline has no time; its name follows."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The judgement on one candidate.

    Attributes:
        problem: name of the problem, or "" if none could be found.
        solution: path of the candidate's file as the user gave it.
        solution_sha256: of the file's bytes, or "" if it could not be read.
        status: how it ended.
        owner: whose doing that is.
        reason: one or more lines for a person: what is wrong, where, and what to do about it.
        device: name of the device it was graded on, or "".
        device_fault: after a fault of the grader's, how an oracle fails on the device where there
            is no candidate; "" if it works there.
        correctness, timing, build: present as far as grading came.
        containment: what was in force around the candidate; absent if it was not started.
        kernels: what ran in traced calls, largest share first; empty if not traced.
        sanitizer: what compute-sanitizer found, if it was asked.
        overrides: option -> what it put in place of the problem's own, or of the usual: a verdict
            by another rule.
        warnings: what did not decide the verdict but should be known.
        source: the solution's text, where it could be read, so that a report can show it.
        log: the end of what the candidate printed, for a person.
        labels: name -> value, of one of several variants that were graded for comparison.
        expected: the status that was known before, of a candidate of the selftest.
        misses: in words, where the verdict departs from what was expected.
    """

    problem: str
    solution: str
    solution_sha256: str
    status: Status
    owner: Owner
    reason: str
    device: str = ""
    device_fault: str = ""
    correctness: Correctness | None = None
    timing: Timing | None = None
    build: BuildRecord | None = None
    containment: Containment | None = None
    kernels: tuple[KernelUse, ...] = ()
    sanitizer: SanitizerRecord | None = None
    overrides: dict[str, str] = {}
    warnings: tuple[str, ...] = ()
    source: str = ""
    log: str = ""
    labels: dict[str, Any] = {}
    expected: Status | None = None
    misses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        allowed = _OWNERS.get(self.status, (Owner.CANDIDATE,))
        if self.owner not in allowed:
            raise ValueError(f"{self.status.value} cannot be owned by the {self.owner.value}")
        complete = self.correctness is not None and self.correctness.complete
        if self.status is Status.PASSED and not complete:
            raise ValueError("PASSED needs every expected case present and verified")
        if self.status is not Status.PASSED and self.timing is not None:
            raise ValueError(f"{self.status.value} cannot carry times")
        if self.status is not Status.PASSED and not self.reason:
            raise ValueError(f"{self.status.value} needs a reason")

    @property
    def passed(self) -> bool:
        """Whether the candidate passed."""
        return self.status is Status.PASSED

    @property
    def rendered(self) -> bool:
        """Whether kernelgen made the file, as far as the record has its text."""
        return not self.source or self.source.startswith(RENDERED)

    def reward(self, policy: RewardPolicy) -> float | None:
        """Return what it is worth by a policy; None where it says nothing about the candidate.

        That is so where the grader, its machine or the problem is at fault: ask again, or leave the
        sample out; a 0 would teach that the candidate was wrong.
        """
        if self.owner is not Owner.CANDIDATE:
            return None
        if not self.passed:
            return policy.failed
        speedup = self.timing.speedup.get(policy.baseline) if self.timing else None
        lower = speedup.ci95[0] if speedup else 0.0
        return policy.correct + policy.per_speedup * min(lower, policy.most)


def owner_of(status: Status) -> Owner:
    """Return whose doing a status is unless the verdict says otherwise."""
    return _OWNERS.get(status, (Owner.CANDIDATE,))[0]


class Judged(Exception):  # noqa: N818 (an ending, not always an error)
    """Grading has come to a result other than a pass.

    Args:
        owner: whose doing it is, where the status alone does not say.
    """

    def __init__(self, status: Status, reason: str, owner: Owner | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason
        self.owner = owner or owner_of(status)


class ProblemFault(Exception):  # noqa: N818 (a finding about the problem)
    """The problem's own code fails or contradicts itself; the message says where and how."""


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All verdicts of one `kernelgen grade`, with the environment: the JSON report.

    Attributes:
        schema: version of this form.
        environment: versions and facts about the machine, which differ from machine to machine;
            `imports` has the versions of packages that `--allow-import` named, `command` and `date`
            are those of `kernelgen grade`.
        verdicts: one a file, in the given order; those of a folder by name, those of
            `--kernelbench` by level, problem and sample.
        plans: one a problem and device, if a report was asked for that holds them.
    """

    schema: int
    environment: dict[str, Any]
    verdicts: tuple[Verdict, ...]
    plans: tuple[PlanRecord, ...] = ()

    def plan_for(self, verdict: Verdict) -> PlanRecord | None:
        """Return the plan that a rendered file ran on its device, if the run has it."""
        wanted = (verdict.problem, verdict.device) if verdict.rendered else ()
        return next((one for one in self.plans if (one.problem, one.device) == wanted), None)

    def to_records(self) -> list[dict[str, Any]]:
        """Return a flat dict for each verdict, as pandas.DataFrame takes them; times in ms.

        A speedup stands under its baseline: `vs_eager`, with the ends of its 95 % interval as
        `vs_eager_low` and `vs_eager_high`.
        """
        return [_record_of(verdict) for verdict in self.verdicts]

    def _repr_html_(self) -> str:
        """Return a table, which a notebook shows."""
        records = self.to_records()
        names = dict.fromkeys(name for record in records for name in record)
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        lines = (
            "".join(f"<td>{escape(_in_a_cell(record.get(name)))}</td>" for name in names)
            for record in records
        )
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _record_of(verdict: Verdict) -> dict[str, Any]:
    names = ("problem", "solution", "status", "reason", "device")
    record = {name: getattr(verdict, name) for name in names} | {"status": verdict.status.value}
    if (timing := verdict.timing) is not None:
        record["time_ms"] = timing.candidate_ms
        baselines = {"eager_ms": timing.eager_ms, "compile_ms": timing.compile_ms}
        record |= {name: time for name, time in baselines.items() if time is not None}
        for name, speedup in timing.speedup.items():
            low, high = speedup.ci95
            record |= {f"vs_{name}": speedup.median, f"vs_{name}_low": low, f"vs_{name}_high": high}
        record |= {} if timing.limit is None else {"of_limit": timing.limit.fraction}
    return record


def _in_a_cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


SCHEMA_VERSION = 1

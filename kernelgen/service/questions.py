"""Questions of clients to a service, and its answers."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from kernelgen.grading.options import GradeOptions
from kernelgen.grading.verdict import Verdict
from kernelgen.problem.record import LARGEST_TOLERANCE, OtherRule, Precision

_LEVEL, _NUMBER = re.compile(r"level(\d+)"), re.compile(r"(\d+)_")

Seconds = Annotated[float, msgspec.Meta(gt=0, le=600)]
Tolerance = Annotated[float, msgspec.Meta(gt=0, le=LARGEST_TOLERANCE)]


class Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The choices of a client; anything left out is as the service was started.

    Attributes:
        time: whether to time the candidate.
        baselines: to time beside it.
        timing_budget_s: for the timed calls of one candidate, in seconds.
        interval, max_samples: when its timing may end before that, as in GradeOptions.
        tolerance, precision, require: in place of the problem's, as in GradeOptions.
        eval_mode: grade both sides under eval().
        gradients: grade forward and backward together.
        launch_overhead: time calls on an idle GPU, as KernelBench does.
    """

    time: bool | None = None
    baselines: Annotated[tuple[str, ...], msgspec.Meta(max_length=5)] | None = None
    timing_budget_s: Seconds | None = None
    interval: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    max_samples: Annotated[int, msgspec.Meta(ge=3, le=10_000)] | None = None
    tolerance: Tolerance | OtherRule | None = None
    precision: Precision | None = None
    require: Literal["own_kernel", "anything"] | None = None
    eval_mode: bool | None = None
    gradients: bool | None = None
    launch_overhead: bool | None = None

    def applied_to(self, options: GradeOptions) -> GradeOptions:
        """Return a service's options with these in place of its own; raises UserError."""
        given = msgspec.structs.asdict(self)
        asked = {name: value for name, value in given.items() if value is not None}
        if self.max_samples is not None:
            asked["min_samples"] = min(options.min_samples, self.max_samples)
        return msgspec.structs.replace(options, **asked)


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A candidate to be graded, on a named problem or on a reference that comes along.

    Attributes:
        candidate: text of a Python file that defines ModelNew, or Markdown around it.
        problem: name of one of the service's problems; `1/19` is KernelBench's.
        reference: text of a KernelBench file, in place of `problem`.
        rules: what to do otherwise than usual.
    """

    candidate: str
    problem: str | None = None
    reference: str | None = None
    rules: Rules = Rules()


class JobState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as a client sees it.

    Attributes:
        id: of the question's content: the same question has the same one.
        state: whether its verdict is there.
        verdict: once it is.
    """

    id: str
    state: Literal["waiting", "done"]
    verdict: Verdict | None = None


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a service.

    Attributes:
        problems: that it grades, by name, with a summary; KernelBench's are `1/19`.
        release: of kernelgen, Python and torch, as `job.release`.
        devices: that its verdicts depend on.
        environment: of its runs, as `Run.environment`; it knows a GPU once that was used.
    """

    problems: dict[str, str]
    release: dict[str, str]
    devices: tuple[str, ...]
    environment: dict[str, Any]


def kernelbench_name(path: Path) -> str:
    """Return `1/19` for `level1/19_ReLU.py`; "" for what is no file of KernelBench's."""
    level, number = _LEVEL.fullmatch(path.parent.name), _NUMBER.match(path.name)
    return f"{level[1]}/{number[1]}" if level and number else ""

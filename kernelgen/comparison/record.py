"""A comparison of two runs: frozen records, which `--json` writes; docs/compare.md has all."""

from enum import Enum

import msgspec

from kernelgen.errors import ExitCode
from kernelgen.grading.timing.times import Speedup
from kernelgen.grading.verdict import Status

SCHEMA_VERSION = 2


class Outcome(str, Enum):
    """The change of one solution, the gravest first.

    For a selftest's candidate, a pass is a verdict as expected.

    Attributes:
        BROKE: it passed, and fails now by its own doing.
        REGRESSED: it is slower, and the whole interval lies beyond the bound.
        NOT_JUDGED: the new run could not judge it, by the grader's or the problem's doing.
        SLOWER: the whole interval lies below 1, and some of it within the bound.
        MENDED: it failed, and passes now.
        FASTER: the whole interval lies above 1.
        SAME: both passed, and no difference in speed was shown.
        FAILS: it failed and fails, by its own doing.
        NOT_COMPARED: nothing could be said; a remark says why.
        NEW: it is in the new run alone.
        GONE: it is in the old run alone.
    """

    BROKE = "broke"
    REGRESSED = "regressed"
    NOT_JUDGED = "not judged"
    SLOWER = "slower"
    MENDED = "mended"
    FASTER = "faster"
    SAME = "same"
    FAILS = "still fails"
    NOT_COMPARED = "not compared"
    NEW = "new"
    GONE = "gone"


class Compared(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One solution in both runs, or in the one that has it.

    Attributes:
        problem: its name.
        solution: path of its file, as the new run gives it, or the old one where it is gone.
        outcome: what became of it.
        old_status, new_status: absent where the run has it not.
        old_ms, new_ms: medians of its times; absent where it was not timed.
        speed: its old time over its new one, with the interval that decides the outcome.
        speedups: name of a baseline -> its speedup in the old and in the new run.
        remark: why it broke, or why nothing could be said.
    """

    problem: str
    solution: str
    outcome: Outcome
    old_status: Status | None = None
    new_status: Status | None = None
    old_ms: float | None = None
    new_ms: float | None = None
    speed: Speedup | None = None
    speedups: dict[str, tuple[float, float]] = {}
    remark: str = ""


class Comparison(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Two runs beside each other.

    Attributes:
        schema: version of this form.
        old, new: the files, as they were given.
        bound_percent: by how much more time a solution may take.
        differences: of what times depend on, in words; only where these were allowed.
        solutions: the gravest outcome first, then by problem and path; of two models, the new
            one's best of each problem.
        figures: of two models, name -> the figure of both.
    """

    schema: int
    old: str
    new: str
    bound_percent: float
    differences: tuple[str, ...]
    solutions: tuple[Compared, ...]
    figures: dict[str, tuple[str, str]] = {}

    def count(self, outcome: Outcome) -> int:
        """Return how many solutions have that outcome."""
        return sum(one.outcome is outcome for one in self.solutions)

    @property
    def exit_code(self) -> ExitCode:
        """Return what `kernelgen compare` returns to the shell.

        A solution that passed and could not be judged again is no regression, and no pass either.
        """
        if self.count(Outcome.BROKE) or self.count(Outcome.REGRESSED):
            return ExitCode.CANDIDATE_FAILED
        lost = (
            one.outcome is Outcome.NOT_JUDGED and one.old_status is Status.PASSED
            for one in self.solutions
        )
        return ExitCode.GRADER_FAULT if any(lost) else ExitCode.OK

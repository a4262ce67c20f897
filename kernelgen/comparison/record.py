"""What comparing two runs found: frozen records, which `--json` writes; docs/compare.md has all."""

from enum import Enum

import msgspec

from kernelgen.errors import ExitCode
from kernelgen.grading.timing.times import Speedup
from kernelgen.grading.verdict import Status

SCHEMA_VERSION = 1


class Outcome(str, Enum):
    """What became of one solution, the gravest first.

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
        old_solution: its path in the old run, where that is another one.
        old_status, new_status: absent where the run has it not.
        old_ms, new_ms: medians of its times; absent where it was not timed.
        speed: how many times as fast as before it is, with the interval that decides the outcome.
        baseline: whose speedups were compared beside the times; "" if no baseline could be used.
        remarks: why it broke, or why nothing could be said.
    """

    problem: str
    solution: str
    outcome: Outcome
    old_solution: str = ""
    old_status: Status | None = None
    new_status: Status | None = None
    old_ms: float | None = None
    new_ms: float | None = None
    speed: Speedup | None = None
    baseline: str = ""
    remarks: tuple[str, ...] = ()


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A fact about the machine that is not the same in both runs.

    Attributes:
        name: such as `device` or `torch`.
        old, new: what it was and is.
        decisive: times of the two runs should not be compared.
    """

    name: str
    old: str
    new: str
    decisive: bool

    @property
    def words(self) -> str:
        """Such as `torch is 2.12.0, was 2.11.0`."""
        return f"{self.name} is {self.new}, was {self.old}"


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs beside each other.

    Attributes:
        schema: version of this form.
        old, new: the files, as they were given.
        bound_percent: by how much more time a solution may take.
        differences: of the machines; decisive ones only where they were allowed.
        warnings: what bears on all of the comparison.
        solutions: the gravest outcome first, then by problem and path.
    """

    schema: int
    old: str
    new: str
    bound_percent: float
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...]
    solutions: tuple[Compared, ...]

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

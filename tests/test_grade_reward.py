"""The reward of a verdict: the lower end of its interval, and nothing where nobody can say."""

import msgspec
import pytest
from report_runs import TIMING, failed, passed

from kernelgen.errors import UserError
from kernelgen.grading.reward import RewardPolicy
from kernelgen.grading.timing.times import Speedup
from kernelgen.grading.verdict import Owner, Status

POLICY = RewardPolicy()


def timed(low: float, median: float) -> "object":
    speedup = Speedup(median=median, ci95=(low, 2 * median))
    return msgspec.structs.replace(TIMING, speedup={"eager": speedup, "compile": speedup})


def test_a_pass_earns_the_lower_end_of_its_interval() -> None:
    assert passed(timing=timed(1.5, 3.0)).reward(POLICY) == pytest.approx(1.8)
    own = RewardPolicy(failed=-1, correct=0, per_speedup=2, most=4, baseline="compile")
    assert passed(timing=timed(1.5, 3.0)).reward(own) == pytest.approx(3.0)
    assert passed(timing=timed(50.0, 60.0)).reward(own) == pytest.approx(8.0)


def test_what_was_not_timed_earns_no_speedup() -> None:
    assert passed(timing=None).reward(POLICY) == POLICY.correct
    assert passed().reward(RewardPolicy(baseline="max-autotune")) == POLICY.correct


@pytest.mark.parametrize("status", [one for one in Status if one is not Status.PASSED])
def test_a_failure_earns_nothing_and_a_fault_says_nothing(status: Status) -> None:
    verdict = failed(status)
    expected = POLICY.failed if verdict.owner is Owner.CANDIDATE else None
    assert verdict.reward(POLICY) == expected
    blameless = {Status.INVALID_PROBLEM, Status.GRADER_ERROR, Status.NO_DEVICE}
    assert (expected is None) == (status in blameless)


def test_memory_that_others_took_says_nothing() -> None:
    assert failed(Status.OUT_OF_MEMORY, owner=Owner.GRADER).reward(POLICY) is None
    assert failed(Status.OUT_OF_MEMORY, owner=Owner.CANDIDATE).reward(POLICY) == 0.0


@pytest.mark.parametrize(
    "numbers",
    [{"most": float("inf")}, {"failed": float("nan")}, {"per_speedup": -1}, {"correct": -0.5}],
)
def test_a_policy_that_makes_no_sense_is_refused(numbers: dict[str, float]) -> None:
    with pytest.raises(UserError, match="reward: "):
        RewardPolicy(**numbers)  # type: ignore[arg-type]

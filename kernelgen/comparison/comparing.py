"""Two runs in, a comparison out: which verdict belongs to which, and what became of each pair."""

import math
import posixpath
from collections import Counter
from collections.abc import Iterable, Sequence

from kernelgen.comparison.record import SCHEMA_VERSION, Compared, Comparison, Outcome
from kernelgen.errors import UserError
from kernelgen.grading.timing.statistics import resolution_ms, unpaired_speedup
from kernelgen.grading.timing.times import CANDIDATE, Speedup, Timing
from kernelgen.grading.verdict import Owner, Run, Verdict
from kernelgen.report.console import problem_of
from kernelgen.report.json_report import Recorded
from kernelgen.report.suite import figures

_FEWEST_SAMPLES = 2
# Facts on which the time of the same kernel depends.
_MACHINE = (
    "gpu", "compute_capability", "multiprocessors", "memory_bytes", "l2_bytes", "driver", "torch",
    "cuda",
)  # fmt: skip
_CPU = ("cpu", "cpu_threads")

Pair = tuple[Verdict | None, Verdict | None]
Change = tuple[Outcome, Speedup | None, str]
"""The outcome of a solution, its speed where that was compared, and why."""


def compare(
    old: Recorded,
    new: Recorded,
    *,
    bound_percent: float,
    across_devices: bool = False,
    models: bool = False,
) -> Comparison:
    """Compare two runs.

    Args:
        old: the earlier one.
        new: the later one.
        bound_percent: by how much more time a solution may take, at least 0.
        across_devices: compare also where the machines differ in what times depend on.
        models: compare the best solutions of each problem, whatever their files are called.

    Raises:
        UserError: the machines differ, and that was not allowed; no solution is in both runs.
    """
    different = _differences(old.run, new.run)
    if different and not across_devices:
        raise UserError(
            f"{old.name} and {new.name} are not of one machine: {'; '.join(different)}. Times say "
            "little across machines; grade both on one, or give --across-devices"
        )
    matched = (best_pairs if models else pairs)(old.run.verdicts, new.run.verdicts)
    if not any(before is not None and after is not None for before, after in matched):
        rule = "by path, else by problem and file name; of two models by problem, with --models"
        raise UserError(
            f"{old.name} and {new.name}: no {'problem' if models else 'solution'} is in both; "
            f"solutions are matched {rule}"
        )
    gravest_first = list(Outcome)
    solutions = [_compared(pair, bound_percent) for pair in matched]
    solutions.sort(key=lambda one: (gravest_first.index(one.outcome), one.problem, one.solution))
    return Comparison(
        schema=SCHEMA_VERSION,
        old=old.name,
        new=new.name,
        bound_percent=bound_percent,
        differences=different,
        solutions=tuple(solutions),
        figures=_side_by_side(old.run, new.run) if models else {},
    )


def _side_by_side(old: Run, new: Run) -> dict[str, tuple[str, str]]:
    before, after = dict(figures(old)), dict(figures(new))
    return {name: (before.get(name, ""), after.get(name, "")) for name in before | after}


def pairs(old: Sequence[Verdict], new: Sequence[Verdict]) -> list[Pair]:
    """Return the verdicts on the same solution, old and new; None where a run has none.

    They are matched by path; what is left by problem and file name, where each run has one such.
    """
    before = {posixpath.normpath(one.solution): one for one in old}
    after = {posixpath.normpath(one.solution): one for one in new}
    gone = _by_name(before[path] for path in before.keys() - after.keys())
    added = _by_name(after[path] for path in after.keys() - before.keys())
    moved = {added[name].solution: gone[name] for name in added.keys() & gone.keys()}
    found: list[Pair] = [
        (before.get(p) or moved.get(one.solution), one) for p, one in after.items()
    ]
    known = {id(one) for one, _ in found}
    return [*found, *((one, None) for one in before.values() if id(one) not in known)]


def best_pairs(old: Sequence[Verdict], new: Sequence[Verdict]) -> list[Pair]:
    """Return the best verdicts on each problem, old and new; None where a run has none."""
    before, after = _best_by_problem(old), _best_by_problem(new)
    return [(before.get(one), after.get(one)) for one in before | after]


def _best_by_problem(verdicts: Iterable[Verdict]) -> dict[str, Verdict]:
    """Return one that passed before one that did not, then the quickest."""

    def rank(one: Verdict) -> tuple[bool, float]:
        return one.passed, -math.inf if one.timing is None else -one.timing.candidate_ms

    best: dict[str, Verdict] = {}
    for one in verdicts:
        name = problem_of(one.problem, one.solution)
        best[name] = max(best.get(name, one), one, key=rank)
    return best


def _by_name(verdicts: Iterable[Verdict]) -> dict[tuple[str, str], Verdict]:
    """Return verdicts by problem and file name, without those that share them."""
    named = [((one.problem, posixpath.basename(one.solution)), one) for one in verdicts]
    counts = Counter(name for name, _ in named)
    return {name: one for name, one in named if counts[name] == 1}


def _compared(pair: Pair, bound_percent: float) -> Compared:
    old, new = pair
    shown = new or old
    assert shown is not None
    outcome, speed, remark = Outcome.NEW if old is None else Outcome.GONE, None, ""
    if old is not None and new is not None:
        outcome, speed, remark = _became(old, new, bound_percent)
    times = [None if one is None else one.timing for one in pair]
    speedups = [{} if timing is None else timing.speedup for timing in times]
    return Compared(
        problem=shown.problem or (old.problem if old is not None else ""),
        solution=shown.solution,
        outcome=outcome,
        old_status=None if old is None else old.status,
        new_status=None if new is None else new.status,
        old_ms=None if times[0] is None else times[0].candidate_ms,
        new_ms=None if times[1] is None else times[1].candidate_ms,
        speed=speed,
        speedups={
            name: (was.median, speedups[1][name].median)
            for name, was in speedups[0].items()
            if name in speedups[1]
        },
        remark=remark,
    )


def _became(old: Verdict, new: Verdict, bound_percent: float) -> Change:
    if old.problem and new.problem and old.problem != new.problem:
        was = f"the problem is not the same: {new.problem}, was {old.problem}"
        return Outcome.NOT_COMPARED, None, was
    if new.owner is not Owner.CANDIDATE and new.expected is None:
        whose = f"{new.status.value} is the {new.owner.value}'s doing, not the candidate's"
        return Outcome.NOT_JUDGED, None, whose
    if old.owner is not Owner.CANDIDATE and old.expected is None:
        return Outcome.NOT_COMPARED, None, "it was not judged before"
    was_good, is_good = _good(old), _good(new)
    if was_good and is_good:
        return _both_good(old, new, bound_percent)
    if was_good:
        return Outcome.BROKE, None, next(iter((*new.misses, *new.reason.splitlines())), "")
    return Outcome.MENDED if is_good else Outcome.FAILS, None, ""


def _good(verdict: Verdict) -> bool:
    """Whether it is a pass; of a selftest, whether it is what was expected."""
    return verdict.passed if verdict.expected is None else not verdict.misses


def _both_good(old: Verdict, new: Verdict, bound_percent: float) -> Change:
    if new.expected is not None and None in (old.timing, new.timing):
        return Outcome.SAME, None, ""
    if other := _other_rule_or_size(old, new):
        return Outcome.NOT_COMPARED, None, other
    speed = speed_since(old.timing, new.timing)
    if speed is None:
        return Outcome.NOT_COMPARED, None, "it has no time, or no samples of it, in one of the runs"
    if speed.ci95[1] < 1.0 / (1.0 + bound_percent / 100.0):
        return Outcome.REGRESSED, speed, ""
    return Outcome(speed.says), speed, ""


def speed_since(old: Timing | None, new: Timing | None) -> Speedup | None:
    """Return the old time over the new one, or None where a run has no samples of it."""
    samples = [() if one is None else one.samples.get(CANDIDATE, ()) for one in (old, new)]
    if any(len(one) < _FEWEST_SAMPLES for one in samples):
        return None
    if not all(math.isfinite(value) and value > 0 for one in samples for value in one):
        return None
    return unpaired_speedup(*samples, step=max(map(resolution_ms, samples)))


def _differences(old: Run, new: Run) -> tuple[str, ...]:
    """Return in words in what times depend on the machines differ, as far as both runs tell."""
    before, after = _devices(old), _devices(new)
    words = [f"device is {after}, was {before}"] if before and after and before != after else []
    names = _MACHINE if "gpu" in new.environment else (*_MACHINE, *_CPU)
    for name in names:
        was, fact = (run.environment.get(name) for run in (old, new))
        if None not in (was, fact) and was != fact:
            words.append(f"{name} is {fact}, was {was}")
    return tuple(words)


def _devices(run: Run) -> str:
    return " and ".join(sorted({verdict.device for verdict in run.verdicts if verdict.device}))


def _other_rule_or_size(old: Verdict, new: Verdict) -> str:
    """Return in words that the problem was not the same, or "" where nothing says so."""
    was, rule = (", ".join(_rules(verdict)) or "the problem's own" for verdict in (old, new))
    if rule != was:
        return f"the rule is not the same: {rule}, was {was}"
    before, after = _sizes(old), _sizes(new)
    changed = (what for what, size in before.items() if after.get(what, size) != size)
    what = next(changed, "")
    if not what:
        return ""
    return f"the problem is not the same: {what} are {after[what]}, were {before[what]}"


def _rules(verdict: Verdict) -> list[str]:
    # Fewer samples are no other rule.
    found = verdict.overrides.items()
    return sorted(f"--{name} ({what})" for name, what in found if name != "quick")


def _sizes(verdict: Verdict) -> dict[str, int]:
    sizes = {}
    if verdict.timing is not None and verdict.timing.minimal_bytes is not None:
        sizes["the bytes to be moved"] = verdict.timing.minimal_bytes
    cases = () if verdict.correctness is None else verdict.correctness.cases
    return sizes | {f"the output elements of case {case.name}": case.elements for case in cases}

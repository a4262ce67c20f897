"""Two runs in, a comparison out: which verdict belongs to which, and what became of each pair."""

import posixpath
from collections.abc import Callable, Hashable, Sequence

import msgspec

from kernelgen.comparison.differences import differences, other_problem
from kernelgen.comparison.record import SCHEMA_VERSION, Compared, Comparison, Outcome
from kernelgen.comparison.speed import beyond, speed_since
from kernelgen.errors import UserError
from kernelgen.grading.verdict import Owner, Verdict
from kernelgen.report.reading import Recorded

Pair = tuple[Verdict | None, Verdict | None]

_GRAVEST_FIRST = list(Outcome)
_SAME_FILE = "the file is the same, byte for byte: what changed is around it"
_NO_BASELINE = (
    "no baseline was timed in both runs for {count}: a slower machine cannot be told from a slower "
    "solution there"
)


def compare(
    old: Recorded, new: Recorded, *, bound_percent: float, across_devices: bool = False
) -> Comparison:
    """Compare two runs.

    Args:
        old: the earlier one.
        new: the later one.
        bound_percent: by how much more time a solution may take, at least 0.
        across_devices: compare also where the machines differ in what times depend on.

    Raises:
        UserError: the machines differ, and that was not allowed; no solution is in both runs.
    """
    found = differences(old.run, new.run)
    decisive = [one.words for one in found if one.decisive]
    if decisive and not across_devices:
        raise UserError(
            f"{old.name} and {new.name} are not of one machine: {'; '.join(decisive)}. Times say "
            "little across machines; grade both on one, or give --across-devices"
        )
    matched = pairs(old.run.verdicts, new.run.verdicts)
    if not any(before is not None and after is not None for before, after in matched):
        raise UserError(
            f"{old.name} and {new.name}: no solution is in both; they are matched by problem and "
            "path, else by problem and file name"
        )
    solutions = [_compared(pair, bound_percent) for pair in matched]
    timed = [one for one in solutions if one.speed is not None]
    alone = sum(not one.baseline for one in timed)
    warning = _NO_BASELINE.format(count=f"{alone} of {len(timed)} solutions")
    solutions.sort(key=lambda one: (_GRAVEST_FIRST.index(one.outcome), one.problem, one.solution))
    return Comparison(
        schema=SCHEMA_VERSION,
        old=old.name,
        new=new.name,
        bound_percent=bound_percent,
        differences=found,
        warnings=(warning,) if alone else (),
        solutions=tuple(solutions),
    )


def _compared(pair: Pair, bound_percent: float) -> Compared:
    old, new = pair
    shown = new or old
    assert shown is not None
    base = Compared(
        problem=shown.problem or (old.problem if old is not None else ""),
        solution=shown.solution,
        outcome=Outcome.NEW if old is None else Outcome.GONE,
        old_solution=old.solution if old and old.solution != shown.solution else "",
        old_status=None if old is None else old.status,
        new_status=None if new is None else new.status,
        old_ms=_median_ms(old),
        new_ms=_median_ms(new),
    )
    if old is None or new is None:
        return base
    if old.passed and new.passed:
        return _both_passed(base, old, new, bound_percent)
    told: tuple[str, ...] = ()
    if new.owner is not Owner.CANDIDATE:
        outcome = Outcome.NOT_JUDGED
        told = (f"{new.status.value} is the {new.owner.value}'s doing, not the candidate's",)
    elif old.owner is not Owner.CANDIDATE:
        outcome = Outcome.NOT_COMPARED
        told = ("it was not judged before",)
    elif old.passed:
        outcome = Outcome.BROKE
        told = tuple(new.reason.splitlines()[:1])
    else:
        outcome = Outcome.MENDED if new.passed else Outcome.FAILS
    return msgspec.structs.replace(base, outcome=outcome, remarks=told)


def _both_passed(base: Compared, old: Verdict, new: Verdict, bound_percent: float) -> Compared:
    found = other_problem(old, new) or speed_since(old.timing, new.timing)
    if isinstance(found, str):
        return msgspec.structs.replace(base, outcome=Outcome.NOT_COMPARED, remarks=(found,))
    speed, baseline = found
    outcome = Outcome.REGRESSED if beyond(speed, bound_percent) else Outcome(speed.says)
    unchanged = outcome is not Outcome.SAME and old.solution_sha256 == new.solution_sha256
    return msgspec.structs.replace(
        base,
        outcome=outcome,
        speed=speed,
        baseline=baseline,
        remarks=(_SAME_FILE,) if unchanged else (),
    )


def _median_ms(verdict: Verdict | None) -> float | None:
    return None if verdict is None or verdict.timing is None else verdict.timing.candidate_ms


def pairs(old: Sequence[Verdict], new: Sequence[Verdict]) -> list[Pair]:
    """Return the verdicts on the same solution, old and new; None where a run has none.

    They are matched by problem and path; what is left by problem and file name, where each run has
    one such file; and what is left then by path alone, where one of the two has no problem, because
    none could be found. The same file graded twice in a run is matched in order.
    """
    found: list[Pair] = []
    left = _match(found, old, new, key=lambda one: (one.problem, _path(one)), once=False)
    left = _match(
        found, *left, key=lambda one: (one.problem, posixpath.basename(_path(one))), once=True
    )
    lost = {_path(verdict) for side in left for verdict in side if not verdict.problem}
    # What is not lost has a key of its own, and so no partner.
    left = _match(
        found, *left, key=lambda one: _path(one) if _path(one) in lost else id(one), once=True
    )
    return [*found, *((one, None) for one in left[0]), *((None, one) for one in left[1])]


def _match(
    found: list[Pair],
    old: Sequence[Verdict],
    new: Sequence[Verdict],
    *,
    key: Callable[[Verdict], Hashable],
    once: bool,
) -> tuple[list[Verdict], list[Verdict]]:
    """Add the pairs with equal keys and return what is left; with `once`, only unambiguous ones."""
    alike: dict[Hashable, tuple[list[Verdict], list[Verdict]]] = {}
    for side, verdicts in enumerate((old, new)):
        for verdict in verdicts:
            alike.setdefault(key(verdict), ([], []))[side].append(verdict)
    left: tuple[list[Verdict], list[Verdict]] = ([], [])
    for before, after in alike.values():
        clear = not once or len(before) == len(after) == 1
        together = min(len(before), len(after)) if clear else 0
        found += zip(before[:together], after[:together], strict=True)
        left[0].extend(before[together:])
        left[1].extend(after[together:])
    return left


def _path(verdict: Verdict) -> str:
    return posixpath.normpath(verdict.solution)

"""Which verdict of one run belongs to which of another."""

import posixpath
from collections.abc import Callable, Hashable, Sequence

from kernelgen.grading.verdict import Verdict

Pair = tuple[Verdict | None, Verdict | None]
_Key = Callable[[Verdict], Hashable]


def pairs(old: Sequence[Verdict], new: Sequence[Verdict]) -> list[Pair]:
    """Return the verdicts on the same solution, old and new; None where a run has none.

    They are matched by problem and path; what is left by problem and file name, where each run has
    one such file; and what is left then by path alone, where one of the two has no problem, because
    none could be found. The same file graded twice in a run is matched in order.
    """
    found: list[Pair] = []
    rest = (list(old), list(new))
    keys: tuple[tuple[_Key, bool], ...] = (
        (lambda one: (one.problem, _path(one)), False),
        (lambda one: (one.problem, posixpath.basename(_path(one))), True),
    )
    for key, once in keys:
        rest = _match(found, *rest, key=key, once=once)
    lost = {_path(verdict) for side in rest for verdict in side if not verdict.problem}
    mute = [[one for one in side if _path(one) in lost] for side in rest]
    others = [[one for one in side if _path(one) not in lost] for side in rest]
    left = _match(found, *mute, key=_path, once=True)
    found += [(verdict, None) for verdict in (*left[0], *others[0])]
    found += [(None, verdict) for verdict in (*left[1], *others[1])]
    return found


def _match(
    found: list[Pair], old: Sequence[Verdict], new: Sequence[Verdict], *, key: _Key, once: bool
) -> tuple[list[Verdict], list[Verdict]]:
    """Add the pairs with equal keys and return what is left; with `once`, only unambiguous ones."""
    waiting: dict[Hashable, list[Verdict]] = {}
    arriving: dict[Hashable, list[Verdict]] = {}
    for verdicts, by_key in ((old, waiting), (new, arriving)):
        for verdict in verdicts:
            by_key.setdefault(key(verdict), []).append(verdict)
    left: tuple[list[Verdict], list[Verdict]] = ([], [])
    for each in dict.fromkeys((*waiting, *arriving)):
        before, after = waiting.get(each, []), arriving.get(each, [])
        clear = not once or len(before) == len(after) == 1
        together = min(len(before), len(after)) if clear else 0
        found += zip(before[:together], after[:together], strict=True)
        left[0].extend(before[together:])
        left[1].extend(after[together:])
    return left


def _path(verdict: Verdict) -> str:
    return posixpath.normpath(verdict.solution)

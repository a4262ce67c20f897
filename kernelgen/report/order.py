"""The order in which the verdicts of a run are shown; its JSON keeps the one they were given in."""

import math
from collections.abc import Callable
from typing import Literal

import msgspec

from kernelgen.grading.verdict import Run, Status, Verdict

Order = Literal["problem", "name", "status", "time", "speedup"]
ORDERS: tuple[Order, ...] = ("problem", "name", "status", "time", "speedup")
"""What verdicts may be sorted by; the first is the default."""

_STATUSES = list(Status)
_Key = tuple[float | str, ...]


def ordered(run: Run, order: Order) -> Run:
    """Return the run with its verdicts sorted, those that are alike in the order they were in.

    Args:
        run: any run.
        order: `problem`: by problem, then passes before failures, then the shortest time first,
            and where several devices are in the run, one device after the other; `name`: by the
            solution's path; `status`: passes first, then as docs/statuses.md lists them; `time`:
            the shortest first; `speedup`: the largest over eager first, or over another baseline
            where eager was not timed. What has no time comes last.
    """
    verdicts = sorted(run.verdicts, key=_KEYS[order])
    if order == "problem":
        devices = list(dict.fromkeys(verdict.device for verdict in run.verdicts if verdict.device))
        # What was not run on any stands with the first.
        verdicts.sort(key=lambda one: devices.index(one.device) if one.device else 0)
    return msgspec.structs.replace(run, verdicts=tuple(verdicts))


def _status(verdict: Verdict) -> int:
    return _STATUSES.index(verdict.status)


def _time_ms(verdict: Verdict) -> float:
    return math.inf if verdict.timing is None else verdict.timing.candidate_ms


def _speedup(verdict: Verdict) -> float:
    found = {} if verdict.timing is None else verdict.timing.speedup
    best = found.get("eager", next(iter(found.values()), None))
    return 0.0 if best is None else best.median


_KEYS: dict[Order, Callable[[Verdict], _Key]] = {
    "problem": lambda verdict: (verdict.problem, _status(verdict), _time_ms(verdict)),
    "name": lambda verdict: (verdict.solution,),
    "status": lambda verdict: (_status(verdict), verdict.problem, _time_ms(verdict)),
    "time": lambda verdict: (_time_ms(verdict), _status(verdict)),
    "speedup": lambda verdict: (-_speedup(verdict), _time_ms(verdict), _status(verdict)),
}

"""A verdict beside what a candidate's header says that it must be."""

import re

from kernelgen.grading.verdict import Status, Verdict, owner_of
from kernelgen.selftest.corpus import Candidate

_LOG_LIMIT_CHARACTERS = 64 << 10
_SHOWN_CHARACTERS = 200


def misses(candidate: Candidate, verdict: Verdict, expect: Status | None = None) -> tuple[str, ...]:
    """Return in words where a verdict departs from a candidate's header; nothing if it does not.

    Args:
        candidate: what must be.
        verdict: what is.
        expect: the status that it must have, where that is not the header's `expect`.
    """
    status = expect or candidate.expect
    found: list[str] = []
    if verdict.status is not status:
        found.append(f"the status is {verdict.status.value}, not {status.value}")
    elif verdict.owner is not owner_of(status):
        found.append(f"the owner is the {verdict.owner.value}, not the {owner_of(status).value}")
    found += [
        f"the reason does not contain {text!r}"
        for text in candidate.reason
        if text not in verdict.reason
    ]
    warnings = "\n".join(verdict.warnings)
    found += [f"no warning contains {text!r}" for text in candidate.warning if text not in warnings]
    line = candidate.blamed_line
    if line is not None and not re.search(rf"(:|line ){line}\b", verdict.reason):
        found.append(f"the reason does not name line {line}")
    found += _mapping(candidate, verdict)
    found += _speedup(candidate, verdict)
    if len(verdict.log) > _LOG_LIMIT_CHARACTERS:
        length = len(verdict.log)
        found.append(f"the log has {length} characters, more than {_LOG_LIMIT_CHARACTERS}")
    return tuple(found)


def left_behind(processes: list[str]) -> tuple[str, ...]:
    """Return in words that processes of a candidate ran on when its verdict was there."""
    return tuple(
        f"a process was left behind: {process[:_SHOWN_CHARACTERS]}" for process in processes
    )


def _mapping(candidate: Candidate, verdict: Verdict) -> list[str]:
    if not candidate.maps:
        return []
    given = {} if verdict.correctness is None else verdict.correctness.parameters
    mapped = {f"{own} <- {name}" for own, name in given.items()}
    expected = set(candidate.maps)
    return [
        *(f"the parameter mapping lacks {one}" for one in sorted(expected - mapped)),
        *(f"the parameter mapping has {one}" for one in sorted(mapped - expected)),
    ]


def _speedup(candidate: Candidate, verdict: Verdict) -> list[str]:
    most = candidate.max_speedup
    if most is None:
        return []
    eager = None if verdict.timing is None else verdict.timing.speedup.get("eager")
    if eager is None:
        return ["there is no speedup over eager to be judged"]
    if eager.median < most:
        return []
    return [f"the speedup over eager is {eager.median:.3g}, which cannot be true over {most:g}"]

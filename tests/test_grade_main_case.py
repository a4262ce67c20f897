"""The main case's blocks of timed calls, and the looks for others between them."""

from types import SimpleNamespace
from typing import Any

import pytest

from kernelgen.grading.supervisor import main_case
from kernelgen.grading.supervisor.main_case import MainCase
from kernelgen.grading.timing.quiet import OTHER_WORK
from kernelgen.grading.wire import messages as m

BLOCK_S = 5e-3


def blocks(
    monkeypatch: pytest.MonkeyPatch, count: int, busy: list[int]
) -> tuple[list[int], list[int]]:
    """Time blocks; return after which there was a look, and which are to be timed again."""
    now, looks = [0.0], []
    monkeypatch.setattr(main_case, "perf_counter", lambda: now[0])
    number = 0

    def look(_: MainCase) -> m.Probed:
        looks.append(number)
        slow = 3.0 if number in busy else 1.0
        return m.Probed(elapsed_ms=slow, alone_ms=1.0, written_bytes=1, cache_bytes=0)

    monkeypatch.setattr(MainCase, "_probe", look)
    options = SimpleNamespace(call_timeout_s=1.0)
    evidence = SimpleNamespace(ready=object())
    task: Any = SimpleNamespace(device="cuda", evidence=evidence, options=options)
    calls: Any = SimpleNamespace(new_inputs=lambda: None)
    unused: Any = None
    main = MainCase(task, unused, calls, unused, unused, stubs=(), rates={})
    conditions: Any = SimpleNamespace(look=tuple)
    again = []
    for number in range(count):
        now[0] += BLOCK_S
        timed = main._time_block([], conditions)  # noqa: SLF001 (which takes no device)
        again += [number] * (timed.throttled == (OTHER_WORK,))
    return looks, again


def test_no_candidate_can_tell_after_which_block_others_are_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [blocks(monkeypatch, 200, []) for _ in range(8)]
    assert all(not again and looks[:12] == list(range(12)) for looks, again in found)
    # On average every tenth of the others, which is every 50 ms.
    assert all(20 < len(looks) < 70 for looks, _ in found)
    assert len({tuple(looks) for looks, _ in found}) == len(found)


def test_where_others_were_seen_every_block_is_looked_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks, again = blocks(monkeypatch, 200, list(range(40, 190)))
    assert again == list(range(again[0], 190))
    assert looks[looks.index(again[0]) :] == list(range(again[0], 200))

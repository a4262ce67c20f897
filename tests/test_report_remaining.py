"""How long what is left will take."""

import time

import pytest

from kernelgen.report.remaining import Remaining


@pytest.mark.parametrize(
    ("total", "done", "after_s", "left"),
    [
        (4, 0, 30.0, ""),
        (4, 1, 10.0, "about 30 s left"),
        (4, 3, 30.0, "about 10 s left"),
        (100, 10, 60.0, "about 9 min left"),
        (4, 4, 30.0, ""),
        (4, 3, 3.0, ""),
    ],
)
def test_what_is_left_takes_as_long_as_what_is_done(
    monkeypatch: pytest.MonkeyPatch, total: int, done: int, after_s: float, left: str
) -> None:
    now_s = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    remaining = Remaining(total)
    for _ in range(done):
        remaining.one_done()
    now_s[0] += after_s
    assert remaining.left == left
    assert remaining.how_far == f"{done} of {total}" + (f", {left}" if left else "")

"""Odd Models: what is rendered computes what eager does, or is refused by a line that is true.

`KERNELGEN_ODD_MODELS=500 pytest tests/test_fuzz_models.py` draws so many, other ones each time.
"""

import concurrent.futures
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from odd_models import (
    ARGUMENTS,
    EXTRAS,
    FORMS,
    FRAMES,
    HEADS,
    INDENTS,
    LAYOUTS,
    MANNERS,
    STEPS,
    WORDS,
    OddModel,
    difference,
    eager_fails,
    rendered,
)

from kernelgen.solution.file import NO_KERNEL

Value = TypeVar("Value", bound=Hashable)
EXAMPLES = int(os.environ.get("KERNELGEN_ODD_MODELS", "0"))
FUZZ = settings(
    max_examples=EXAMPLES or 25,
    deadline=None,
    derandomize=not EXAMPLES,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
# For a call that compiles a file.
LIMIT_S = 120.0


@st.composite
def odd_models(draw: st.DrawFn) -> OddModel:
    def any_of(values: Iterable[Value]) -> st.SearchStrategy[Value]:
        return st.sampled_from([*values])

    def some(values: Iterable[str], most: int, least: int = 0) -> list[str]:
        return draw(st.lists(any_of(values), min_size=least, max_size=most, unique=True))

    names = some(WORDS, 4, 4)
    return OddModel(
        steps=tuple(some(STEPS, 5)),
        extra=draw(any_of(EXTRAS)),
        form=draw(any_of(FORMS)),
        layouts=(draw(any_of(LAYOUTS)), draw(any_of(LAYOUTS))),
        names=(names[0], names[1], names[2], names[3]),
        frames=tuple(some(FRAMES, 2)),
        head=draw(any_of(HEADS)),
        argument=ARGUMENTS.index(draw(any_of(ARGUMENTS))),
        indent=draw(any_of(INDENTS)),
        manners=tuple(some(MANNERS, 2)),
        rank=draw(st.integers(2, 4)),
    )


class Room:
    """A process that runs what was rendered; another one follows one that is lost."""

    def __init__(self) -> None:
        self._pool = self._opened()

    def _opened(self) -> concurrent.futures.ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        return concurrent.futures.ProcessPoolExecutor(1, mp_context=context)

    def call(self, function: Callable[..., str], *arguments: object) -> str:
        """Return what a function does there, or that the process is lost."""
        try:
            return self._pool.submit(function, *arguments).result(LIMIT_S)
        except (BrokenProcessPool, concurrent.futures.TimeoutError) as error:
            self.close()
            self._pool = self._opened()
            return f"the process is lost: {type(error).__name__}"

    def close(self) -> None:
        """End the process."""
        for process in multiprocessing.active_children():
            process.kill()
        self._pool.shutdown()


@pytest.fixture(scope="module")
def room() -> Iterator[Room]:
    room = Room()
    yield room
    room.close()


@pytest.mark.ci
def test_odd_models_are_rendered_as_eager_computes_them(
    room: Room, tmp_path: Path, compiled_folder: Path
) -> None:
    counts: Counter[str] = Counter()

    @FUZZ
    @given(odd_models())
    def each(model: OddModel) -> None:
        number = counts.total()
        reference = tmp_path / f"reference_{number}.py"
        reference.write_bytes(model.text().encode())
        assume(not room.call(eager_fails, reference))
        text, why = rendered(reference)
        counts["refused" if why else "in torch" if NO_KERNEL in text else "written"] += 1
        if text:
            solution = tmp_path / f"solution_{number}.py"
            solution.write_text(text)
            assert not room.call(difference, reference, solution, compiled_folder)

    each()
    # Most others have a part that is refused, or that stays in torch with all the rest.
    assert counts["written"] > counts.total() / 4, counts

"""A lane that grades and a server that forks, which a module's tests share: each takes seconds.

The lane has the environment that it was started with: tests that change theirs use `grade`.
"""

import contextlib
import itertools
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from unittest import mock

from kernelgen.build.source import CaptureReply, CaptureRequest
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.queue.job import Job
from kernelgen.grading.supervisor.lane import Lane, open_oracles
from kernelgen.grading.supervisor.prebuilding import open_server, told_by_a_fork
from kernelgen.grading.supervisor.servers import Zygote, Zygotes
from kernelgen.grading.supervisor.workers import ForkServer
from kernelgen.grading.verdict import Status, Verdict

_OPEN = contextlib.ExitStack()
_LANES: list[Lane] = []
_SERVERS: list[ForkServer] = []
_NUMBERS = itertools.count()


def graded(path: Path, options: GradeOptions) -> Verdict:
    """Return the verdict on a file."""
    if not _LANES:
        scratch = _OPEN.enter_context(tempfile.TemporaryDirectory())
        oracles = contextlib.closing(open_oracles(Path(scratch), compiles=False))
        lane = Lane(Path(scratch), _OPEN.enter_context(oracles))
        _LANES.append(_OPEN.enter_context(lane))
    job, never = Job(path=path, options=options), threading.Event()
    return _LANES[0].grade_one(job, next(_NUMBERS), lambda _: None, stop=never)


def tell(request: CaptureRequest, timeout_s: float) -> CaptureReply:
    """Have a contained process say what a file builds."""
    if not _SERVERS:
        _SERVERS.append(_OPEN.enter_context(open_server()))
    return told_by_a_fork(_SERVERS[0], request, timeout_s)


def until_timed(grade: Callable[[], Verdict]) -> Verdict:
    """Return a verdict with times: tests beside this one may leave none that can be told."""
    for _ in range(5):
        verdict = grade()
        if verdict.status is not Status.PASSED or verdict.timing is not None:
            break
    return verdict


def close_lane() -> None:
    """End the lane, if there is one."""
    _LANES.clear()
    _SERVERS.clear()
    _OPEN.close()


@contextlib.contextmanager
def kept(zygotes: Zygotes) -> Iterator[None]:
    """Use each zygote that anybody borrows until the end, so that it is there for the next one."""
    borrow, held = zygotes.borrow, list[Zygote]()

    def borrowed(environment: Mapping[str, str], modules: Sequence[str]) -> Zygote:
        found = borrow(environment, modules)
        if found not in held:
            held.append(borrow(environment, modules))
        return found

    with mock.patch.object(zygotes, "borrow", borrowed):
        yield
    for zygote in held:
        zygotes.give_back(zygote)

"""Compiling a candidate's extensions before its process is started, or finding them kept."""

import contextlib
import functools
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernelgen.build.capture import CaptureError, no_reply
from kernelgen.build.prebuild import Prebuilt, Wanted, prebuild
from kernelgen.build.source import CaptureReply, CaptureRequest
from kernelgen.build.store import BuildStore
from kernelgen.errors import KernelgenFault
from kernelgen.grading.launch import cores_aside
from kernelgen.grading.supervisor.calls import Task
from kernelgen.grading.supervisor.servers import WorkerGone
from kernelgen.grading.supervisor.workers import ForkServer
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.channel import ChannelGarbage
from kernelgen.grading.wire.forking import CANDIDATE_MODULES
from kernelgen.sandbox.watch import OverLimit
from kernelgen.scratch import temporary_folder

_NICENESS = 10
_CONTAIN_TIMEOUT_S = 60.0
_SHOWN_BYTES = 2000


def prebuild_solution(
    task: Task, capability: tuple[int, int] | None, server: ForkServer
) -> Prebuilt:
    """Fill the build cache with what a candidate builds; needs no GPU, and any thread may call it.

    `capability` is that of the GPU to be graded on, such as (9, 0), or None for the CPU.

    Raises:
        KernelgenFault: this machine could not contain it.
    """
    options, problem = task.options, task.problem
    # Without containment, the build is not contained either.
    if options.build_cache is None or options.sandbox == "off":
        return Prebuilt()
    wanted = Wanted(
        solution=task.solution,
        reference_source=problem.reference_source(problem.all_cases()[0], task.device),
        capability=capability,
        timeout_s=options.build_timeout_s,
        stop=task.stop,
        tell=functools.partial(told_by_a_fork, server),
    )
    try:
        # In a thread of its own: what it starts has the thread's priority and cores.
        with ThreadPoolExecutor(1, initializer=_stand_aside) as thread:
            return thread.submit(prebuild, wanted, BuildStore(options.build_cache)).result()
    except OSError as error:
        return Prebuilt(warning=f"the build cache {options.build_cache} was of no use: {error}")


def told_by_a_fork(server: ForkServer, request: CaptureRequest, timeout_s: float) -> CaptureReply:
    """Have a fork say what a solution builds, which need not import torch.

    With the server, which another thread may stop, all of it ends.

    Raises:
        CaptureError: it gave no reply.
        KernelgenFault: this machine could not contain it, or the server was stopped.
    """
    worker = server.fork(Path(request.scratch), {}, request.plan)
    try:
        # No code of the candidate's is there yet: this, and only this, is our own word.
        found = worker.receive(_CONTAIN_TIMEOUT_S)
        if isinstance(found, m.NotContained):
            what = f"kernelgen could not contain {request.solution}: {found.reason}"
            raise KernelgenFault(f"{what}; `kernelgen doctor` says what this machine offers")
        worker.send(m.TellRecipes(request=request))
        found = worker.receive(timeout_s)
    except WorkerGone as end:
        raise CaptureError(no_reply(end.exit_code, worker.log_tail(_SHOWN_BYTES).strip())) from end
    except ChannelGarbage as error:
        raise CaptureError(f"it sent something that is no reply: {error}") from error
    except (TimeoutError, OverLimit) as error:
        why = str(error) or f"it took longer than {timeout_s:g} s"
        what = "no extension was built: the process that imports the file was killed"
        raise CaptureError(f"{what}: {why}") from error
    finally:
        worker.end()
        worker.release()
    if isinstance(found, m.RecipesTold):
        return found.reply
    raise CaptureError(
        getattr(found, "message", "") or f"it answered with a {type(found).__name__}"
    )


def told_alone(request: CaptureRequest, timeout_s: float) -> CaptureReply:
    """Have a fork of a new server say it, for who has none; as `told_by_a_fork`."""
    with open_server() as server:
        return told_by_a_fork(server, request, timeout_s)


@contextlib.contextmanager
def open_server() -> Iterator[ForkServer]:
    """A server for `told_by_a_fork`; raises KernelgenFault where none can be started."""
    with temporary_folder() as folder, ForkServer(folder, CANDIDATE_MODULES) as server:
        yield server


def _stand_aside() -> None:
    thread = threading.get_native_id()
    nicer = max(_NICENESS, os.getpriority(os.PRIO_PROCESS, thread))  # less of it takes a privilege
    os.setpriority(os.PRIO_PROCESS, thread, nicer)
    if aside := cores_aside():
        os.sched_setaffinity(thread, aside)

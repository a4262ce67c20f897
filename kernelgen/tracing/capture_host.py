"""The process that has imported torch and forks a contained child for each problem to trace.

A fresh `import torch` costs seconds, a fork a few milliseconds. This process runs no code of a
problem's, ends what a child left behind, and ends itself when nobody reads its answers any more. A
child's answer is passed on as it is: who asked checks it.
"""

import contextlib
import os
import selectors
import signal
import struct
import time
import warnings
from typing import IO

import msgspec

from kernelgen.errors import line_in
from kernelgen.graph.graph import Graph
from kernelgen.graph.sizes import Resize, resizes_of
from kernelgen.problem.record import Precision
from kernelgen.sandbox import kernel
from kernelgen.sandbox.enter import enter
from kernelgen.sandbox.forks import close_all_but, end_children, kill_fork
from kernelgen.sandbox.record import Plan, SandboxError
from kernelgen.sandbox.tree import children_of, processes_below
from kernelgen.sandbox.watch import OverLimit, Watch

MOST_BYTES = 32 << 20
_POLL_S = 0.2
_LENGTH = struct.Struct("<Q")
# With operators and a size: a child's first trace takes two thirds as long after it.
_WARM_UP = """
import torch
class Model(torch.nn.Linear):
    def forward(self, x): return torch.relu(super().forward(x)).sum(-1) / x.shape[0] + x.view(4)[:2]
def get_inputs(): return [torch.rand(2, 2)]
def get_init_inputs(): return [2, 2]
"""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """A trace that is asked for; the attributes are arguments of `trace`."""

    source: str
    eval_mode: bool
    precision: Precision
    gradients: bool
    resize: Resize | None


def resized(trace: Trace, graph: Graph) -> list[Trace]:
    """Return a trace, which found a graph, with each size doubled."""
    return [msgspec.structs.replace(trace, resize=resize) for resize in resizes_of(graph)]


class TraceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A problem to trace.

    Attributes:
        traces: of its cases, one after the other in one process.
        doubled: the first also with each of its sizes doubled, in the order of `resizes_of`.
        plan: what is put around its process.
        deadline_s: for all of it.
    """

    traces: tuple[Trace, ...]
    doubled: bool
    plan: Plan
    deadline_s: float


class Traced(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A problem's graph.

    Attributes:
        graph: without `made_with`, whose lists and tuples differ.
        made_with: its repr.
    """

    graph: Graph
    made_with: str


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Why there is none.

    Attributes:
        kind: `graph` where forward has none; else the name of what the problem's code raised.
        line: of the problem's source; 0 if none is to blame.
        module: that is not installed, if that is why.
    """

    kind: str
    message: str
    line: int = 0
    module: str = ""


class NotContained(msgspec.Struct, frozen=True, tag=True):
    """This machine could not contain the child."""

    reason: str


Reply = Traced | Refused | NotContained


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A child's answer: a reply for each trace, and how it ended if it sent nothing whole."""

    reply: bytes = b""
    ended: str = ""


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Return the next message of a stream; None at its end."""
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(header)
    return stream.read(length)


def frame(message: bytes) -> bytes:
    """Return a message with its length before it."""
    return _LENGTH.pack(len(message)) + message


def main() -> None:
    """Answer requests from standard input, until it ends."""
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    asked, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    warnings.simplefilter("ignore")
    # Before any wall is up: then the package is out of sight, and what export imports is there.
    from kernelgen.tracing.trace import trace

    trace(_WARM_UP)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    with contextlib.suppress(BrokenPipeError):  # who asked is gone
        while (raw := read_frame(asked)) is not None:
            request = msgspec.msgpack.decode(raw, type=TraceRequest)
            answers.write(frame(msgspec.msgpack.encode(_answer(request, asked.fileno()))))
            answers.flush()
    os._exit(0)


def _answer(request: TraceRequest, asked: int) -> Answer:
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        _become(request, writer)
    os.close(writer)
    try:
        return _receive(reader, pid, request, asked)
    finally:
        os.close(reader)
        _end(pid)


def _receive(reader: int, pid: int, request: TraceRequest, asked: int) -> Answer:
    deadline = time.monotonic() + request.deadline_s
    received = bytearray()
    limits = request.plan.limits
    assert limits is not None, "a problem is never traced without limits"
    watch = Watch(limits, lambda: processes_below(children_of(os.getpid())), 1)
    with selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        selector.register(asked, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            try:
                watch.look()
            except OverLimit as over:
                return Answer(ended=f"was stopped: {over}")
            ready = {key.fd for key, _ in selector.select(_POLL_S)}
            if asked in ready:  # nobody asks twice at once: it was closed
                _end(pid)
                os._exit(0)
            if reader not in ready:
                if _end_of(pid) is not None:
                    return Answer(ended=_how_it_ended(pid))
                continue
            chunk = os.read(reader, 1 << 16)
            if not chunk:
                return Answer(ended=_how_it_ended(pid))
            received += chunk
            if len(received) > MOST_BYTES:
                return Answer(ended="sent too much")
            if len(received) >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(received)
                if len(received) >= _LENGTH.size + length:
                    return Answer(reply=bytes(received[_LENGTH.size :][:length]))
    return Answer(ended=f"took longer than {request.deadline_s:g} s")


def _end_of(pid: int) -> os.waitid_result | None:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)


def _how_it_ended(pid: int) -> str:
    deadline = time.monotonic() + 1.0
    while (found := _end_of(pid)) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    if found is None:
        return "closed its answer"
    if found.si_code == os.CLD_EXITED:
        return f"left with exit code {found.si_status}"
    return f"was killed by {signal.Signals(found.si_status).name}"


def _end(pid: int) -> None:
    """Kill a child and all that came to us from it."""
    kill_fork(pid)
    end_children()


def _become(request: TraceRequest, writer: int) -> None:
    """Turn this fork into the process that traces a problem; never returns."""
    try:
        os.setsid()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        close_all_but(writer)
        try:
            enter(request.plan)
            replies = [_reply(trace) for trace in request.traces]
            if request.doubled and isinstance(first := replies[0], Traced):
                replies += map(_reply, resized(request.traces[0], first.graph))
        except SandboxError as error:
            replies = [NotContained(str(error))]
        message = frame(msgspec.msgpack.encode(replies))
        while message:
            message = message[os.write(writer, message) :]
    finally:
        # Threads and exit hooks of the problem have no say any more.
        os._exit(0)


def _reply(asked: Trace) -> Reply:
    from kernelgen.graph.graph import NotPlannedError
    from kernelgen.tracing.model.flattened import WrongInputsError
    from kernelgen.tracing.model.watched import SOURCE_NAME
    from kernelgen.tracing.trace import trace

    try:
        graph = trace(**msgspec.structs.asdict(asked))
        bare = msgspec.structs.replace(graph, made_with={})
        return Traced(graph=bare, made_with=repr(graph.made_with))
    except NotPlannedError as error:
        return Refused(kind="graph", message=str(error))
    except WrongInputsError as error:
        return Refused(kind="inputs", message=str(error))
    except BaseException as error:  # noqa: BLE001 - the problem's code may raise anything
        line, kind = line_in(error, SOURCE_NAME) or 0, type(error).__name__
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        words = (str(error).strip().splitlines() or [""])[0]
        if not line and isinstance(error, Exception):
            return Refused(kind="graph", message=f"to trace it fails ({kind}: {words})")
        if "CUDA" in words or "NVIDIA" in words:
            return Refused(kind="graph", message=f"its code needs a GPU to be traced ({words})")
        return Refused(kind=kind, message=words, line=line, module=missing or "")

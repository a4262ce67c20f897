"""A problem's graph, from a contained process: its code is a stranger's, and is not run here.

One process imports torch for all problems of this one, which takes seconds, and forks a contained
child for each (`capture_host.py`). What a child sends is read as records, and checked.
"""

import ast
import atexit
import contextlib
import functools
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec

from kernelgen.child_python import python_command
from kernelgen.errors import KernelgenFault, ProblemError
from kernelgen.graph.graph import Graph, Named, is_plain, items_of
from kernelgen.graph.sizes import Resize
from kernelgen.problem.python_text import parse_python
from kernelgen.problem.record import Case, Device, Problem
from kernelgen.sandbox.environment import room_environment
from kernelgen.sandbox.limits import usual_limits
from kernelgen.sandbox.record import Plan
from kernelgen.sandbox.survey import survey
from kernelgen.scratch import temporary_folder
from kernelgen.solution.imports import allowed_modules
from kernelgen.solution.source import Source
from kernelgen.tracing.capture_host import (
    Answer,
    NotContained,
    Refused,
    Reply,
    Trace,
    TraceRequest,
    frame,
    read_frame,
    resized,
)

# Most take a fifth of a second, the largest of KernelBench's three.
DEADLINE_S = 60.0
# Shapes without values take next to nothing, parameters that a constructor reads what they take.
_MEMORY_BYTES = 8 << 30
# Syntax of a value, or of the place of one; `torch.tensor` is for a constant.
_OF_TEXT = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.expr_context),
    *(ast.Tuple, ast.List, ast.Dict, ast.Set, ast.UnaryOp, ast.USub, ast.Call, ast.keyword),
)
_CALLED = ("", "len", "set", "float", "torch.tensor", "self.get_submodule")
_METHODS = (".is_contiguous", ".item", ".stride")


class NoGraphError(ProblemError):
    """A Model whose forward has no graph, which stays in torch; `why` is for a user."""

    def __init__(self, path: Path, why: str) -> None:
        before, after = "no kernels can be planned: ", "; it can still be graded"
        super().__init__(path, None, "model", f"{before}{why}{after}")
        self.why = self.message.removeprefix(before).removesuffix(after)


_KNOWN: dict[Trace, Graph | Refused] = {}


def graph_of(problem: Problem, case: Case, device: Device) -> Graph:
    """Return the graph of a case's forward, at its sizes on a device.

    What a plan needs next is traced with it: all cases, and this one with sizes doubled. The first
    call of a process takes as long as importing torch does; the same source is traced once.

    Raises:
        ProblemError: the problem's code fails, or its forward has no graph.
        KernelgenFault: the process that traces does not start, or cannot be contained.
    """
    asked = [(case, None), *((other, None) for other in problem.cases)]
    found = graphs_of(problem, asked, device, doubled=True)[0]
    if isinstance(found, ProblemError):
        raise found
    return found


def close() -> None:
    """End the process that traces, if there is one; the next problem starts another."""
    if _server.cache_info().currsize:
        _server().stop()
        _server.cache_clear()


def graphs_of(
    problem: Problem,
    asked: Iterable[tuple[Case, Resize | None]],
    device: Device,
    *,
    doubled: bool = False,
) -> list[Graph | ProblemError]:
    """Return several graphs of a problem, or why there is none: one process traces them all.

    A case's is at its sizes, or with one of them doubled; with `doubled`, those of the first are
    traced for later calls.

    Raises:
        KernelgenFault: as of `graph_of`.
    """
    traces = [
        Trace(
            source=problem.reference_source(case, device),
            eval_mode=problem.eval_mode,
            precision=problem.precision,
            gradients=problem.gradients,
            resize=resize,
        )
        for case, resize in asked
    ]
    new = tuple(trace for trace in dict.fromkeys(traces) if trace not in _KNOWN)
    if new:
        modules = (allowed_modules(Source(t.source, parse_python(t.source)), problem) for t in new)
        imports = tuple(dict.fromkeys(name for names in modules for name in names))
        _KNOWN.update(_traced(new, imports, doubled=doubled and traces[0] in new))
    return [_found(problem, _KNOWN[trace]) for trace in traces]


def _found(problem: Problem, reply: Graph | Refused) -> Graph | ProblemError:
    if isinstance(reply, Graph):
        return reply
    message = f"its code raises {reply.kind}: {reply.message}"
    if reply.module:
        message = f"it needs the module {reply.module}, which is not installed; install it"
    elif reply.kind == "inputs":
        message = reply.message
    elif reply.kind == "graph":
        return NoGraphError(problem.path, reply.message)
    blame = reply.line if problem.module_source is not None and reply.line else None
    return ProblemError(problem.path, blame, "model", message)


def _traced(
    traces: tuple[Trace, ...], imports: tuple[str, ...], *, doubled: bool = False
) -> dict[Trace, Graph | Refused]:
    answer = _server().ask(traces, imports, doubled=doubled)
    if answer.ended and (doubled or len(traces) > 1):  # by one of them
        return {of: reply for one in traces for of, reply in _traced((one,), imports).items()}
    if answer.ended:
        reason = f"the process that traces it {answer.ended}"
        return {traces[0]: Refused(kind="graph", message=reason)}
    try:
        replies = [*map(_checked, msgspec.msgpack.decode(answer.reply, type=tuple[Reply, ...]))]
        if doubled and replies and isinstance(first := replies[0], Graph):
            traces = (*traces, *resized(traces[0], first))
        return dict(zip(traces, replies, strict=True))
    except (msgspec.MsgspecError, RecursionError, SyntaxError, TypeError, ValueError) as error:
        message = f"the process that traces it sent no graph: {error}"
        return dict.fromkeys(traces, Refused(kind="graph", message=message))


def _checked(reply: Reply) -> Graph | Refused:
    """Return a graph whose values are made before they are read, under names that may be printed.

    Paths of parameters may be any text: rendering quotes what is no name.

    Raises:
        ValueError: it is none that a trace makes.
        KernelgenFault: the process was not contained, and traced nothing.
    """
    if isinstance(reply, NotContained):
        raise KernelgenFault(
            f"kernelgen could not contain a problem: {reply.reason}; "
            "`kernelgen doctor` says what this machine offers"
        )
    if isinstance(reply, Refused):
        return reply
    graph, made_with = reply.graph, ast.literal_eval(reply.made_with)
    known: set[str] = set()
    for one in graph.inputs:
        _check_names(one.name, one.type.dtype, *([one.size.input] if one.size else []))
        _check_text(*([one.text] if one.text else []))
        known.add(one.name)
    for node in graph.nodes:
        items = items_of(*node.arguments.values())
        named = [item.name for item in items if isinstance(item, Named)]
        dtypes = [found.dtype for found in node.results if found]
        _check_names(node.name, node.aten.replace("::", "."), *node.arguments, *named, *dtypes)
        if not known.issuperset(node.reads) or not node.results:
            raise ValueError(f"{node.name} reads what is not there")
        known.add(node.name)
    _check_names(*(name.removeprefix("*") for name in graph.arguments))
    _check_names(*graph.kinds, *graph.kinds.values())
    _check_text(*graph.fixed, *graph.fixed.values())
    # A class of the problem's may be called with what forward returns.
    _check_text(re.sub(r"[\w.]+(?=\()", "", graph.returns % graph.outputs[: graph.returned]))
    if not {*graph.outputs, *graph.updates.values()} <= known:
        raise ValueError("it returns what is not there")
    if not isinstance(made_with, dict) or not all(map(is_plain, made_with.values())):
        raise ValueError("the constructor's arguments are no plain values")
    _check_names(*made_with, *graph.made_like)
    return msgspec.structs.replace(graph, made_with=made_with)


def _check_names(*names: str) -> None:
    parts = ((name, part) for name in names for part in name.split("."))
    if wrong := [name for name, part in parts if not part.isidentifier()]:
        raise ValueError(f"{wrong[0]!r} is no name")


def _check_text(*texts: str) -> None:
    for text in texts:
        for node in ast.walk(ast.parse(text, mode="eval")):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            known = called in _CALLED or called.endswith(_METHODS)
            if not isinstance(node, _OF_TEXT) or not known:
                raise ValueError(f"{text!r} is no value")


class _Server:
    """The process that forks: asked by one thread at a time, restarted if it is gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept = contextlib.ExitStack()
        self._scratch = Path(self._kept.enter_context(temporary_folder())).resolve()
        self._process: subprocess.Popen[bytes] | None = None
        self._said = self._kept.enter_context((self._scratch / "said.txt").open("wb+"))
        atexit.register(self.stop)

    def ask(self, traces: tuple[Trace, ...], imports: tuple[str, ...], *, doubled: bool) -> Answer:
        """Return what a child says of traces.

        Raises:
            KernelgenFault: the process does not start.
        """
        with self._lock, tempfile.TemporaryDirectory(dir=self._scratch) as scratch:
            plan = _containment(scratch, imports)
            request = TraceRequest(traces=traces, doubled=doubled, plan=plan, deadline_s=DEADLINE_S)
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            with contextlib.suppress(BrokenPipeError):  # it says nothing then, either
                process.stdin.write(frame(msgspec.msgpack.encode(request)))
                process.stdin.flush()
            raw = read_frame(process.stdout)
            if raw is None:
                code = process.wait()
                self._said.seek(0)
                said = self._said.read().decode(errors="replace").strip().splitlines()
                why = said[-1] if said else f"exit code {code}"
                raise KernelgenFault(f"the process that traces problems ended: {why}")
            return msgspec.msgpack.decode(raw, type=Answer)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = subprocess.Popen(
                python_command("kernelgen.tracing.capture_host"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                cwd=self._scratch,
                # No code of a problem's gets to the GPU, and none is needed for shapes.
                env={**room_environment(str(self._scratch)), "CUDA_VISIBLE_DEVICES": ""},
                start_new_session=True,  # Ctrl-C ends this process, and so its pipe
            )
        return self._process

    def stop(self) -> None:
        """End the process."""
        self._end()
        self._kept.close()
        atexit.unregister(self.stop)

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(BrokenPipeError):
                self._process.communicate()
            self._process = None


def _containment(scratch: str, imports: tuple[str, ...]) -> Plan:
    """Return as much as this machine has."""
    usual = usual_limits()
    memory_bytes = min(usual.memory_bytes, _MEMORY_BYTES)
    limits = msgspec.structs.replace(usual, memory_bytes=memory_bytes)
    plan = survey().plan(Path(scratch), limits=limits)
    return msgspec.structs.replace(plan, imports=imports, gpu=False)


@functools.cache
def _server() -> _Server:
    return _Server()

"""A problem's graph, from a contained process: its code is a stranger's, and is not run here.

One process imports torch for all problems of this one, which takes seconds, and forks a contained
child for each (`capture_host.py`). What a child sends is read as records, and checked.
"""

import ast
import atexit
import contextlib
import functools
import os
import re
import subprocess
import tempfile
import threading
from pathlib import Path

import msgspec

from kernelgen.child_python import python_command, python_path
from kernelgen.errors import KernelgenFault, ProblemError
from kernelgen.planning.capture_host import (
    Answer,
    NotContained,
    Refused,
    Reply,
    Traced,
    TraceRequest,
    frame,
    read_frame,
)
from kernelgen.planning.graph import Graph, is_plain, references
from kernelgen.problem.python_text import parse_python
from kernelgen.problem.record import Case, Device, Problem
from kernelgen.sandbox.environment import passed_on
from kernelgen.sandbox.limits import usual_limits
from kernelgen.sandbox.record import Plan
from kernelgen.sandbox.survey import survey
from kernelgen.scratch import temporary_folder
from kernelgen.solution.imports import allowed_modules
from kernelgen.solution.source import Source

# Most take a fifth of a second; torch unrolls a GRU of 512 steps to find its shapes, for 20 to 50.
DEADLINE_S = 120.0
# Shapes without values take next to nothing.
_MEMORY_BYTES = 4 << 30
_KEPT = 256
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*")
_GRADED = "it can still be graded"


def graph_of(
    problem: Problem, case: Case, device: Device, *, deadline_s: float = DEADLINE_S
) -> Graph:
    """Return the graph of a case's forward, at its sizes on a device.

    The first call of a process takes as long as importing torch does; the same source is traced
    once.

    Raises:
        ProblemError: the problem's code fails, or its forward has no graph.
        KernelgenFault: the process that traces does not start, or cannot be contained.
    """
    source = problem.reference_source(case, device)
    imports = allowed_modules(Source(source, parse_python(source)), problem)
    reply = _traced(source, problem.eval_mode, device, imports, deadline_s)
    if isinstance(reply, Graph):
        return reply
    blame = reply.line if problem.module_source is not None and reply.line else None
    raise ProblemError(problem.path, blame, "model", _message(reply))


def _message(refused: Refused) -> str:
    if refused.module:
        return f"it needs the module {refused.module}, which is not installed; install it"
    if refused.kind == "graph":
        return f"no kernels can be planned: {refused.message}; {_GRADED}"
    return f"its code raises {refused.kind}: {refused.message}"


@functools.lru_cache(maxsize=_KEPT)
def _traced(
    source: str,
    eval_mode: bool,  # noqa: FBT001 - a key of the cache
    device: Device,  # noqa: ARG001 - a key of the cache
    imports: tuple[str, ...],
    deadline_s: float,
) -> Graph | Refused:
    answer = _server().ask(source, eval_mode=eval_mode, imports=imports, deadline_s=deadline_s)
    if answer.ended:
        message = f"the process that traces it {answer.ended}"
        return Refused(kind="graph", message=message)
    try:
        reply = msgspec.msgpack.decode(answer.reply, type=Reply)
        if isinstance(reply, NotContained):
            raise KernelgenFault(
                f"kernelgen could not contain a problem: {reply.reason}; "
                "`kernelgen doctor` says what this machine offers"
            )
        return reply if isinstance(reply, Refused) else _checked(reply)
    except (msgspec.MsgspecError, RecursionError, SyntaxError, ValueError) as error:
        message = f"the process that traces it sent no graph: {error}"
        return Refused(kind="graph", message=message)


def _checked(traced: Traced) -> Graph:
    """Return a graph whose values are made before they are read, under names that may be printed.

    Raises:
        ValueError: it is none that a trace makes.
    """
    graph, made_with = traced.graph, ast.literal_eval(traced.made_with)
    known: set[str] = set()
    for one in graph.inputs:
        _check_names(one.name, *([one.path] if one.path else []))
        known.add(one.name)
    for node in graph.nodes:
        _check_names(node.name, node.aten, *node.arguments)
        read = {name for value in node.arguments.values() for name in references(value)}
        if not read <= known or not node.results:
            raise ValueError(f"{node.name} reads what is not there")
        known.add(node.name)
    _check_names(*graph.arguments, *graph.updates, *graph.fixed)
    if not {*graph.outputs, *graph.updates.values()} <= known:
        raise ValueError("it returns what is not there")
    if not isinstance(made_with, dict) or not all(map(is_plain, made_with.values())):
        raise ValueError("the constructor's arguments are no plain values")
    _check_names(*made_with)
    return msgspec.structs.replace(graph, made_with=made_with)


def _check_names(*names: str) -> None:
    if wrong := [name for name in names if not _NAME.fullmatch(name)]:
        raise ValueError(f"{wrong[0]!r} is no name")


class _Server:
    """The process that forks: asked by one thread at a time, restarted if it is gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept = contextlib.ExitStack()
        self._scratch = Path(self._kept.enter_context(temporary_folder())).resolve()
        self._process: subprocess.Popen[bytes] | None = None
        self._said = self._kept.enter_context((self._scratch / "said.txt").open("wb+"))
        atexit.register(self.stop)

    def ask(
        self, source: str, *, eval_mode: bool, imports: tuple[str, ...], deadline_s: float
    ) -> Answer:
        """Return what a child says of a source.

        Raises:
            KernelgenFault: the process does not start.
        """
        with self._lock, tempfile.TemporaryDirectory(dir=self._scratch) as scratch:
            request = TraceRequest(
                source=source,
                eval_mode=eval_mode,
                plan=_containment(scratch, imports),
                deadline_s=deadline_s,
            )
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
            self._process = subprocess.Popen(
                python_command("kernelgen.planning.capture_host"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                cwd=self._scratch,
                env={
                    **passed_on(os.environ),
                    "HOME": str(self._scratch),
                    "TMPDIR": str(self._scratch),
                    "PYTHONPATH": python_path(os.environ),
                    # No code of a problem's gets to the GPU, and none is needed for shapes.
                    "CUDA_VISIBLE_DEVICES": "",
                },
                start_new_session=True,  # Ctrl-C ends this process, and so its pipe
            )
        return self._process

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(BrokenPipeError):
                self._process.communicate()
        self._kept.close()


def _containment(scratch: str, imports: tuple[str, ...]) -> Plan:
    """Return as much as this machine has."""
    found, usual = survey(), usual_limits()
    memory_bytes = min(usual.memory_bytes, _MEMORY_BYTES)
    return Plan(
        level=found.level,
        landlock_abi=found.landlock_abi,
        scratch=scratch,
        limits=msgspec.structs.replace(usual, memory_bytes=memory_bytes),
        hidden=(str(Path.cwd()), str(Path(tempfile.gettempdir()).resolve())),
        home=str(Path.home()),
        imports=imports,
        gpu=False,
        missing=found.missing,
    )


@functools.cache
def _server() -> _Server:
    return _Server()

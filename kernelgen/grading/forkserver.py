"""A process that has imported torch and forks the oracle and the candidates from it.

A fresh `import torch` costs seconds, a fork a few milliseconds. So what its workers need is
imported here, before the first of them is forked. This process holds no secret, runs
no candidate code and never touches CUDA (a CUDA context does not survive a fork). It is the parent
of everything that grading starts, orphans included, so that it can end all of it: when told to, and
when the supervisor is gone, however that went. What it forks may be one more fork server.
"""

import contextlib
import ctypes
import faulthandler
import gc
import importlib.util
import os
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelgen.grading.wire import messages
from kernelgen.grading.wire.channel import CANDIDATE_LIMIT_BYTES, Channel, ChannelClosed
from kernelgen.grading.wire.forking import Fork, Forked, Look, Looked
from kernelgen.sandbox import kernel
from kernelgen.sandbox.enter import enter
from kernelgen.sandbox.forks import close_all_but, end_children, kill_fork
from kernelgen.sandbox.record import SandboxError
from kernelgen.sandbox.tree import contained_process
from kernelgen.sandbox.view import prepare_view

_TELL_SIGNAL = signal.SIGUSR1


def main() -> None:
    """Serve the supervisor whose socket is the descriptor named by the first argument.

    The other arguments are modules to import besides torch.
    """
    control_socket = socket.socket(fileno=int(sys.argv[1]))
    # A candidate finds signals as they are in a program that is started by hand; a thread of a Ray
    # worker has ^C blocked, for one.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # No process of the same user may read its memory, nor that of the oracle, which inherits this.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    _import_for_all(sys.argv[2:])
    if sys.argv[2:] and _useless_on_a_gpu():
        # One of the modules has asked CUDA for devices. Begin again with torch alone.
        os.execv(sys.executable, sys.orig_argv[: -len(sys.argv[2:])])  # noqa: S606 (no shell wanted)

    # The collector of a fork would write to all of these objects, and so copy their pages.
    gc.collect()
    gc.freeze()
    _serve_supervisor(control_socket)


def _import_for_all(modules: Sequence[str]) -> None:
    """Import what every fork needs: the whole point of this process."""
    for_now = {
        # torch._dynamo makes this folder at once, where torch keeps temporary files unless told.
        "TORCHINDUCTOR_CACHE_DIR": str(Path.cwd() / "inductor"),
        # Whether there is a GPU is then asked of NVML: no fork of a process that has asked CUDA may
        # use one.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        # Every fork begins with empty folders: what is kept in them would only be hashed.
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        # A pool's processes import torch anew, which takes several times what their kernels take.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    os.environ.update(for_now)
    importlib.import_module("torch")
    for module in modules:
        # Without setuptools nothing can be built, and torch says so.
        if module != "setuptools" or importlib.util.find_spec(module):
            importlib.import_module(module)
    _leave_nvml()
    for name in for_now:
        del os.environ[name]


def _leave_nvml() -> None:
    """Undo what has started NVML: a fork, whose descriptors are closed, has to start it anew."""
    with contextlib.suppress(OSError):  # nothing has loaded it
        nvml = ctypes.CDLL("libnvidia-ml.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        counted = True  # it counts how often it was started
        while counted:
            counted = nvml.nvmlShutdown() == 0


def _useless_on_a_gpu() -> bool:
    """Return whether a fork of this process would be refused by CUDA."""
    import torch

    if (pid := os.fork()) == 0:
        os._exit(int(torch.cuda._is_in_bad_fork()))  # noqa: SLF001 (torch says it nowhere else)
    return os.waitpid(pid, 0)[1] != 0


def _serve_supervisor(control_socket: socket.socket) -> None:
    """Fork for whoever has the other end, until that is closed; then end all that is left."""
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    control: Channel[Fork | Look] = Channel(control_socket, Fork | Look)
    exit_codes: dict[int, int | None] = {}
    try:
        with contextlib.suppress(ChannelClosed):
            while True:
                request = control.receive()
                if isinstance(request, Look):
                    code = _look(request, exit_codes)
                    control.send(Looked(exit_code=code, number=request.number))
                else:
                    pid = _forked(request, control.take_fds(), control_socket)
                    exit_codes[pid] = None
                    control.send(Forked(pid=pid, number=request.number))
    finally:
        for pid in [pid for pid, code in exit_codes.items() if code is None]:
            _look(Look(pid=pid, kill=True), exit_codes)


def _forked(request: Fork, fds: list[int], control_socket: socket.socket) -> int:
    channel_fd, log_fd = fds
    if request.plan is not None:
        prepare_view(request.plan.home)
    pid = os.fork()
    if pid == 0:
        control_socket.detach()
        _become(request, channel_fd, log_fd)
    os.close(channel_fd)
    os.close(log_fd)
    return pid


def _look(request: Look, exit_codes: dict[int, int | None]) -> int | None:
    pid = request.pid
    if request.tell and exit_codes[pid] is None:
        os.kill((contained_process(pid) if request.kept else None) or pid, _TELL_SIGNAL)
    if request.kill and exit_codes[pid] is None:  # else its number may be another's by now
        kill_fork(pid)
    if exit_codes[pid] is None:
        done, status = os.waitpid(pid, 0 if request.kill else os.WNOHANG)
        if done:
            exit_codes[pid] = os.waitstatus_to_exitcode(status)
    if request.kill:
        end_children({pid for pid, code in exit_codes.items() if code is None})
    return exit_codes[pid]


def _become(request: Fork, channel_fd: int, log_fd: int) -> None:
    """Turn this fork into a worker; never returns."""
    code = 1
    try:
        os.setsid()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        with open(os.devnull) as nothing:  # noqa: PTH123
            os.dup2(nothing.fileno(), 0)
        close_all_but(channel_fd)
        os.chdir(request.scratch)
        os.environ.update(request.environment)
        if request.cores:
            os.sched_setaffinity(0, request.cores)
        faulthandler.enable()
        # From C, at once, whatever the interpreter is doing.
        faulthandler.register(_TELL_SIGNAL, all_threads=False)
        _serve(request, socket.socket(fileno=channel_fd))
        code = 0
    except BaseException:  # noqa: BLE001 (the outermost frame of a process)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve(request: Fork, sock: socket.socket) -> None:
    if request.role == "server":
        _serve_supervisor(sock)
    elif request.role == "oracle":
        from kernelgen.grading.oracle import service

        service.Oracle(Channel(sock, messages.ToOracle)).serve()
    else:
        from kernelgen.grading.candidate import host

        channel: Channel[Any] = Channel(
            sock, messages.ToCandidate, sends_bytes=CANDIDATE_LIMIT_BYTES
        )
        assert request.plan is not None, "a candidate is never forked without a plan"
        try:
            containment = enter(request.plan)
        except SandboxError as error:
            channel.send(messages.NotContained(reason=str(error)))
            raise
        channel.send(messages.Contained(containment=containment))
        host.serve(channel, Path(request.scratch))


def run() -> None:
    """Serve, and end the process; never returns."""
    try:
        main()
    except BaseException:  # noqa: BLE001 (the outermost frame of a process)
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    # Past the interpreter's own ending, which takes torch most of a second and has nothing to save.
    os._exit(0)

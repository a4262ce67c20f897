"""The process that the others are forked from: what it may and may not have done."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgen.grading import forkserver
from kernelgen.grading.launch import worker_environment
from kernelgen.grading.options import GradeOptions, compiles_baselines
from kernelgen.grading.supervisor.servers import Zygotes
from kernelgen.grading.supervisor.workers import ForkServer
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.forking import (
    CANDIDATE_MODULES,
    COMPILER_MODULES,
    USUAL_MODULES,
    Look,
)
from kernelgen.sandbox.record import Plan

# Stands for a build with CUDA and a GPU, where any of what raises spoils every later fork.
IMPORTS = """\
import sys
import torch

def asks(*args, **kwargs):
    raise SystemExit("CUDA was asked for devices before the forks")

torch.version.cuda = "13.0"
torch.cuda._is_compiled = lambda: True
torch.cuda._device_count_nvml = lambda: 1
for name in ("_cuda_getDeviceCount", "_cuda_init", "_cuda_getCurrentRawStream"):
    setattr(torch._C, name, asks)

from kernelgen.grading import forkserver

forkserver._import_for_all(sys.argv[1:])
assert not set(sys.argv[1:]) - set(sys.modules)
assert "sympy" in sys.modules or "torch._dynamo" not in sys.argv
"""

# Its first call on a GPU is refused, as after a question that CUDA itself has answered.
SPOILS = """\
import torch

torch.cuda._is_in_bad_fork = lambda: True
"""


@pytest.mark.ci
@pytest.mark.parametrize("modules", [USUAL_MODULES, COMPILER_MODULES, CANDIDATE_MODULES])
def test_its_imports_do_not_touch_cuda(tmp_path: Path, modules: tuple[str, ...]) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, *modules],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.ci
@pytest.mark.parametrize("text", ["", SPOILS], ids=["harmless", "spoils"])
def test_a_module_that_spoils_the_forks_is_done_without(tmp_path: Path, text: str) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "imported_first.py").write_text(text)
    environment = worker_environment() | {"PYTHONPATH": str(modules)}
    with ForkServer(tmp_path, ("imported_first",), environment) as server:
        folder = tmp_path / "oracle"
        folder.mkdir()
        worker = server.fork(folder, {})
        (status,) = Path(f"/proc/{worker.pid}/status").read_text().splitlines()[6:7]
        parent = status.split()[1]
        command = Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0")
        assert (b"imported_first" in command) is not bool(text)
        worker.end()
        worker.release()


def test_a_zygote_lives_as_long_as_somebody_uses_it() -> None:
    zygotes, environment = Zygotes(), worker_environment()
    first, second = (zygotes.borrow(environment, ()) for _ in range(2))
    other = zygotes.borrow({**environment, "OMP_NUM_THREADS": "7"}, ())
    assert first is second is not other

    def running() -> list[bool]:
        return [first.running, other.running]

    zygotes.give_back(first)
    assert running() == [True, True]
    zygotes.give_back(second)
    assert running() == [False, True]
    zygotes.give_back(other)
    assert running() == [False, False]


NEIGHBOURLESS = """\
import sys

assert "setuptools" in sys.modules
neighbours = [name for name in sys.modules if name.startswith("kernelgen.grading.oracle")]
assert not neighbours, neighbours
"""


def test_a_candidate_begins_with_its_own_room_and_not_with_the_oracles(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    plan = Plan(level="none", landlock_abi=0, scratch=str(scratch), limits=None)
    with ForkServer(tmp_path, CANDIDATE_MODULES) as server:
        worker = server.fork(scratch, {}, plan)
        assert isinstance(worker.receive(60), m.Contained)
        text = NEIGHBOURLESS
        worker.send(m.BuildCandidate(file_name="x.py", text=text, device="cpu", threads=1))
        built = worker.receive(60)
        assert isinstance(built, m.CandidateBuilt), built
        worker.end()
        worker.release()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (GradeOptions(), True),
        (GradeOptions(device="cuda"), True),
        (GradeOptions(device="cpu"), False),
        (GradeOptions(device="cpu", baselines=("compile",)), True),
        (GradeOptions(baselines=("eager",)), False),
        (GradeOptions(baselines=()), False),
        (GradeOptions(time=False), False),
    ],
)
def test_the_compiler_is_imported_where_it_will_be_timed(
    monkeypatch: pytest.MonkeyPatch,
    options: GradeOptions,
    expected: bool,  # noqa: FBT001
) -> None:
    monkeypatch.setattr("kernelgen.grading.options.has_gpu_driver", lambda: True)
    assert compiles_baselines(options) is expected
    monkeypatch.setattr("kernelgen.grading.options.has_gpu_driver", lambda: False)
    assert compiles_baselines(options) is (expected and options.baselines is not None)


class Nvml:
    """Counts how often it was started, as NVML does."""

    def __init__(self, starts: int) -> None:
        self.starts = starts

    def nvmlShutdown(self) -> int:  # noqa: N802 (NVML's name)
        """Return 0, or 1 where it is not started."""
        self.starts -= 1
        return 0 if self.starts >= 0 else 1


@pytest.mark.parametrize("starts", [0, 1, 3])
def test_it_leaves_nvml_as_often_as_its_imports_have_started_it(
    starts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml = Nvml(starts)
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: nvml)
    forkserver._leave_nvml()  # noqa: SLF001 (what no fork can tell without a GPU)
    assert nvml.starts == -1


@pytest.mark.parametrize(("code", "killed"), [(None, [41]), (0, []), (-9, [])])
def test_a_number_that_may_be_another_process_by_now_is_not_killed(
    monkeypatch: pytest.MonkeyPatch, code: int | None, killed: list[int]
) -> None:
    found: list[int] = []
    monkeypatch.setattr(forkserver, "kill_fork", found.append)
    monkeypatch.setattr(forkserver, "end_children", lambda _: None)
    monkeypatch.setattr(os, "waitpid", lambda *_: (41, 9))
    codes = {41: code}
    # As a file asks for that gives way to others once its candidate has ended.
    assert forkserver._look(Look(pid=41, kill=True), codes) == (-9 if code is None else code)  # noqa: SLF001
    assert found == killed

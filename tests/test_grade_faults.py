"""Faults of the grader itself: a clear status, never a pass, and the next file is graded."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import torch
from test_grade_supervisor import alive, left_behind

from kernelgen.build.capture import plan_to_build
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.oracle.service import refusal_of
from kernelgen.grading.supervisor.blame import blame_for_memory, reconsider
from kernelgen.grading.supervisor.dialogue import Dialogue
from kernelgen.grading.supervisor.grade import grade
from kernelgen.grading.supervisor.oracle_client import stage_of
from kernelgen.grading.supervisor.workers import Worker
from kernelgen.grading.verdict import Judged, Owner, ProblemFault, Run, Status, Verdict
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.device_errors import is_device_loss
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Device, Problem
from kernelgen.sandbox.record import Plan
from kernelgen.sandbox.tree import own_bytes, processes_below

HERE = Path(__file__).parent
HONEST = HERE / "candidates" / "honest_softmax.py"
TIMED = GradeOptions(min_samples=3, max_samples=3, timing_budget_s=0.1)


def problem_of(candidate: Path) -> Problem:
    first = candidate.read_text().splitlines()[0].removeprefix("# problem: ")
    return load_problem(HERE / "problems" / f"{first}.yaml")


def graded(*files: Path, problem: Problem, time: bool = False) -> Run:
    return grade(files, options=msgspec.structs.replace(TIMED, problem=problem, time=time))


# --- the oracle is killed -------------------------------------------------------------------------

STAGES: dict[type, str] = {
    m.SetUpOracle: "while it started",
    m.MeasureCase: "while it estimated the memory of case main",
    m.OpenCase: "while it opened case ",
    m.MakeInputs: "while it made inputs",
    m.Verify: "while it compared outputs",
    m.VerifyInputs: "while it compared the inputs that were returned",
    m.WarmBaselines: "while it prepared the baselines",
    m.TimeBaseline: "while it timed the baseline eager",
}


class KillsTheOracle:
    """Kills an oracle at one stage after the other, each with the message on its way."""

    def __init__(self, stages: Sequence[type]) -> None:
        self._stages = list(stages)
        self._send = Worker.send

    def send(self, worker: Worker, message: Any, fds: tuple[int, ...] = ()) -> None:
        """Send, and kill if it is time."""
        due = self._stages and type(message) is self._stages[0]
        if due:
            self._stages.pop(0)
            os.kill(worker.pid, signal.SIGSTOP)  # it is not to answer before it dies
        self._send(worker, message, fds)
        if due:
            os.kill(worker.pid, signal.SIGKILL)


@pytest.mark.ci
def test_a_killed_oracle_is_named_with_its_stage_and_the_next_file_is_graded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / f"killed_in_{kind.__name__}.py" for kind in STAGES] + [tmp_path / "last.py"]
    for file in files:
        file.write_text(HONEST.read_text())
    killer = KillsTheOracle([*STAGES])

    def send(worker: Worker, message: Any, fds: tuple[int, ...] = ()) -> None:
        killer.send(worker, message, fds)

    monkeypatch.setattr(Worker, "send", send)
    *killed, last = graded(*files, problem=problem_of(HONEST), time=True).verdicts
    for verdict, words in zip(killed, STAGES.values(), strict=True):
        assert (verdict.status, verdict.owner) == (Status.GRADER_ERROR, Owner.GRADER)
        assert f"the oracle ended unexpectedly {words}" in verdict.reason
        assert "SIGKILL" in verdict.reason
        assert verdict.timing is None
    assert last.status is Status.PASSED
    assert left_behind() == {}


@pytest.mark.parametrize("above", [1, 2], ids=["the server", "its zygote"])
def test_a_killed_fork_server_is_the_grader_s_and_the_next_file_gets_a_new_one(
    above: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Worker.send
    killed: list[int] = []

    def send(worker: Worker, message: Any, fds: tuple[int, ...] = ()) -> None:
        original(worker, message, fds)
        if isinstance(message, m.OpenCase) and not killed:  # to an oracle
            killed.append(worker.pid)
            for _ in range(above):
                status = Path(f"/proc/{killed[-1]}/status").read_text()
                killed.append(int(status.split("PPid:")[1].split()[0]))
            os.kill(killed[-1], signal.SIGKILL)

    monkeypatch.setattr(Worker, "send", send)
    files = [candidate(tmp_path, name) for name in ("first", "second")]
    first, second = graded(*files, problem=problem_of(HONEST)).verdicts
    assert (first.status, first.owner) == (Status.GRADER_ERROR, Owner.GRADER)
    assert "the fork server is gone" in first.reason
    assert second.status is Status.PASSED
    assert not any(map(alive, killed))
    assert left_behind() == {}


def test_every_message_to_the_oracle_has_a_stage() -> None:
    for kind in m.REQUESTS:
        fields: dict[str, Any] = {"case": 0} if "case" in kind.__struct_fields__ else {}
        fields |= dict.fromkeys(set(kind.__struct_fields__) - {"case"}, "x")
        assert stage_of(kind(**fields), ("main",)).startswith("while it ")


# --- the GPU is lost ------------------------------------------------------------------------------

LOSSES = [
    RuntimeError("CUDA error: device lost"),
    RuntimeError("CUDA error: unspecified launch failure\nCUDA kernel errors might be ..."),
    RuntimeError("CUDA error: uncorrectable ECC error encountered"),
    RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
    RuntimeError("CUDA error: invalid device context"),
    torch.AcceleratorError("CUDA error: unknown error"),
    OSError("cuMemcpyDtoDAsync: CUDA_ERROR_LAUNCH_FAILED"),
    OSError("cuMemAlloc of 4096 bytes: CUDA_ERROR_ECC_UNCORRECTABLE"),
]
OTHERS = [
    RuntimeError("CUDA error: device-side assert triggered"),
    RuntimeError("CUDA error: invalid configuration argument"),
    RuntimeError("The size of tensor a (3) must match the size of tensor b (4)"),
    RuntimeError("the results are uncorrectable"),
    ValueError("CUDA error: device lost"),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
    OSError("cuMemcpyDtoDAsync: CUDA_ERROR_INVALID_VALUE"),
]


@pytest.mark.parametrize("error", LOSSES, ids=str)
def test_a_lost_device_is_known(error: Exception) -> None:
    assert is_device_loss(error)
    refused = refusal_of(error, "a trace")
    assert refused.status is Status.GRADER_ERROR
    assert refused.reason.startswith("the GPU failed under the oracle: ")


@pytest.mark.parametrize("error", OTHERS, ids=str)
def test_an_error_of_the_program_is_no_lost_device(error: Exception) -> None:
    assert not is_device_loss(error)


@pytest.mark.parametrize(("code", "lost"), [(214, True), (719, True), (46, True), (710, False)])
def test_the_number_decides_where_there_is_one(code: int, *, lost: bool) -> None:
    error = torch.AcceleratorError("CUDA error: uncorrectable, says the text")
    error.error_code = code  # type: ignore[attr-defined]
    assert is_device_loss(error) is lost


def test_what_the_oracle_answers_follows_the_error() -> None:
    assert refusal_of(ProblemFault("x"), "t").status is Status.INVALID_PROBLEM
    assert refusal_of(MemoryError("x"), "t").status is Status.OUT_OF_MEMORY
    allocator = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried")
    assert refusal_of(allocator, "t").status is Status.OUT_OF_MEMORY
    without_nvml = RuntimeError(
        "NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED at line 1135"
    )
    assert refusal_of(without_nvml, "t").status is Status.OUT_OF_MEMORY
    assert refusal_of(KeyError("x"), "the trace") == m.Refused(
        status=Status.GRADER_ERROR, reason="the trace"
    )


REFERENCE = """
import torch
import torch.nn as nn

CALLS = 0
{setup}

class Model(nn.Module):
    def forward(self, x):
        global CALLS
        CALLS += 1
        {forward}
        return torch.softmax(x, dim=1)

def get_inputs():
    return [torch.randn(8, 16)]

def get_init_inputs():
    return []
"""


def reference(folder: Path, *, setup: str = "", forward: str = "") -> Problem:
    path = folder / "softmax_reference.py"
    path.write_text(REFERENCE.format(setup=setup, forward=forward))
    return load_problem(path)


def candidate(folder: Path, name: str, *, setup: str = "", forward: str = "") -> Path:
    """Write the honest softmax with a fault in it."""
    text = HONEST.read_text()
    for where, added in (("class ModelNew", setup), ("        y = torch", f"        {forward}")):
        assert text.count(where) == 1
        text = text.replace(where, f"{added}\n{where}")
    path = folder / f"{name}.py"
    path.write_text(text.replace("import ctypes\n", "import ctypes\nimport os\nimport signal\n"))
    return path


LOST = 'raise torch.AcceleratorError("CUDA error: unspecified launch failure")'


@pytest.mark.parametrize("calls", [1, 3, 5])
def test_a_gpu_lost_under_the_reference_is_the_grader_s(tmp_path: Path, calls: int) -> None:
    problem = reference(tmp_path, forward=f"if CALLS >= {calls}: {LOST}")
    files = [candidate(tmp_path, name) for name in ("first", "second")]
    for verdict in graded(*files, problem=problem).verdicts:
        assert (verdict.status, verdict.owner) == (Status.GRADER_ERROR, Owner.GRADER)
        assert "the GPU failed under the oracle: AcceleratorError: CUDA error" in verdict.reason


# The call by which the oracle tries the device after a candidate has failed, broken.
BREAKS_THE_PROBE = f"""
def broken(*given, **named):
    {LOST}
torch.ones = broken
"""


@pytest.mark.parametrize(
    ("forward", "status"),
    [
        (LOST, Status.RUNTIME_ERROR),
        ("os.kill(os.getpid(), signal.SIGSEGV)", Status.CRASHED),
    ],
)
def test_a_candidate_s_failure_is_its_own_unless_the_oracle_has_lost_the_gpu_too(
    tmp_path: Path, forward: str, status: Status
) -> None:
    failing = candidate(tmp_path, "failing", forward=forward)
    (verdict,) = graded(failing, problem=reference(tmp_path)).verdicts
    assert (verdict.status, verdict.owner) == (status, Owner.CANDIDATE)
    lost = reference(tmp_path, setup=BREAKS_THE_PROBE)
    (verdict,) = graded(failing, problem=lost).verdicts
    assert (verdict.status, verdict.owner) == (Status.GRADER_ERROR, Owner.GRADER)
    assert "the GPU failed under the oracle" in verdict.reason
    assert "the candidate failed" in verdict.reason


# --- memory runs out ------------------------------------------------------------------------------

NO_MEMORY = 'if CALLS >= 5: raise torch.OutOfMemoryError("CUDA out of memory")'


def test_memory_that_the_candidate_holds_is_its_own_failure(tmp_path: Path) -> None:
    problem = reference(tmp_path, forward=NO_MEMORY)
    hog = candidate(tmp_path, "hog", setup="HOARD = torch.ones(400_000_000)")
    modest = candidate(tmp_path, "modest")
    hogs, modests = graded(hog, modest, problem=problem).verdicts
    assert (hogs.status, hogs.owner) == (Status.OUT_OF_MEMORY, Owner.CANDIDATE)
    assert "the candidate's process held" in hogs.reason
    assert "CUDA out of memory" in hogs.reason
    assert (modests.status, modests.owner) == (Status.OUT_OF_MEMORY, Owner.GRADER)


@pytest.mark.parametrize(
    ("device", "held", "needed", "blamed"),
    [
        ("cuda", 60 << 30, 2 << 30, True),
        ("cuda", 12 << 30, 2 << 30, False),
        ("cuda", 3 << 30, 0, False),
        ("cuda", -(1 << 30), 1 << 30, False),
        ("cpu", 3 << 30, 100 << 20, True),
        ("cpu", 1 << 30, 100 << 20, False),
    ],
)
def test_a_share_beyond_what_the_problem_takes_is_blamed(
    device: Device, held: int, needed: int, *, blamed: bool
) -> None:
    why = blame_for_memory(device, held, needed)
    assert (why is not None) is blamed
    if why is not None:
        assert f"held {held / 1e9:.3g} GB" in why


def tree_bytes(pid: int) -> int:
    """Return the memory that a process and all below it keep from others."""
    return sum(map(own_bytes, processes_below([pid])))


def test_the_memory_of_a_process_and_its_children_is_counted() -> None:
    size = 200 << 20
    reading, writing = os.pipe()
    before = tree_bytes(os.getpid())
    child = os.fork()
    if child == 0:
        hoard = bytearray(os.urandom(1 << 20) * (size >> 20))
        os.write(writing, b"x")
        signal.pause()
        os._exit(len(hoard) == 0)
    os.read(reading, 1)
    grown = tree_bytes(os.getpid()) - before
    own = tree_bytes(child)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)
    assert own >= size
    assert grown >= size
    assert tree_bytes(child) == 0


# --- what cannot be contained ---------------------------------------------------------------------

CUDA = HERE / "candidates" / "cuda" / "honest_polynomial.py"
NO_GPU = GradeOptions(gpu="-1", time=False)
NOWHERE = "/no/such/folder"


def built_only(path: Path) -> Verdict:
    """Return the verdict where there is no GPU: whether it builds."""
    options = msgspec.structs.replace(NO_GPU, problem=problem_of(CUDA))
    (verdict,) = grade([path], options=options).verdicts
    return verdict


@pytest.mark.nvcc
@pytest.mark.parametrize("what", ["capture", "solution_build"])
def test_a_build_that_cannot_be_contained_is_the_grader_s(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def impossible(*given: Any) -> Plan:
        return msgspec.structs.replace(plan_to_build(*given), scratch=NOWHERE)

    monkeypatch.setattr(f"kernelgen.build.{what}.plan_to_build", impossible)
    if plan_to_build(HERE, HERE).level == "none":
        pytest.skip("this machine contains nothing, so nothing can fail to be contained")
    verdict = built_only(CUDA)
    assert (verdict.status, verdict.owner) == (Status.GRADER_ERROR, Owner.GRADER)
    assert NOWHERE in verdict.reason


@pytest.mark.nvcc
def test_a_candidate_cannot_pass_its_own_failure_off_as_one_of_containment(tmp_path: Path) -> None:
    words = "kernelgen could not contain nvcc: SandboxError: unshare: Invalid argument"
    endings = [f"raise RuntimeError({words!r})", f"print({words!r}, flush=True); os._exit(125)"]
    texts = [
        CUDA.read_text().replace("import torch\n", f"import os\nimport torch\n{ending}\n", 1)
        for ending in endings
    ]
    forged = f'#line 1 "{words}"\n#error no\n#include <cuda'
    assert "#include <cuda" in CUDA.read_text()
    texts.append(CUDA.read_text().replace("#include <cuda", forged, 1))
    # A file that raises before it builds may only want a GPU.
    statuses = (Status.NO_DEVICE, Status.BUILD_ERROR, Status.BUILD_ERROR)
    for number, (text, status) in enumerate(zip(texts, statuses, strict=True)):
        pretender = tmp_path / f"pretender_{number}.py"
        pretender.write_text(text)
        assert built_only(pretender).status is status


class Machine:
    """Tells of the memory that others hold: before the candidate's end, then after it."""

    has_host = True

    def __init__(self, before: list[int], after: list[int]) -> None:
        self.found, self._after = list(before), after

    def ask_oracle(self, message: m.MeasureMemory) -> int:
        """Answer."""
        assert isinstance(message, m.MeasureMemory)
        return self.found.pop(0)

    def end_host(self) -> None:
        """End the candidate."""
        self.found = list(self._after)


@pytest.mark.parametrize(
    ("before_gib", "after_gib", "owner"),
    [
        ([60, 60, 60, 60], [10, 10, 10, 10], Owner.CANDIDATE),
        ([60, 60, 60, 60], [59, 59, 59, 59], Owner.GRADER),
        # Another grader gives its memory back meanwhile.
        ([60, 60, 60, 60], [40, 20, 10, 10], Owner.GRADER),
        ([60, 90, 60, 60], [10, 10, 10, 10], Owner.GRADER),
    ],
)
def test_memory_that_others_give_back_is_not_the_candidate_s(
    monkeypatch: pytest.MonkeyPatch, before_gib: list[int], after_gib: list[int], owner: Owner
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    machine = Machine([n << 30 for n in before_gib], [n << 30 for n in after_gib])
    lacking = Judged(Status.OUT_OF_MEMORY, "no room for the comparison", Owner.GRADER)
    found = reconsider(lacking, cast(Dialogue, machine), "cuda", 1 << 30)
    assert (found.status, found.owner) == (Status.OUT_OF_MEMORY, owner)

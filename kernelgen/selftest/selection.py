"""Which candidates are graded on this machine, which are not and why, and how many at once."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from kernelgen.build.toolchain import find_compiler, find_toolkit
from kernelgen.errors import ToolchainError, UserError
from kernelgen.hardware.device import GpuSurvey, cpu_facts, survey_gpus, visible_gpus
from kernelgen.problem.record import Device
from kernelgen.sandbox.survey import survey as contained_here
from kernelgen.selftest.corpus import Candidate, Kind

# A fork server with torch, two forks of it, and a compiler that reads torch's headers.
_LANE_BYTES = 3 << 30
# The room that the grader asks for before it starts on a GPU; see grading/footprint.py.
_LANE_GPU_BYTES = 5 << 30
_MOST_LANES = 32
# The lanes of one GPU take turns on it, and each holds two CUDA contexts there.
_MOST_LANES_ON_GPU = 8


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for.

    Attributes:
        device: `auto` is the CPU's candidates, and the GPU's where there is one.
        names: patterns such as `hostile_*` or `cuda/*`, one of which has to match; none is all.
        kinds: none is all.
        quick: leave out the files that say they are slow.
    """

    device: Literal["auto", "cuda", "cpu"] = "auto"
    names: tuple[str, ...] = ()
    kinds: tuple[Kind, ...] = ()
    quick: bool = False


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that is not run, and why."""

    candidate: Candidate
    reason: str


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The candidates that were asked for.

    Attributes:
        run: to be graded.
        left_out: not to be graded.
        jobs: how many to grade at once unless the user says otherwise.
        gpus: that they are spread over, as CUDA_VISIBLE_DEVICES names them.
    """

    run: tuple[Candidate, ...]
    left_out: tuple[LeftOut, ...]
    jobs: int
    gpus: tuple[str, ...] = ()


def select(corpus: Sequence[Candidate], wanted: Wanted) -> Selection:
    """Return what of a corpus is to be graded here.

    Raises:
        UserError: nothing of the corpus is what was asked for.
    """
    asked = [one for one in corpus if _matches(one, wanted)]
    if not asked:
        raise UserError(
            f"no candidate matches {_in_words(wanted)}; `kernelgen selftest --classes` names all"
        )
    survey = survey_gpus() if any(one.device == "cuda" for one in asked) else GpuSurvey()
    obstacles = {
        "cpu": _missing_tool(find_compiler),
        "cuda": _obstacle_on_gpu(survey),
    }
    run: list[Candidate] = []
    left_out: list[LeftOut] = []
    for one in asked:
        reason = obstacles[one.device]
        if not reason and one.sandbox == "require":
            reason = _uncontained()
        if not reason and wanted.quick and one.slow:
            reason = "slow, and --quick was given"
        if reason:
            left_out.append(LeftOut(candidate=one, reason=reason))
        else:
            run.append(one)
    on_gpu = any(one.device == "cuda" for one in run)
    return Selection(
        run=tuple(run),
        left_out=tuple(left_out),
        jobs=_jobs_here(survey if on_gpu else None),
        gpus=visible_gpus(len(survey.devices)) if on_gpu else (),
    )


def _uncontained() -> str:
    found = contained_here()
    return "" if found.level == "namespaces" else f"not contained here: {'; '.join(found.missing)}"


def default_jobs(cores: int, memory_bytes: int, gpus_bytes: Sequence[int] | None) -> int:
    """Return how many candidates to grade at once.

    Args:
        cores: that may be used.
        memory_bytes: of the machine.
        gpus_bytes: free on each GPU; None if none is used.
    """
    # A lane keeps two to three cores busy: two compilers, or the oracle and the candidate.
    lanes = min(cores, max(2, cores // 2), _MOST_LANES, memory_bytes // _LANE_BYTES)
    if gpus_bytes is not None:
        # Each GPU gets as many lanes as any other, so the fullest one decides.
        on_each = min(_MOST_LANES_ON_GPU, min(gpus_bytes) // _LANE_GPU_BYTES)
        lanes = min(lanes, on_each * len(gpus_bytes))
    return max(1, lanes)


def _jobs_here(survey: GpuSurvey | None) -> int:
    cpu = cpu_facts()
    if survey is None:
        return default_jobs(cpu.cores, cpu.memory_bytes, None)
    free = [
        gpu.memory_bytes if gpu.free_bytes is None else gpu.free_bytes for gpu in survey.devices
    ]
    return default_jobs(cpu.cores, cpu.memory_bytes, free)


def _matches(candidate: Candidate, wanted: Wanted) -> bool:
    device: tuple[Device, ...] = ("cpu", "cuda") if wanted.device == "auto" else (wanted.device,)
    names = (candidate.name, candidate.name.removesuffix(".py"), candidate.path.stem)
    return (
        candidate.device in device
        and (not wanted.kinds or candidate.kind in wanted.kinds)
        and (
            not wanted.names
            or any(fnmatchcase(name, pattern) for name in names for pattern in wanted.names)
        )
    )


def _in_words(wanted: Wanted) -> str:
    parts = [
        *(f"--only {name}" for name in wanted.names),
        *(f"--kind {kind.value}" for kind in wanted.kinds),
        f"--device {wanted.device}",
    ]
    return " ".join(parts)


def _obstacle_on_gpu(survey: GpuSurvey) -> str:
    if not survey.devices:
        return f"no GPU: {survey.reason}"
    return _missing_tool(find_compiler) or _missing_tool(find_toolkit)


def _missing_tool(find: Callable[[], object]) -> str:
    try:
        find()
    except ToolchainError as error:
        return str(error).splitlines()[0]
    return ""

"""Which candidates are graded on this machine, which are not and why, and how many at once."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from importlib.util import find_spec
from typing import Literal

import msgspec

from kernelgen.build.toolchain import find_compiler, find_toolkit
from kernelgen.errors import ToolchainError, UserError
from kernelgen.grading.supervisor.grade import most_lanes
from kernelgen.hardware.device import GpuSurvey, cpu_facts, survey_gpus, visible_gpus
from kernelgen.problem.record import Device
from kernelgen.sandbox.survey import survey as contained_here
from kernelgen.selftest.corpus import Candidate


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The candidates that were asked for.

    Attributes:
        run: to be graded.
        left_out: name of a candidate that is not graded -> why.
        jobs: how many to grade at once unless the user says otherwise.
        gpus: that they are spread over, as CUDA_VISIBLE_DEVICES names them.
    """

    run: tuple[Candidate, ...]
    left_out: dict[str, str]
    jobs: int
    gpus: tuple[str, ...] = ()


def select(
    corpus: Sequence[Candidate],
    *,
    device: Literal["auto", "cuda", "cpu"] = "auto",
    names: Sequence[str] = (),
    quick: bool = False,
) -> Selection:
    """Return what of a corpus is to be graded here.

    Args:
        corpus: all of it.
        device: `auto` is the CPU's candidates, and the GPU's where there is one.
        names: patterns such as `hostile_*` or `cuda/*`, one of which has to match; none is all.
        quick: leave out the files that say they are slow.

    Raises:
        UserError: nothing of the corpus is what was asked for.
    """
    asked = [
        one
        for one in corpus
        if device in ("auto", one.device) and (not names or _is_named(one, names))
    ]
    if not asked:
        options = " ".join([*(f"--only {name}" for name in names), f"--device {device}"])
        raise UserError(f"no candidate matches {options}; `kernelgen selftest --classes` names all")
    survey = survey_gpus() if any(one.device == "cuda" for one in asked) else GpuSurvey()
    compiler = _missing_tool(find_compiler)
    gpu = f"no GPU: {survey.reason}" if not survey.devices else _missing_tool(find_toolkit)
    obstacles: dict[Device, str] = {"cpu": compiler, "cuda": gpu or compiler}
    left_out: dict[str, str] = {}
    for one in asked:
        reason = obstacles[one.device]
        if not reason and one.sandbox == "require" and contained_here().level != "namespaces":
            reason = f"not contained here: {'; '.join(contained_here().missing)}"
        if not reason and quick and one.slow:
            reason = "slow, and --quick was given"
        if not reason and one.needs and find_spec(one.needs) is None:
            reason = f"{one.needs} is not installed"
        if reason:
            left_out[one.name] = reason
    run = tuple(one for one in asked if one.name not in left_out)
    gpus = survey.devices if any(one.device == "cuda" for one in run) else ()
    free = [gpu.memory_bytes if gpu.free_bytes is None else gpu.free_bytes for gpu in gpus]
    cpu = cpu_facts()
    return Selection(
        run=run,
        left_out=left_out,
        jobs=most_lanes(cpu.cores, cpu.memory_bytes, free),
        gpus=visible_gpus(len(gpus)) if gpus else (),
    )


def _is_named(candidate: Candidate, patterns: Sequence[str]) -> bool:
    names = (candidate.name, candidate.name.removesuffix(".py"), candidate.path.stem)
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _missing_tool(find: Callable[[], object]) -> str:
    try:
        find()
    except ToolchainError as error:
        return str(error).splitlines()[0]
    return ""

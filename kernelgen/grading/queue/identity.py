"""The key under which a verdict is found again: all that makes two gradings one."""

import functools
import platform
from collections.abc import Sequence
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import msgspec

import kernelgen
from kernelgen.grading.options import GradeOptions
from kernelgen.hardware.device import GpuSurvey, ask_driver, cpu_facts, has_gpu_driver
from kernelgen.problem.record import Problem, digest
from kernelgen.solution.file import SolutionFile

# Where builds are kept, and on which of the machine's GPUs a file is graded, changes no verdict.
_PLACES: dict[str, Any] = {"problem": None, "build_cache": None, "gpu": None}


def key_of(
    solution: SolutionFile,
    problem: Problem,
    options: GradeOptions,
    on: Sequence[str] | None = None,
) -> str:
    """Return the SHA-256 of all that a verdict depends on, in hexadecimal.

    These are the candidate's bytes, the problem, the options, this release of kernelgen to the
    letter, torch, Python, and the devices: those that `on` names, else this machine's.
    """
    rules = msgspec.structs.replace(options, **_PLACES)
    own = msgspec.structs.replace(options.applied_to(problem), path=Path())
    whole = (
        solution.sha256,
        own,
        rules,
        _grader(),
        tuple(on or devices()),
        _versions(options.allow_imports),
    )
    return digest(msgspec.json.encode(whole, enc_hook=str))


@functools.cache
def _grader() -> str:
    """Return the digest of the package's own source."""
    folder = Path(kernelgen.__file__).resolve().parent
    files = sorted(file for file in folder.rglob("*") if file.suffix in {".py", ".h"})
    return digest("".join(digest(file.read_bytes()) for file in files))


@functools.cache
def devices() -> tuple[str, ...]:
    """Name the CPU, and the GPUs with their driver's newest CUDA."""
    found = ask_driver() if has_gpu_driver() else GpuSurvey()
    newest = f"CUDA {found.version}" if found.devices else ""
    return (cpu_facts().name, *sorted({gpu.name for gpu in found.devices}), newest)


def release() -> dict[str, str]:
    """Return what two machines must have in common for one to grade for the other."""
    known = _versions(())
    return {
        "kernelgen": f"{known['kernelgen']} (source {_grader()[:12]})",
        "python": known["python"],
        "torch": known.get("imports", "none"),
    }


def versions(imports: Sequence[str] = ()) -> dict[str, Any]:
    """Return what of a run's environment is known before anything is graded.

    Args:
        imports: modules that solutions may import; the times of one that does are of its package's
            version, so it is named under `imports`, where it is installed as a package.
    """
    known = {"kernelgen": kernelgen.__version__, "python": platform.python_version()}
    if not imports:
        return known
    installed = packages_distributions()
    packages = dict.fromkeys(name for module in imports for name in installed.get(module, ()))
    named = ", ".join(f"{name} {version(name)}" for name in packages)
    return {**known, "imports": named} if named else known


@functools.cache
def _versions(imports: Sequence[str]) -> dict[str, Any]:
    return versions((*imports, "torch"))

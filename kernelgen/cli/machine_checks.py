"""What this machine has of what kernelgen needs, one finding each, with the mend."""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Literal

import msgspec

from kernelgen.build.toolchain import (
    Toolkit,
    cache_folder,
    child_environment,
    find_compiler,
    find_toolkit,
)
from kernelgen.errors import ToolchainError, UserError
from kernelgen.hardware.device import cpu_facts, survey_gpus
from kernelgen.sandbox.survey import survey

State = Literal["ok", "warning", "missing"]

_GIBIBYTE = 1 << 30
_LOW_DISK_BYTES = 2 * _GIBIBYTE
_PROBE_SECONDS = 120.0
_TORCH_PROBE = """
import json, sys
import torch
facts = {"version": str(torch.__version__), "cuda": torch.version.cuda, "ipc": ""}
facts["available"] = torch.cuda.is_available()
if facts["available"]:
    try:
        torch.zeros(1, device="cuda").untyped_storage()._share_cuda_()
    except RuntimeError as error:
        facts["ipc"] = str(error).splitlines()[0]
json.dump(facts, sys.stdout)
"""
_OPENMP_PROBE = "#include <omp.h>\nint main() { return omp_get_max_threads() < 1; }\n"


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finding.

    Attributes:
        name: what was looked for.
        state: `ok`, `warning` (something works less well) or `missing`.
        found: what is there, or why it is not.
        mend: what to do about it; "" if nothing is to be done.
    """

    name: str
    state: State
    found: str
    mend: str = ""


class TorchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a process with torch says: its CUDA build, whether it reaches a GPU, why IPC fails."""

    version: str
    cuda: str | None
    available: bool
    ipc: str


def check_python() -> Check:
    """Look at the interpreter and its headers, which extensions include."""
    version = platform.python_version()
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return Check(
            name="python",
            state="missing",
            found=f"{version}, without its headers (Python.h)",
            mend="install them, such as with: apt-get install python3-dev",
        )
    return Check(name="python", state="ok", found=version)


def probe_torch() -> tuple[Check, TorchFacts | None]:
    """Ask a process that imports torch."""
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _TORCH_PROBE],
            check=True,
            capture_output=True,
            timeout=_PROBE_SECONDS,
        )
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode(errors="replace").strip().splitlines()[-1:] or [
            "no reason given"
        ]
        return Check(
            name="torch", state="missing", found=last[0], mend="install it: pip install torch"
        ), None
    except subprocess.TimeoutExpired:
        found = f"did not import within {_PROBE_SECONDS:g} s"
        return Check(name="torch", state="missing", found=found, mend="reinstall torch"), None
    facts = msgspec.json.decode(done.stdout, type=TorchFacts)
    built = f"built with CUDA {facts.cuda}" if facts.cuda else "CPU build"
    return Check(name="torch", state="ok", found=f"{facts.version}, {built}"), facts


def check_cpu() -> Check:
    """Say which processor there is."""
    facts = cpu_facts()
    vectors = ", ".join(facts.vector_extensions) or "none reported"
    memory = facts.memory_bytes / _GIBIBYTE
    found = f"{facts.name}, {facts.cores} cores, {memory:.0f} GiB, vectors: {vectors}"
    return Check(name="cpu", state="ok", found=found)


def check_gpu(torch: TorchFacts | None) -> Check:
    """Look for a device, and whether torch reaches it."""
    survey = survey_gpus()
    if not survey.devices:
        mend = "CUDA solutions are built here and graded on a machine with a GPU"
        return Check(name="gpu", state="missing", found=survey.reason, mend=mend)
    gpu = survey.devices[0]
    major, minor = gpu.compute_capability
    free = "" if gpu.free_bytes is None else f", {gpu.free_bytes / _GIBIBYTE:.0f} GiB free"
    driver = "" if gpu.driver is None else f", driver {gpu.driver}"
    found = (
        f"{gpu.name}, sm_{major}{minor}, {gpu.sm_count} SMs, "
        f"{gpu.memory_bytes / _GIBIBYTE:.0f} GiB{free}{driver}"
    )
    if len(survey.devices) > 1:
        found = f"{len(survey.devices)} devices, the first: {found}"
    if torch is None or not torch.available:
        mend = "install a CUDA build of torch that this driver supports (pytorch.org)"
        return Check(name="gpu", state="warning", found=f"{found}; torch cannot use it", mend=mend)
    return Check(name="gpu", state="ok", found=found)


def check_nvcc(torch: TorchFacts | None) -> tuple[Check, Toolkit | None]:
    """Look for nvcc, and whether it fits torch's CUDA."""
    try:
        toolkit = find_toolkit()
    except ToolchainError as error:
        what, _, mend = str(error).partition("; ")
        return Check(name="nvcc", state="missing", found=what, mend=mend), None
    found = f"{toolkit.version} at {toolkit.nvcc} (found by {toolkit.found_by})"
    cuda = torch.cuda if torch is not None else None
    if cuda is not None and int(cuda.split(".", 1)[0]) != toolkit.major:
        mend = f"torch refuses it: install a CUDA {cuda} toolkit and name it in CUDA_HOME"
        found = f"{found}, but torch is built with CUDA {cuda}"
        return Check(name="nvcc", state="warning", found=found, mend=mend), toolkit
    return Check(name="nvcc", state="ok", found=found), toolkit


def check_compiler() -> Check:
    """Look for the C++ compiler."""
    try:
        compiler = find_compiler()
    except ToolchainError as error:
        what, _, mend = str(error).partition("; ")
        return Check(name="c++ compiler", state="missing", found=what, mend=mend)
    found = f"{' '.join(compiler.command)} {compiler.version}"
    return Check(name="c++ compiler", state="ok", found=found)


def check_ninja() -> Check:
    """Look for ninja where a building process would find it."""
    try:
        path = shutil.which("ninja", path=child_environment(os.environ)["PATH"])
    except ToolchainError as error:
        what, _, mend = str(error).partition("; ")
        return Check(name="ninja", state="missing", found=f"not looked for: {what}", mend=mend)
    if path is None:
        return Check(name="ninja", state="missing", found="not found", mend="pip install ninja")
    return Check(name="ninja", state="ok", found=path)


def check_cpu_compile() -> Check:
    """Try what torch.compile needs on the CPU: a compiler with OpenMP."""
    name = "torch.compile on the CPU"
    try:
        command = find_compiler().command
        with tempfile.TemporaryDirectory(prefix="kernelgen-") as folder:
            source = Path(folder) / "openmp.cpp"
            source.write_text(_OPENMP_PROBE)
            done = subprocess.run(
                [*command, "-fopenmp", str(source), "-o", str(source.with_suffix(""))],
                check=False,
                capture_output=True,
                env=child_environment(os.environ),
            )
    except ToolchainError as error:
        return Check(name=name, state="warning", found=str(error).partition("; ")[0])
    except OSError as error:
        return Check(name=name, state="warning", found=f"not tried: {error.strerror}")
    if done.returncode != 0:
        mend = "install the compiler's OpenMP runtime (libgomp or libomp)"
        return Check(name=name, state="warning", found="no OpenMP to compile with", mend=mend)
    return Check(name=name, state="ok", found="the compiler has OpenMP")


def check_ipc(torch: TorchFacts | None) -> Check:
    """Look whether GPU memory can be shared between processes."""
    if torch is None or not torch.available:
        return Check(name="cuda ipc", state="warning", found="not tried: torch reaches no GPU")
    if torch.ipc:
        mend = "allow CUDA IPC, for instance by sharing the host's IPC namespace with the container"
        return Check(name="cuda ipc", state="missing", found=torch.ipc, mend=mend)
    return Check(name="cuda ipc", state="ok", found="memory can be shared between processes")


def check_sandbox() -> Check:
    """Try what contains a candidate, in a process of its own."""
    found = survey()
    version = f"Landlock {found.landlock_abi}" if found.landlock_abi else "no Landlock"
    text = {
        "namespaces": f"candidates get their own file system, network and processes; {version}",
        "landlock": f"{version} alone",
        "none": "candidates are not contained",
    }[found.level]
    reasons = "".join(f"; {reason}" for reason in found.missing)
    state: State = "ok" if found.level == "namespaces" else "warning"
    return Check(name="sandbox", state=state, found=text + reasons, mend=found.mend)


def check_tool(name: str, purpose: str, toolkit: Toolkit | None) -> Check:
    """Look for a program of the CUDA toolkit that is of use but not needed."""
    path = shutil.which(name)
    if path is None and toolkit is not None:
        path = shutil.which(name, path=str(toolkit.home / "bin"))
    if path is None:
        mend = f"only needed {purpose}; it comes with the full CUDA toolkit"
        return Check(name=name, state="warning", found="not found", mend=mend)
    return Check(name=name, state="ok", found=path)


def check_folder(name: str, folder: Path, variable: str) -> Check:
    """Look whether a folder can be written and has room."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"x")
        free_bytes = shutil.disk_usage(folder).free
    except OSError as error:
        found = f"{folder}: {error.strerror or error}"
        mend = f"set {variable} to a folder that can be written"
        return Check(name=name, state="missing", found=found, mend=mend)
    found = f"{folder}, {free_bytes / _GIBIBYTE:.1f} GiB free"
    if free_bytes < _LOW_DISK_BYTES:
        mend = f"make room, or set {variable} to a folder with more"
        return Check(name=name, state="warning", found=found, mend=mend)
    return Check(name=name, state="ok", found=found)


def check_cache() -> Check:
    """Look at the folder for links to a toolkit made of wheels."""
    name, variable = "cache folder", "XDG_CACHE_HOME"
    try:
        folder = cache_folder()
    except UserError:
        mend = f"set {variable} to a folder that can be written"
        return Check(name=name, state="missing", found="there is no home folder", mend=mend)
    return check_folder(name, folder, variable)


def check_temporary() -> Check:
    """Look at the folder where extensions are built."""
    name, variable = "temporary folder", "TMPDIR"
    try:
        used = Path(tempfile.gettempdir())
    except FileNotFoundError:
        mend = f"set {variable} to a folder that can be written"
        return Check(name=name, state="missing", found="none can be written", mend=mend)
    given = os.environ.get(variable)
    if given and Path(given).absolute() != used.absolute():
        found = f"{variable} is {given}, where nothing can be written; {used} is used"
        mend = f"set {variable} to a folder that can be written, or unset it"
        return Check(name=name, state="warning", found=found, mend=mend)
    return check_folder(name, used, variable)

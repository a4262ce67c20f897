"""Findings about this machine: each of kernelgen's needs, and the fix where it lacks one."""

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

from kernelgen.build import toolchain
from kernelgen.child_python import said_by
from kernelgen.errors import ToolchainError, UserError
from kernelgen.hardware.calibration import look_up
from kernelgen.hardware.device import cpu_facts, survey_gpus
from kernelgen.hardware.identity import identity_here
from kernelgen.installation import newer_than_tested
from kernelgen.report.numbers import byte_size
from kernelgen.sandbox.survey import survey

State = Literal["ok", "warning", "missing"]

_LOW_DISK_BYTES = 2 << 30
_PROBE_SECONDS = 120.0
# Not from the present folder, which -c looks in first; see `start_code`.
_TORCH_PROBE = """
import sys
sys.path = [entry for entry in sys.path if entry]
import json
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
_WRITABLE = "set {} to a folder that can be written"


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
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


def _not_found(name: str, error: ToolchainError) -> Check:
    """Return what an error's message says before its semicolon, with the mend after it."""
    found, _, mend = str(error).partition("; ")
    return Check(name, "missing", found, mend)


class TorchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts from a process with torch: its CUDA build, whether it reaches a GPU, why IPC fails."""

    version: str
    cuda: str | None
    available: bool
    ipc: str


def check_python() -> Check:
    """Look at the interpreter and its headers, which extensions include."""
    version = platform.python_version()
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        mend = "install them, such as with: apt-get install python3-dev"
        return Check("python", "missing", f"{version}, without its headers (Python.h)", mend)
    return Check("python", "ok", version)


def probe_torch() -> tuple[Check, TorchFacts | None]:
    """Ask a process that imports torch."""
    try:
        command = [sys.executable, "-W", "ignore", "-c", _TORCH_PROBE]
        said = said_by(command, _PROBE_SECONDS, stderr=subprocess.PIPE)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        return Check("torch", "missing", lines[-1], "install it: pip install torch"), None
    except subprocess.TimeoutExpired:
        found = f"did not import within {_PROBE_SECONDS:g} s"
        return Check("torch", "missing", found, "reinstall torch"), None
    facts = msgspec.json.decode(said, type=TorchFacts)
    built = f"built with CUDA {facts.cuda}" if facts.cuda else "CPU build"
    found = f"{facts.version}, {built}"
    if newer := newer_than_tested(facts.version):
        return Check("torch", "warning", f"{found}; {newer}"), facts
    return Check("torch", "ok", found), facts


def check_cpu() -> Check:
    """Say which processor there is."""
    facts = cpu_facts()
    memory = byte_size(facts.memory_bytes)
    return Check("cpu", "ok", f"{facts.name}, {facts.cores} cores, {memory}")


def check_gpu(torch: TorchFacts | None) -> Check:
    """Look for a device, and whether torch reaches it."""
    survey = survey_gpus()
    if not survey.devices:
        mend = "CUDA solutions are built here and graded on a machine with a GPU"
        return Check("gpu", "missing", survey.reason, mend)
    gpu = survey.devices[0]
    major, minor = gpu.compute_capability
    free = "" if gpu.free_bytes is None else f", {byte_size(gpu.free_bytes)} free"
    driver = "" if gpu.driver is None else f", driver {gpu.driver}"
    found = (
        f"{gpu.name}, sm_{major}{minor}, {gpu.sm_count} SMs, "
        f"{byte_size(gpu.memory_bytes)}{free}{driver}"
    )
    if len(survey.devices) > 1:
        found = f"{len(survey.devices)} devices, the first: {found}"
    if torch is None or not torch.available:
        mend = "install a CUDA build of torch that this driver supports (pytorch.org)"
        return Check("gpu", "warning", f"{found}; torch cannot use it", mend)
    return Check("gpu", "ok", found)


def check_nvcc(torch: TorchFacts | None) -> Check:
    """Look for nvcc, and whether it fits torch's CUDA."""
    try:
        toolkit = toolchain.find_toolkit()
    except ToolchainError as error:
        return _not_found("nvcc", error)
    found = f"{toolkit.version} at {toolkit.nvcc} (found by {toolkit.found_by})"
    cuda = torch.cuda if torch is not None else None
    if cuda is not None and int(cuda.split(".", 1)[0]) != toolkit.major:
        mend = f"torch refuses it: install a CUDA {cuda} toolkit and name it in CUDA_HOME"
        found = f"{found}, but torch is built with CUDA {cuda}"
        return Check("nvcc", "warning", found, mend)
    return Check("nvcc", "ok", found)


def check_compiler() -> Check:
    """Look for the C++ compiler."""
    try:
        compiler = toolchain.find_compiler()
    except ToolchainError as error:
        return _not_found("c++ compiler", error)
    return Check("c++ compiler", "ok", f"{' '.join(compiler.command)} {compiler.version}")


def check_ninja() -> Check:
    """Look for ninja where a building process would find it."""
    try:
        path = shutil.which("ninja", path=toolchain.child_environment(os.environ)["PATH"])
    except ToolchainError as error:
        return _not_found("ninja", error)
    if path is None:
        return Check("ninja", "missing", "not found", "pip install ninja")
    return Check("ninja", "ok", path)


def check_ipc(torch: TorchFacts | None) -> Check:
    """Look whether GPU memory can be shared between processes."""
    if torch is None or not torch.available:
        return Check("cuda ipc", "warning", "not tried: torch reaches no GPU")
    if torch.ipc:
        mend = "allow CUDA IPC, for instance by sharing the host's IPC namespace with the container"
        return Check("cuda ipc", "missing", torch.ipc, mend)
    return Check("cuda ipc", "ok", "memory can be shared between processes")


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


def check_tool(name: str, purpose: str) -> Check:
    """Look for a program of the CUDA toolkit that is of use but not needed."""
    path = toolchain.find_cuda_tool(name)
    if path is None:
        mend = f"only needed {purpose}; it comes with the full CUDA toolkit"
        return Check(name, "warning", "not found", mend)
    return Check(name, "ok", str(path))


def check_folder(name: str, folder: Path, variable: str) -> Check:
    """Look whether a folder can be written and has room."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"x")
        free_bytes = shutil.disk_usage(folder).free
    except OSError as error:
        found, mend = f"{folder}: {error.strerror or error}", _WRITABLE.format(variable)
        return Check(name, "missing", found, mend)
    found = f"{folder}, {byte_size(free_bytes)} free"
    if free_bytes < _LOW_DISK_BYTES:
        mend = f"make room, or set {variable} to a folder with more"
        return Check(name, "warning", found, mend)
    return Check(name, "ok", found)


def check_cache() -> Check:
    """Look at the folder for links to a toolkit made of wheels, and for measured rates."""
    name, variable = "cache folder", "XDG_CACHE_HOME"
    try:
        folder = toolchain.cache_folder()
    except UserError:
        return Check(name, "missing", "there is no home folder", _WRITABLE.format(variable))
    return check_folder(name, folder, variable)


def check_temporary() -> Check:
    """Look at the folder where extensions are built."""
    name, variable = "temporary folder", "TMPDIR"
    try:
        used = Path(tempfile.gettempdir())
    except FileNotFoundError:
        return Check(name, "missing", "none can be written", _WRITABLE.format(variable))
    given = os.environ.get(variable)
    if given and Path(given).absolute() != used.absolute():
        found = f"{variable} is {given}, where nothing can be written; {used} is used"
        return Check(name, "warning", found, f"{_WRITABLE.format(variable)}, or unset it")
    return check_folder(name, used, variable)


def check_calibration() -> Check:
    """Look whether the rates of the GPU, or of the CPU where there is none, are known."""
    name, identity = "calibration", identity_here("auto")
    assert not isinstance(identity, str), "there is always a CPU"
    try:
        cached = look_up(toolchain.cache_folder(), identity)
    except UserError:
        return Check(name, "warning", "there is no folder to keep it in")
    if cached.calibration is None:
        unknown = f"none of {identity.name}; each verdict measures a little itself"
        return Check(name, "warning", cached.warning or unknown, "kernelgen calibrate")
    copy, day = cached.calibration.copy_gbps.median, f"{cached.calibration.measured:%Y-%m-%d}"
    return Check(name, "ok", f"{identity.name} copies at {copy:.4g} GB/s, measured {day}")

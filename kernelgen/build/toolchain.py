"""Find nvcc, its toolkit and the C++ compiler; make the environment in which extensions build."""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import msgspec

from kernelgen.build.wheel_toolkit import INSTALL_NVCC, assemble, can_link, wheel_homes
from kernelgen.child_python import said_by
from kernelgen.errors import ToolchainError, UserError

_PROBE_SECONDS = 30.0
_NAMED = ("CUDA_HOME", "CUDA_PATH")
_SYSTEM_HOME = Path("/usr/local/cuda")
_RELEASE = re.compile(r"release (\d+\.\d+), V([\d.]+)")
_TOP = re.compile(r"^#\$ TOP=(.*)$", re.MULTILINE)
_NO_NVCC = (
    "no nvcc was found (looked at CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda, NVIDIA's wheels); "
    f"{INSTALL_NVCC}"
)


class Toolkit(msgspec.Struct, frozen=True, kw_only=True):
    """A CUDA toolkit that compiles and links.

    Attributes:
        home: the folder that torch expects in CUDA_HOME: bin, include, lib64 with libcudart.so.
        version: such as `13.0.88`.
        found_by: how it was found, such as `CUDA_HOME` or `PATH`.
    """

    nvcc: Path
    home: Path
    version: str
    found_by: str

    @property
    def major(self) -> int:
        """Return the major version, which has to be that of torch.version.cuda."""
        return int(self.version.split(".", 1)[0])


class HostCompiler(msgspec.Struct, frozen=True, kw_only=True):
    """The C++ compiler: the words of its command line, and its version as it gives it."""

    command: tuple[str, ...]
    version: str


def find_toolkit(environment: Mapping[str, str] = os.environ) -> Toolkit:
    """Return the first toolkit found: CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda, NVIDIA's wheels.

    A toolkit that torch could not link with (the wheels have no `libcudart.so`) is completed by a
    folder of links in the user's cache.

    Raises:
        ToolchainError: there is none, or CUDA_HOME or CUDA_PATH names a folder without nvcc.
    """
    for found_by, home, nvcc in _places(environment):
        if said := _RELEASE.search(output_of([str(nvcc), "--version"])):
            version = said[2]
            break
        if found_by in _NAMED:
            raise ToolchainError(
                f"{found_by} is {home}, where bin/nvcc is missing or does not run; "
                "point it at a CUDA toolkit, or unset it"
            )
    else:
        raise ToolchainError(_NO_NVCC)
    if not can_link(home):
        home = assemble(home, version, cache_folder(environment))
        nvcc = home / "bin" / "nvcc"
    return Toolkit(nvcc=nvcc, home=home, version=version, found_by=found_by)


def find_compiler(environment: Mapping[str, str] = os.environ) -> HostCompiler:
    """Return the C++ compiler that torch would use: $CXX, else c++, else g++.

    Raises:
        ToolchainError: there is none, or $CXX does not run.
    """
    named = environment.get("CXX", "")
    for words in [shlex.split(named)] if named else [["c++"], ["g++"]]:
        if (version := _first_version(words, environment)) is not None:
            return HostCompiler(command=tuple(words), version=version)
    if named:
        raise ToolchainError(f"CXX is {named!r}, which does not run; unset it or correct it")
    raise ToolchainError(
        "no C++ compiler was found (looked at CXX, c++ and g++); "
        "install one, such as with: apt-get install g++"
    )


def child_environment(base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a process that builds extensions.

    PATH begins with the interpreter's own folder, so that the ninja of a virtual environment is
    found without activating it; CUDA_HOME names the toolkit if there is one; TMPDIR is the folder
    that Python uses for temporary files.

    Raises:
        ToolchainError: no folder for temporary files can be written.
    """
    # Compilers stop at a TMPDIR that cannot be written, where Python takes the next folder.
    environment = {**base, "TMPDIR": _temporary_folder()}
    folders = [str(Path(sys.executable).parent)]
    # A process that builds only C++ needs no toolkit; one that does need it says so by itself.
    with contextlib.suppress(ToolchainError):
        toolkit = find_toolkit(base)
        environment["CUDA_HOME"] = str(toolkit.home)
        folders.append(str(toolkit.home / "bin"))
    environment["PATH"] = os.pathsep.join([*folders, environment.get("PATH", os.defpath)])
    return environment


def _temporary_folder() -> str:
    try:
        return tempfile.gettempdir()
    except FileNotFoundError as error:
        raise ToolchainError(
            "no folder for temporary files can be written; set TMPDIR to one that can"
        ) from error


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return kernelgen's folder in the user's cache; it may not exist yet.

    Raises:
        UserError: the user has no home folder, and names no other one.
    """
    if root := environment.get("XDG_CACHE_HOME"):
        return Path(root) / "kernelgen"
    try:
        return Path.home() / ".cache" / "kernelgen"
    except RuntimeError as error:
        raise UserError(
            "there is no home folder to keep anything in; set XDG_CACHE_HOME to a folder"
        ) from error


def builds_folder() -> Path:
    """Return the user's own folder for compiled extensions, made if need be; raises OSError."""
    folder = cache_folder() / "builds"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _places(environment: Mapping[str, str]) -> Iterator[tuple[str, Path, Path]]:
    """Yield how a toolkit was found, its folder and its nvcc, those that variables name first."""
    for name in _NAMED:
        if environment.get(name):
            yield name, Path(environment[name]), Path(environment[name]) / "bin" / "nvcc"
    on_path = shutil.which("nvcc", path=environment.get("PATH", os.defpath))
    if on_path is not None:
        yield "PATH", _home_of(Path(on_path)), Path(on_path)
    yield str(_SYSTEM_HOME), _SYSTEM_HOME, _SYSTEM_HOME / "bin" / "nvcc"
    spec = find_spec("nvidia")
    locations = spec.submodule_search_locations if spec else None
    for home in wheel_homes([Path(location) for location in locations or ()]):
        yield "NVIDIA's wheels", home, home / "bin" / "nvcc"


def _home_of(nvcc: Path) -> Path:
    # The file may be a wrapper script far from the toolkit, so nvcc itself is asked where it lives.
    environment = {**os.environ, "TMPDIR": _temporary_folder()}
    match = _TOP.search(output_of([str(nvcc), "--dryrun", "-x", "cu", os.devnull], environment))
    if match is not None and (Path(match.group(1)) / "include" / "cuda_runtime.h").exists():
        return Path(match.group(1)).resolve()
    return nvcc.parent.parent


def _first_version(command: list[str], environment: Mapping[str, str]) -> str | None:
    path = shutil.which(command[0], path=environment.get("PATH", os.defpath)) if command else None
    reply = output_of([path, *command[1:], "--version"]) if path else ""
    match = re.search(r"\d+\.\d+(?:\.\d+)?", reply)
    return match.group() if match else None


def output_of(command: list[str], environment: Mapping[str, str] = os.environ) -> str:
    """Return what a command says, "" if it does not run or fails."""
    try:
        said = said_by(command, _PROBE_SECONDS, env=environment, stderr=subprocess.STDOUT)
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.decode(errors="replace")


TOOL_PLACES = "CUDA_HOME, CUDA_PATH, PATH, beside nvcc, /usr/local/cuda"
"""Where `find_cuda_tool` looks, for messages."""


def find_cuda_tool(name: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return a program from CUDA_HOME, CUDA_PATH, PATH, beside nvcc or /usr/local/cuda, or None."""
    found = shutil.which(name, path=os.pathsep.join(tool_folders(environment)))
    return None if found is None else Path(found)


def tool_folders(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield where to look, each a folder or several in PATH's form."""
    for name in _NAMED:
        if environment.get(name):
            yield str(Path(environment[name]) / "bin")
    yield environment.get("PATH", os.defpath)
    with contextlib.suppress(ToolchainError):
        toolkit = find_toolkit(environment)
        yield str(toolkit.nvcc.parent)
        yield str(toolkit.nvcc.resolve().parent)
    yield "/usr/local/cuda/bin"

"""Compile what a solution would build, for named architectures, without a GPU.

The commands are those of torch's own build, architectures aside. The first architecture is compiled
to an object, host code included; the others only to device code, as their host code is the same.
"""

import re
import threading
import time
from concurrent.futures import Executor, Future
from pathlib import Path, PurePath

import msgspec

from kernelgen.build.ptxas import KernelResources, parse_ptxas
from kernelgen.build.recipe import Recipe
from kernelgen.build.slim_headers import full_headers_may_mend, slim_headers
from kernelgen.build.toolchain import HostCompiler, Toolkit, output_of
from kernelgen.build.torch_build import SLIM_FOLDER, write_files
from kernelgen.errors import UserError
from kernelgen.sandbox.contained import Command, run_contained
from kernelgen.sandbox.environment import room_environment
from kernelgen.sandbox.record import Plan

DEFAULT_ARCHS = ("sm_80", "sm_90a", "sm_100a")
# Past it, a run of a compiler counts as failed.
_TIMEOUT_S = 600.0
_ARCH = re.compile(r"sm_\d{2,3}[af]?")
_ARCH_OPTIONS = ("-gencode", "--generate-code", "-arch", "--gpu-architecture")
ABSENT_HEADERS = Path(__file__).with_name("absent_headers")
# Last, so that a real header wins: a CPU-only torch lacks some that its CUDA sources include,
# and a bare compiler lacks those of the libraries; see the folder's README.
_ABSENT = ("-isystem", str(ABSENT_HEADERS))


class CompileTime(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds that one source took for an architecture such as `sm_90a`.

    `arch` is None for the host compiler.
    """

    source: str
    arch: str | None
    seconds: float


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one compiler.

    Attributes:
        made: the object, if it is `ok`.
        kernels: the resources of its kernels; empty for the host compiler.
    """

    time: CompileTime
    ok: bool
    output: str
    made: Path
    kernels: tuple[KernelResources, ...] = ()


def parse_archs(given: tuple[str, ...]) -> tuple[str, ...]:
    """Return architectures from repeated and comma-separated options, without repetitions.

    Raises:
        UserError: one is not spelled like sm_80, sm_90a or sm_120f.
    """
    names = [name.strip() for entry in given for name in entry.split(",")]
    for name in names:
        if _ARCH.fullmatch(name) is None:
            raise UserError(f"--arch {name!r}: expected a name such as sm_80, sm_90a or sm_100a")
    return tuple(dict.fromkeys(names)) or DEFAULT_ARCHS


def refuse_unknown_archs(archs: tuple[str, ...], toolkit: Toolkit) -> None:
    """Make sure, before anything is built, that an nvcc compiles for architectures.

    Raises:
        UserError: it does not know one of them.
    """
    known = output_of([str(toolkit.nvcc), "--list-gpu-code"]).split()
    families = {name.rstrip("af") for name in known}
    # Where it does not list them, the compilation says what is wrong, in nvcc's own words.
    for arch in archs if known else ():
        if arch.rstrip("af") not in families:
            listed = ", ".join(known)
            raise UserError(
                f"--arch {arch}: nvcc {toolkit.version} does not know it; it has {listed}"
            )


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """The compilers of this machine.

    Attributes:
        toolkit: None where there is no nvcc.
        stop: set it from another thread to end what is being compiled.
    """

    toolkit: Toolkit | None
    compiler: HostCompiler
    stop: threading.Event = msgspec.field(default_factory=threading.Event)


class CompileSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that all compilations of a solution share.

    Attributes:
        archs: such as `sm_90a`; at least one.
        tools: without nvcc only where no source is CUDA.
        plan: what to put around each compiler; what it compiles may include any file by name.
    """

    archs: tuple[str, ...]
    tools: Tools
    plan: Plan


def compile_recipe(
    recipe: Recipe, settings: CompileSettings, scratch: Path, executor: Executor
) -> tuple[Compiled, ...]:
    """Compile every source of an extension, each CUDA source once an architecture."""
    slim, absent = _slim_words(recipe, scratch), _ABSENT if recipe.has_cuda else ()
    pending: list[Future[Compiled]] = []
    for name, rule in recipe.rules.items():
        path = scratch / PurePath(name).name
        path.write_text(recipe.files.get(name, ""))
        own = [f"-I{PurePath(name).parent}"] if PurePath(name).is_absolute() else []
        words = [*recipe.flags(rule), *own, *absent]
        if rule == "compile":
            command = [*settings.tools.compiler.command, *words, "-c"]
            pending.append(executor.submit(_compile, command, slim, path, None, settings))
            continue
        for arch in settings.archs:
            command = _nvcc_command(words, settings, arch)
            command += ["-c"] if arch == settings.archs[0] else ["-cubin"]
            pending.append(executor.submit(_compile, command, slim, path, arch, settings))
    return tuple(future.result() for future in pending)


def _slim_words(recipe: Recipe, scratch: Path) -> list[str]:
    headers = slim_headers(*recipe.texts())
    folder = scratch.resolve() / SLIM_FOLDER
    write_files(folder, headers)
    return [f"-I{folder}"] if headers else []


def _nvcc_command(words: list[str], settings: CompileSettings, arch: str) -> list[str]:
    toolkit, number = settings.tools.toolkit, arch.removeprefix("sm_")
    assert toolkit is not None, "the caller has checked for nvcc"
    target = f"-gencode=arch=compute_{number},code=sm_{number}"
    return [str(toolkit.nvcc), *_without_archs(words), target, "-Xptxas", "-v"]


def _without_archs(words: list[str]) -> list[str]:
    """Drop the solution's own choice of architectures: the user has named those to build for."""
    kept: list[str] = []
    left = iter(words)
    for word in left:
        option, joined, _ = word.partition("=")
        if option not in _ARCH_OPTIONS:
            kept.append(word)
        elif not joined:
            next(left, None)
    return kept


def _compile(
    words: list[str], slim: list[str], source: Path, arch: str | None, settings: CompileSettings
) -> Compiled:
    target = source.with_name(f"{source.name}.o" if arch is None else f"{source.name}.{arch}.o")
    begin = time.monotonic()
    folder = str(source.parent.resolve())
    # nvcc names its temporary files by its process's number, which is 2 for all that are contained.
    # Files that a killed one leaves go with the folder.
    temporary = target.with_suffix(".tmp")
    temporary.mkdir(exist_ok=True)
    texts = {source.name: source.read_text()}
    for headers in (slim, []):
        command = Command(
            words=[*words, *headers, str(source), "-o", str(target)],
            plan=msgspec.structs.replace(settings.plan, writable=(folder,)),
            environment=room_environment(str(temporary.resolve())),
            timeout_s=_TIMEOUT_S,
            stop=settings.tools.stop,
        )
        ended = run_contained(command, folder)
        ok = ended.code == 0
        ends = ok or ended.why or not headers
        if ends or not full_headers_may_mend(ended.log, texts):
            break
    return Compiled(
        time=CompileTime(source=source.name, arch=arch, seconds=time.monotonic() - begin),
        ok=ok,
        output=f"{ended.log}\n{ended.why} of compiling" if ended.why else ended.log,
        made=target,
        kernels=parse_ptxas(ended.log) if ok and arch is not None else (),
    )

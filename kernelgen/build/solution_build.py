"""Build one solution for named architectures: capture, compile, and say what went wrong where."""

import re
import shutil
import sysconfig
import time
from concurrent.futures import Executor
from pathlib import Path

import msgspec

from kernelgen.build import nvcc
from kernelgen.build.capture import CaptureError, Tell, capture_sources, plan_to_build
from kernelgen.build.diagnostics import explain_build_error
from kernelgen.build.ptxas import KernelResources, demangle
from kernelgen.build.recipe import Recipe
from kernelgen.build.slim_headers import torch_headers
from kernelgen.build.source import CaptureReply
from kernelgen.build.wheel_toolkit import INSTALL_NVCC
from kernelgen.errors import ToolchainError
from kernelgen.sandbox.contained import Command, run_contained
from kernelgen.sandbox.environment import room_environment
from kernelgen.sandbox.limits import small_file_limit
from kernelgen.sandbox.record import Plan
from kernelgen.scratch import temporary_folder
from kernelgen.solution.file import SolutionFile

_LEAST_FREE_BYTES = 16 << 20
_NM_TIMEOUT_S = 60.0
_SYMBOLS_BYTES = 64 << 20
_BASE_NAME = re.compile(r"([A-Za-z_]\w*)\s*(?:\(|$)")


class SolutionBuild(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of building one solution.

    Attributes:
        solution: path as the user gave it.
        ok: everything compiled.
        reason: what is wrong, one or more lines; "" if ok.
        came_to_build: what is wrong is not that the file's code came to no build, which it may do
            where it finds a GPU.
        seconds: wall time, the import of the solution included.
        extensions: names of the extensions.
        kernels: one entry a kernel and architecture.
        compile_times: one entry a run of a compiler.
    """

    solution: str
    ok: bool
    reason: str
    seconds: float
    came_to_build: bool = True
    extensions: tuple[str, ...] = ()
    kernels: tuple[KernelResources, ...] = ()
    compile_times: tuple[nvcc.CompileTime, ...] = ()

    @classmethod
    def failed(cls, path: Path, why: object, seconds: float = 0.0) -> "SolutionBuild":
        """Return the build of a file that did not come to be compiled."""
        return cls(solution=str(path), ok=False, reason=str(why), seconds=seconds)


def build_solution(  # noqa: PLR0913 (what is built, for what, and with what)
    solution: SolutionFile,
    reference_source: str | None,
    archs: tuple[str, ...],
    tools: nvcc.Tools,
    executor: Executor,
    *,
    tell: Tell,
    lends: bool = False,
) -> SolutionBuild:
    """Build one solution; nothing is linked, loaded or run on a device.

    `archs` are such as `sm_90a`. `tell` has a process say what is built. `reference_source` has
    get_init_inputs and get_inputs; None uses the solution's own. It `lends` the names that the
    solution lacks, or not.

    Raises:
        ToolchainError: the solution has CUDA sources and there is no nvcc, or the disk is full.
        KernelgenFault: this machine could not contain the solution or a compiler.
    """
    begin = time.monotonic()
    runs: list[nvcc.Compiled] = []
    with temporary_folder() as folder:
        try:
            reply = capture_sources(
                solution.path,
                reference_source,
                folder,
                tell,
                lends=lends,
                capability=_capability(archs[-1]) if solution.wants == "cuda" else None,
            )
        except CaptureError as error:
            why = f"{solution.path}: {error}"
            return SolutionBuild.failed(solution.path, why, time.monotonic() - begin)
        if tools.toolkit is None and any(recipe.has_cuda for recipe in reply.recipes):
            raise ToolchainError(
                f"{solution.path}: has CUDA sources and no nvcc was found; {INSTALL_NVCC}"
            )
        for fault in filter(None, map(Recipe.fault, reply.recipes)):
            why = f"{solution.path}: {fault}"
            return SolutionBuild.failed(solution.path, why, time.monotonic() - begin)
        reasons = _capture_reasons(solution, reply)
        stranded = bool(reasons) and not (reply.failure and reply.failure.in_build)
        plan = _plan(folder, solution, tools)
        settings = nvcc.CompileSettings(archs=archs, tools=tools, plan=plan)
        for number, recipe in enumerate(reply.recipes):
            scratch = folder / f"objects-{number}"
            scratch.mkdir()
            done = nvcc.compile_recipe(recipe, settings, scratch, executor)
            broken = _compile_reasons(solution, recipe, done, settings, scratch)
            reasons += broken
            stranded = stranded and not broken
            runs += done
    return SolutionBuild(
        solution=str(solution.path),
        ok=not reasons,
        reason="\n".join(reasons),
        seconds=time.monotonic() - begin,
        came_to_build=not stranded,
        extensions=tuple(recipe.library.removesuffix(".so") for recipe in reply.recipes),
        kernels=tuple(kernel for run in runs for kernel in run.kernels),
        compile_times=tuple(run.time for run in runs),
    )


def _plan(folder: Path, solution: SolutionFile, tools: nvcc.Tools) -> Plan:
    """Return what to put around the compilers; they may lie where nothing else is shown."""
    room = folder / "room"
    room.mkdir(exist_ok=True)
    headers = [str(nvcc.ABSENT_HEADERS), str(torch_headers()), sysconfig.get_path("include")]
    if tools.toolkit is not None:
        headers += [str(tools.toolkit.home), str(tools.toolkit.nvcc.resolve().parent.parent)]
    if Path(tools.compiler.command[0]).is_absolute():
        headers.append(tools.compiler.command[0])
    return plan_to_build(room, solution.path, tuple(headers))


def _refuse_no_room(folder: Path) -> None:
    """Take the blame off a solution whose compiler found no room."""
    if limit := small_file_limit():
        raise ToolchainError(limit)
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < _LEAST_FREE_BYTES:
        raise ToolchainError(
            f"the disk of {folder.parent} is full ({free_bytes >> 20} MiB free), so nothing "
            "compiles; make room, or set TMPDIR to a folder on another disk"
        )


def undefined_functions(objects: list[Path], names: tuple[str, ...], plan: Plan) -> tuple[str, ...]:
    """Return the mangled symbols of bound functions that no object defines.

    torch would notice them only on loading. What a compiler has made, where a solution chose its
    flags, may be anything, so it is read within a plan.

    Returns:
        Symbols in the order of the objects; empty also where binutils' nm is not installed.
    """
    nm = shutil.which("nm")
    if nm is None or not names:
        return ()
    defined: set[str] = set()
    wanted: dict[str, None] = {}
    folder = str(objects[0].parent.resolve())
    command = Command(
        words=[nm, "-P", *(path.name for path in objects)],
        plan=msgspec.structs.replace(plan, writable=(folder,)),
        environment=room_environment(folder),
        timeout_s=_NM_TIMEOUT_S,
        output_limit_bytes=_SYMBOLS_BYTES,
    )
    for line in run_contained(command, folder).output.decode(errors="replace").splitlines():
        # Of several objects, the name of each comes first.
        symbol, *kind = line.split()[:2] or [""]
        if kind == ["U"]:
            wanted[symbol] = None
        elif kind:
            defined.add(symbol)
    missing = [symbol for symbol in wanted if symbol not in defined]
    bases = [_BASE_NAME.search(name) for name in demangle(missing)]
    return tuple(
        symbol
        for symbol, base in zip(missing, bases, strict=True)
        if base is not None and base.group(1) in names
    )


def _capability(arch: str) -> tuple[int, int]:
    """Return (9, 0) for `sm_90a`."""
    digits = re.sub(r"\D", "", arch)
    return int(digits[:-1]), int(digits[-1])


def _capture_reasons(solution: SolutionFile, reply: CaptureReply) -> list[str]:
    """Return why nothing could be captured, at its line in the solution."""
    failure = reply.failure
    if failure is None:
        reason = (
            f"{solution.path}: builds no extension: neither import, ModelNew(...) nor forward "
            "called load_inline or load of torch.utils.cpp_extension"
        )
        return [] if reply.recipes or solution.has_no_kernel else [reason]
    when = {
        "import": "when the file is imported",
        "constructor": "when ModelNew is constructed",
        "forward": "in forward on meta tensors, before any extension was built",
    }[failure.phase]
    place = f"{solution.path}:{failure.line}" if failure.line else str(solution.path)
    reason = f"{place}: {failure.type} {when}: {failure.message}"
    held = solution.text.splitlines()
    if failure.line and failure.line <= len(held):
        reason += f"\n    {held[failure.line - 1].strip()}"
    return [reason]


def _compile_reasons(
    solution: SolutionFile,
    recipe: Recipe,
    done: tuple[nvcc.Compiled, ...],
    settings: nvcc.CompileSettings,
    scratch: Path,
) -> list[str]:
    texts = {Path(name).name: text for name, text in recipe.files.items()}
    failed = [run for run in done if not run.ok]
    if failed:
        _refuse_no_room(scratch.parent)
        # One explanation for all architectures: what fails on each of them is said once.
        output = "\n".join(run.output for run in failed)
        where = sorted({run.time.arch for run in failed if run.time.arch is not None})
        reason = explain_build_error(output, texts, solution)
        only_some = where and any(run.ok for run in done if run.time.arch is not None)
        return [f"{reason}\n  (fails for {', '.join(where)})" if only_some else reason]
    objects = [run.made for run in done if run.time.arch in {None, settings.archs[0]}]
    symbols = undefined_functions(objects, recipe.functions, settings.plan)
    text = "\n".join(f"undefined symbol: {symbol}" for symbol in symbols)
    return [explain_build_error(text, texts, solution)] if symbols else []

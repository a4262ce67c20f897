"""`kernelgen build`: compile solutions for named architectures, without a GPU."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import click
import msgspec
from rich.console import Console

from kernelgen.build.nvcc import DEFAULT_ARCHS, Tools, parse_archs, refuse_unknown_archs
from kernelgen.build.ptxas import KernelResources
from kernelgen.build.solution_build import SolutionBuild, build_solution
from kernelgen.build.toolchain import find_compiler, find_toolkit
from kernelgen.cli import options
from kernelgen.destination import STDOUT
from kernelgen.errors import ToolchainError, UserError
from kernelgen.grading.verdict import Owner
from kernelgen.hardware.device import usable_cores
from kernelgen.problem.library import load_problem, problem_names
from kernelgen.problem.text import encodable
from kernelgen.report.console import Column, console_for, keep_lines_whole, print_table
from kernelgen.report.json_report import write
from kernelgen.report.outcome import code_of_failures
from kernelgen.report.printable import printable, printable_lines
from kernelgen.solution.file import SolutionFile, read_solution

_SCHEMA = 1
_NOTHING = "nothing to build, no kernel of its own"
_OWN_ARGUMENTS = re.compile(r"^def get_init_inputs\b", re.MULTILINE)
_NAMESPACES = re.compile(r"^(?:\w+::)+")


class BuildReport(msgspec.Struct, frozen=True, kw_only=True):
    """All builds of one `kernelgen build`; the JSON report is this record.

    Attributes:
        schema: version of this form.
        nvcc: its version; null without a toolkit.
        compiler: command and version of the host's compiler.
        archs: architectures that CUDA sources were built for.
        builds: one a file, in the given order.
    """

    schema: int
    nvcc: str | None
    compiler: str
    archs: tuple[str, ...]
    builds: tuple[SolutionBuild, ...]


@click.command("build")
@click.argument("paths", nargs=-1, required=True, type=options.PATH, metavar="PATH...")
@click.option(
    "--arch",
    multiple=True,
    metavar="ARCH[,ARCH]",
    help=f"Architectures, repeatable.  [default: {','.join(DEFAULT_ARCHS)}]",
)
@options.problem("Take the constructor's arguments from here.")
@options.jobs("Compilers at a time; else one a core.")
@options.json()
def command(
    paths: tuple[Path, ...],
    arch: tuple[str, ...],
    problem: str | None,
    jobs: int | None,
    json: Path | None,
) -> None:
    """Compile solutions and show what their kernels cost; nothing is run on a GPU.

    PATH is a Python file that defines ModelNew, or a folder of such files.

    Exit code: 0 all compiled, 1 a solution did not, 2 a mistake in the command or in a problem,
    3 no compiler or no room for it.
    """
    from kernelgen.grading.supervisor.grade import expand

    archs = parse_archs(arch)
    if problem is not None:
        load_problem(problem)
    read = [_read(path) for path in expand(paths)]
    tools = _tools([found for found in read if isinstance(found, SolutionFile)], archs)
    references = [
        _reference(one, problem) if isinstance(one, SolutionFile) else None for one in read
    ]
    console = console_for(stderr=json == STDOUT)
    keep_lines_whole(console)
    builds: list[SolutionBuild] = []
    for build in _builds(read, references, archs, tools, jobs or usable_cores()):
        builds.append(build)
        _show(build, console)
    report = BuildReport(
        schema=_SCHEMA,
        nvcc=tools.toolkit.version if tools.toolkit else None,
        compiler=" ".join((*tools.compiler.command, tools.compiler.version)),
        archs=archs,
        builds=tuple(builds),
    )
    if json is not None:
        write(report, json)
    owners = {
        Owner.PROBLEM if one in references else Owner.CANDIDATE for one in builds if not one.ok
    }
    click.get_current_context().exit(code_of_failures(owners))


def _read(path: Path) -> SolutionFile | SolutionBuild:
    """Return a file, or the failed build of one that cannot be read, which stops no other."""
    if encodable(whole := str(path.resolve())) != whole:
        return SolutionBuild.failed(
            path, UserError(f"{path}: its path is not UTF-8; rename it, for compilers")
        )
    try:
        return read_solution(path)
    except UserError as error:
        return SolutionBuild.failed(path, error)


def _builds(
    read: list[SolutionFile | SolutionBuild],
    references: list[str | SolutionBuild | None],
    archs: tuple[str, ...],
    tools: Tools,
    width: int,
) -> Iterator[SolutionBuild]:
    """Yield the builds in the order of the files, each as soon as it is there."""
    from kernelgen.grading.supervisor.prebuilding import open_server, told_by_a_fork

    # Two pools: a solution waits for its compilers, so they may not queue behind solutions.
    with (
        open_server() as server,
        ThreadPoolExecutor(width) as compilers,
        ThreadPoolExecutor(width) as waiting,
    ):
        tell = partial(told_by_a_fork, server)
        started = [
            reference
            if isinstance(reference, SolutionBuild)
            else waiting.submit(
                build_solution, found, reference, archs, tools, compilers, tell=tell
            )
            if isinstance(found, SolutionFile)
            else found
            for found, reference in zip(read, references, strict=True)
        ]
        try:
            for build in started:
                yield build if isinstance(build, SolutionBuild) else build.result()
        except BaseException:
            # ^C, or a disk that is full: what still runs would be for nothing.
            tools.stop.set()
            server.stop()
            waiting.shutdown(wait=False, cancel_futures=True)
            raise


def _reference(solution: SolutionFile, given: str | None) -> str | SolutionBuild | None:
    """Return the reference whose arguments the constructor takes; None if it brings its own.

    Of one that cannot be used, it is the failed build.
    """
    name = given or solution.declared_problem or solution.path.stem
    # A file of another problem brings its own get_init_inputs, as one rendered from KernelBench's
    # does; without `# problem:` it may also need no arguments.
    declared = solution.declared_problem is not None and not _OWN_ARGUMENTS.search(solution.text)
    if given is None and not declared and name not in problem_names():
        return None
    try:
        problem = load_problem(name)
    except UserError as error:
        return SolutionBuild.failed(solution.path, error)
    return problem.reference_source(problem.all_cases()[0], solution.wants)


def _tools(solutions: list[SolutionFile], archs: tuple[str, ...]) -> Tools:
    try:
        toolkit = find_toolkit()
        refuse_unknown_archs(archs, toolkit)
    except ToolchainError:
        if any(solution.wants == "cuda" for solution in solutions):
            raise
        toolkit = None
    return Tools(toolkit=toolkit, compiler=find_compiler())


def _show(build: SolutionBuild, console: Console) -> None:
    name = printable(build.solution)
    if build.kernels:
        print_table(_columns(build), build.kernels, console)
    for line in printable_lines(build.reason):
        console.print(line, markup=False, soft_wrap=True)
    slowest = max((run.seconds for run in build.compile_times), default=0.0)
    what = "built" if build.ok else "FAILED"
    if build.ok and not build.kernels:
        what = "built by the C++ compiler, no kernels" if build.extensions else _NOTHING
    total = f"{build.seconds:.1f} s, slowest compiler {slowest:.1f} s"
    console.print(f"{name}: {what} ({total})", markup=False, soft_wrap=True)


def _columns(build: SolutionBuild) -> list[Column[KernelResources]]:
    def number(heading: str, cell: Callable[[KernelResources], object]) -> Column[KernelResources]:
        return Column(heading, lambda kernel: str(cell(kernel)), number=True)

    def seconds(kernel: KernelResources) -> str:
        found = sum(run.seconds for run in build.compile_times if run.arch == kernel.arch)
        return f"{found:.1f}"

    return [
        Column("kernel", lambda kernel: _short(kernel.name), name=True),
        Column("arch", lambda kernel: kernel.arch),
        number("regs", lambda kernel: kernel.registers),
        number("spilled B", lambda kernel: kernel.spill_store_bytes + kernel.spill_load_bytes),
        number("shared B", lambda kernel: kernel.shared_bytes),
        number("stack B", lambda kernel: kernel.stack_bytes),
        number("seconds", seconds),
    ]


def _short(name: str) -> str:
    """Return a demangled name without return type, namespaces and parameters."""
    bare = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    return _NAMESPACES.sub("", bare.split("(", 1)[0])

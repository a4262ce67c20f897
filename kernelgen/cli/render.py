"""`kernelgen render`: problems to solutions."""

import re
from pathlib import Path
from typing import Any

import click

from kernelgen.cli import kernelbench, options
from kernelgen.destination import STDOUT
from kernelgen.engines.architectures import ARCHITECTURES, DEFAULT_ARCHITECTURE, SIMPLE
from kernelgen.errors import ExitCode, KernelgenFault, UserError
from kernelgen.grading.options import GradeOptions
from kernelgen.kernelbench.generated import file_name
from kernelgen.problem.library import all_problems, load_problem
from kernelgen.problem.record import Backend, Precision
from kernelgen.problem.schedules import architecture_of
from kernelgen.rendering.files import SOLUTION_FOLDERS, difference, write_if_different
from kernelgen.rendering.solution import render, render_reference
from kernelgen.report.console import busy
from kernelgen.solution.file import NO_KERNEL, STAYS


class _Architecture(click.ParamType[str]):
    """One of ARCHITECTURES, or a GPU that runs what is for one of them."""

    name = "sm_NN|native"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the architecture, and say where it is not the one that was named."""
        if value in ARCHITECTURES:
            return value
        if value == "native":
            found = options.native_architecture("--arch names another")
        elif (named := re.fullmatch(r"sm_([89]|1\d)\d[af]?", value)) is not None:
            found = architecture_of((int(named[1]), 0))
        else:
            wanted = f"{', '.join(ARCHITECTURES)}, sm_NN of another GPU or native"
            self.fail(f"expected one of {wanted}, not {value!r}", param, ctx)
        click.echo(f"--arch {value}: rendered for {found}, which runs there", err=True)
        return found


def _settings(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Split `key=value` texts."""
    pairs: dict[str, str] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"expected key=value, not {value!r}")
        if key.strip() in pairs:
            raise click.BadParameter(f"{key.strip()} is set twice; leave one of them out")
        pairs[key.strip()] = text
    return pairs


@click.command("render")
@click.argument("names", metavar="[NAME]...", nargs=-1, type=options.ProblemName())
@click.option("--all", "everything", is_flag=True, help="Every problem that has a name.")
@options.path(
    "--output",
    "FILE|-",
    "Write here, - for stdout [default: solutions/NAME.py, solutions/cpu/NAME.py for cpp]; "
    "with --kernelbench the folder of a run.",
    "-o",
)
@options.backend("CUDA kernels or C++ for the CPU [default: cuda; --all --check: both].")
@click.option(
    "--arch",
    type=_Architecture(),
    help=f"GPUs that the fast kernels are for: {', '.join(ARCHITECTURES)}, another that runs one "
    f"of these, such as sm_89, or native, the one here [default: {DEFAULT_ARCHITECTURE}].",
)
@options.flag("--simple", "The general kernels alone, which are shorter and slower: to learn from.")
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_settings,
    help="Override a schedule number or constant; may be repeated.",
)
@options.PRECISION
@options.flag("--gradients", "Solutions that are right forward and backward.")
@options.flag("--reference", "The problem as a KernelBench-style file instead.")
@options.with_options(*kernelbench.PROBLEM_OPTIONS)
@options.flag("--check", "Write nothing; exit 1 with a diff if a file differs.")
def command(  # noqa: PLR0913 - one parameter an option
    names: tuple[str, ...],
    *,
    everything: bool,
    output: Path | None,
    backend: Backend | None,
    arch: str | None,
    simple: bool,
    settings: dict[str, str],
    precision: Precision | None,
    gradients: bool,
    reference: bool,
    check: bool,
    **chosen: Any,
) -> int:
    """Render the solutions of problems, given by NAME or by the path of a problem file.

    With --kernelbench, those of KernelBench's problems, into the folder of a run for `grade`.

    Exit code: 0 all rendered, 1 one of KernelBench's was not, or differs under --check, 2 a mistake
    in the command or in a problem file.
    """
    arch = _wanted(arch, simple=simple, cuda=not reference and backend != "cpp")
    asked = GradeOptions(precision=precision, gradients=gradients)
    files = kernelbench.problem_files(**chosen)
    if files:
        given = {
            "NAME": names,
            "--all": everything,
            "--set": settings,
            "--reference": reference,
            "--check": check,
        }
        if wrong := [name for name, value in given.items() if value]:
            raise click.UsageError(f"--kernelbench and {wrong[0]} exclude each other")
        return _run_folder(files, output, backend or "cuda", arch, asked)
    if everything == bool(names):
        raise click.UsageError("give either problems or --all")
    problems = all_problems() if everything else tuple(map(load_problem, names))
    problems, named = tuple(map(asked.applied_to, problems)), problems
    several, unnamed = len(problems) > 1, output in {None, STDOUT}
    mistakes = {
        "-o takes one problem at a time": output is not None and several,
        "--set changes solutions; a reference is the problem as it is": reference and settings,
        "another --precision, --gradients and --simple need -o FILE": output is None
        and (simple or problems != named),
        "--reference takes one problem at a time": reference and several,
        "--reference --check needs -o FILE": reference and check and unnamed,
    }
    if wrong := [text for text, made in mistakes.items() if made]:
        raise click.UsageError(wrong[0])
    if reference:
        text = render_reference(problems[0], backend or "cuda")
        _finish({output or STDOUT: text}, check=check)
        return ExitCode.OK
    backends: list[Backend] = [backend or "cuda"]
    if everything and check and backend is None and output is None and arch is None:
        backends = ["cuda", "cpp"]
    texts = {}
    for problem in problems:
        with busy(f"{problem.name}: torch traces its Model, kernels are chosen"):
            for each in backends:
                path = output or SOLUTION_FOLDERS[each] / f"{problem.name}.py"
                texts[path] = render(problem, each, settings, arch)
    _finish(texts, check=check)
    return ExitCode.OK


def _wanted(arch: str | None, *, simple: bool, cuda: bool) -> str | None:
    """Return what the kernels are to be for."""
    if (arch is not None or simple) and not cuda:
        raise click.UsageError(f"--{'simple' if simple else 'arch'} goes with CUDA solutions only")
    if simple and arch is not None:
        raise click.UsageError("--simple and --arch exclude each other")
    return SIMPLE if simple else arch


def _run_folder(
    files: kernelbench.ProblemFiles,
    folder: Path | None,
    backend: Backend,
    arch: str | None,
    asked: GradeOptions,
) -> int:
    """Write the solution of each problem as it is there; one that has none stops no other."""
    if folder is None:
        raise click.UsageError("--kernelbench needs -o RUN_DIR, the folder of a run")
    if folder == STDOUT or (folder.exists() and not folder.is_dir()):
        raise click.UsageError(f"-o {folder}: expected the folder of a run")
    rendered, without, code = 0, 0, ExitCode.OK
    for level, number, file in files:
        path = folder / file_name(level, number)
        try:
            text = render(asked.applied_to(load_problem(file)), backend, arch=arch)
        except UserError as error:
            code = max(code, ExitCode.CANDIDATE_FAILED)
            click.echo(f"{path}: not rendered: {error}", err=True)
        except (KernelgenFault, OSError):
            raise  # the next would fail of it as well
        except Exception as error:  # noqa: BLE001 - a bug that one problem shows stops no other
            code = ExitCode.GRADER_FAULT
            bug = f"{type(error).__name__}: {' '.join(str(error).splitlines())}"
            shown = f"`kernelgen render {file} -o -` shows where"
            click.echo(f"{path}: not rendered: a bug in kernelgen, {bug}; {shown}", err=True)
        else:
            _write(path, text)
            rendered += 1
            without += NO_KERNEL in text
    also = f", {without} of them without a kernel of their own" if without else ""
    click.echo(f"{rendered} of {len(files)} problems rendered{also}", err=True)
    return code


def _finish(texts: dict[Path, str], *, check: bool) -> None:
    stale, alike = 0, 0
    for path, text in texts.items():
        if check:
            if path == STDOUT:
                raise UserError("--check compares with a file; -o - names none")
            found = difference(path, text)
            click.echo(found, nl=False)
            if found or len(texts) == 1:
                click.echo(f"{path}: {'differs' if found else 'up to date'}", err=True)
            stale, alike = stale + bool(found), alike + (not found)
        elif path == STDOUT:
            click.echo(text, nl=False)
        else:
            alike += not _write(path, text, alone=len(texts) == 1)
    if alike and len(texts) > 1:
        state = "up to date" if check else "unchanged"
        click.echo(f"{alike} of {len(texts)} files are {state}", err=True)
    if stale:
        click.echo(f"{stale} of {len(texts)} files are not what would be rendered now", err=True)
        raise click.exceptions.Exit(ExitCode.CANDIDATE_FAILED)


def _write(path: Path, text: str, *, alone: bool = True) -> bool:
    """Write a file and say so; one among several that has the text already is only counted."""
    changed = write_if_different(path, text)
    if not (changed or alone):
        return False
    written = "written" if changed else "unchanged"
    also = ", no kernel of its own: all of it stays in torch" if NO_KERNEL in text else ""
    if also and (why := re.search(rf"^{STAYS}(.*)$", text, re.MULTILINE)):
        also += f" ({why[1]})"
    click.echo(f"{path}: {written}{also}", err=True)
    return changed

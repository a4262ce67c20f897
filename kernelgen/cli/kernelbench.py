"""The options that take KernelBench's checkout and its runs' folders, and what they choose."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import click
import msgspec

from kernelgen.cli import options
from kernelgen.destination import check_destination
from kernelgen.errors import UserError
from kernelgen.grading.verdict import Run
from kernelgen.hardware.device import has_gpu_driver
from kernelgen.kernelbench.checkout import Checkout
from kernelgen.kernelbench.generated import Generated, Wanted, generated_files
from kernelgen.kernelbench.results import FILE_NAME, read_results, write_results
from kernelgen.problem.library import problem_names
from kernelgen.problem.record import Problem
from kernelgen.solution.file import GENERATED_NAME

PROBLEM_OPTIONS = (
    options.path("--kernelbench", "PATH", "KernelBench's checkout, with the problems.", "path"),
    options.numbers("--level", "levels", "1-3", "Only these levels of it; else all."),
    options.numbers("--problems", "problems", "1-10,23", "Only these of its problems."),
)
RUN_OPTIONS = (
    *PROBLEM_OPTIONS,
    options.numbers("--sample-ids", "sample_ids", "0,1", "Only these samples."),
)


class RunFolders(msgspec.Struct, frozen=True, kw_only=True):
    """Generated files, each with its problem, or why it has none; results go beside them.

    Raises:
        UserError: they cannot be written, or what is there is something else.
    """

    files: tuple[Generated, ...]
    problems: dict[Path, Problem | UserError]

    def __post_init__(self) -> None:
        for folder in self._folders():
            check_destination(folder / FILE_NAME)
            read_results(folder / FILE_NAME)

    def write(self, run: Run) -> None:
        """Write `eval_results.json` in each folder, and say where, and what is not in it.

        Raises:
            UserError: one cannot be written.
        """
        for folder in self._folders():
            path = folder / FILE_NAME
            mine = [file for file in self.files if file.path.parent == folder]
            left_out = write_results(path, mine, run)
            statuses = ", ".join(sorted({verdict.status.value for verdict in left_out}))
            note = f"; {len(left_out)} not judged and left out ({statuses})" if left_out else ""
            click.echo(f"{path}: written{note}", err=True)

    def _folders(self) -> dict[Path, None]:
        return dict.fromkeys(file.path.parent for file in self.files)


def run_folders(paths: tuple[Path, ...], given: dict[str, Any]) -> RunFolders | None:
    """Return the generated files that are meant, with their problems; None without a checkout.

    Args:
        paths: files or folders of a run.
        given: the options' values; those of RUN_OPTIONS are taken out, and what is to be graded on
            `auto` is graded on the GPU if there is one, as KernelBench does.

    Raises:
        UserError: a path holds none, no problem can be read, or options do not go together.
    """
    path = given.pop("path")
    chosen = {name: given.pop(name) for name in ("levels", "problems", "sample_ids")}
    if path is None:
        _refuse_without_checkout(**chosen)
        _refuse_runs(paths, given)
        return None
    for name in ("problem", "reference"):
        if given[name] is not None:
            raise UserError(f"--{name} and --kernelbench exclude each other; leave one of them out")
    if given["device"] == "auto" and has_gpu_driver():
        given["device"] = "cuda"
    checkout = Checkout(path)
    files = generated_files(paths, Wanted(**chosen))
    loaded: dict[tuple[int, int], Problem | UserError] = {}
    for file in files:
        if (file.level, file.problem) not in loaded:
            try:
                loaded[file.level, file.problem] = checkout.problem(file.level, file.problem)
            except UserError as error:  # it is the verdict on its files
                loaded[file.level, file.problem] = error
    wrong = [one for one in loaded.values() if isinstance(one, UserError)]
    if len(wrong) == len(loaded):
        raise wrong[0]
    return RunFolders(
        files=tuple(files),
        problems={file.path: loaded[file.level, file.problem] for file in files},
    )


def _refuse_without_checkout(**chosen: object) -> None:
    for name, value in chosen.items():
        if value is not None:
            option = "level" if name == "levels" else name.replace("_", "-")
            raise UserError(f"--{option} goes with --kernelbench PATH; add it")


def _refuse_runs(paths: tuple[Path, ...], given: dict[str, Any]) -> None:
    """Refuse folders of a run whose problems nothing tells; once, not for each of its files."""
    for path in paths if given["problem"] is given["reference"] is None else ():
        files = {file.name: file.read_text(errors="replace") for file in path.glob("*.py")}
        told = any(f"# problem: {name}\n" in t for t in files.values() for name in problem_names())
        if files and all(map(GENERATED_NAME.fullmatch, files)) and not told:
            raise UserError(
                f"{path}: files of a KernelBench run; add --kernelbench PATH, its clone"
            )


ProblemFiles = tuple[tuple[int, int, Path], ...]
"""Level, number and path of files of a checkout, which are yet to be read."""


def problem_files(
    path: Path | None, levels: Collection[int] | None, problems: Collection[int] | None
) -> ProblemFiles:
    """Return files of a checkout, in order; none without one.

    Raises:
        UserError: there are none.
    """
    if path is None:
        _refuse_without_checkout(levels=levels, problems=problems)
        return ()
    checkout = Checkout(path)
    found = tuple(
        (level, number, file)
        for level in (checkout.levels if levels is None else sorted(levels))
        for number, file in checkout.problems(level).items()
        if problems is None or number in problems
    )
    if not found:
        raise UserError(f"{path}: has none of the problems that are asked for")
    return found

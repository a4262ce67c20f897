"""Generated files by KernelBench's naming: `level_{L}_problem_{P}_sample_{S}_kernel.py`."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec

from kernelgen.errors import UserError
from kernelgen.solution.file import GENERATED_NAME

_PATTERN = "level_L_problem_P_sample_S_kernel.py"


class Generated(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A generated file; sorted, those of one problem lie side by side."""

    level: int
    problem: int
    sample: int
    path: Path


def file_name(level: int, problem: int) -> str:
    """Return the name of a problem's first sample."""
    return f"level_{level}_problem_{problem}_sample_0_kernel.py"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the files are meant; None is all."""

    levels: Collection[int] | None = None
    problems: Collection[int] | None = None
    sample_ids: Collection[int] | None = None

    def __contains__(self, file: Generated) -> bool:
        return (
            (self.levels is None or file.level in self.levels)
            and (self.problems is None or file.problem in self.problems)
            and (self.sample_ids is None or file.sample in self.sample_ids)
        )


def generated_files(paths: Sequence[Path], wanted: Wanted) -> list[Generated]:
    """Return the files that paths mean: files of that name, or folders that hold some.

    Raises:
        UserError: a path does not exist or holds no such file, a file has another name, or those of
            one folder are of several levels, which its results would mix up.
    """
    found: dict[Path, Generated] = {}
    for path in paths:
        mine = [file for file in _named(path) if file in wanted]
        if not mine:
            which = "" if wanted == Wanted() else " of those that are asked for"
            raise UserError(f"{path}: holds no file {_PATTERN}{which}")
        found |= {file.path: file for file in mine}
    files = sorted(found.values())
    _require_one_level(files)
    return files


def _named(path: Path) -> Iterator[Generated]:
    if not path.exists():
        raise UserError(f"{path}: no such file or folder")
    for file in path.iterdir() if path.is_dir() else [path]:
        if match := GENERATED_NAME.fullmatch(file.name):
            level, problem, sample = map(int, match.groups())
            yield Generated(level=level, problem=problem, sample=sample, path=file)
        elif file is path:
            raise UserError(f"{path}: expected a name like {_PATTERN}; rename the file")


def _require_one_level(files: Sequence[Generated]) -> None:
    levels: dict[Path, set[int]] = {}
    for file in files:
        levels.setdefault(file.path.parent, set()).add(file.level)
    for folder, several in levels.items():
        if len(several) > 1:
            named = ", ".join(map(str, sorted(several)))
            message = f"holds files of levels {named}, which eval_results.json does not tell apart"
            raise UserError(f"{folder}: {message}; choose one with --level")

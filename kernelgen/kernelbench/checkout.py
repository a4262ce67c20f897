"""KernelBench's problems: `KernelBench/level{L}/{P}_{Name}.py` in its checkout."""

import re
from pathlib import Path

from kernelgen.errors import UserError
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Problem

_LEVEL = re.compile(r"level(\d+)")
_FILE = re.compile(r"(\d+)_.*\.py")


class Checkout:
    """The problems below a folder: KernelBench's checkout, or its folder KernelBench/.

    Attributes:
        levels: the folders of the levels that are there, by their numbers, in order.

    Raises:
        UserError: there are none.
    """

    def __init__(self, path: Path) -> None:
        inner = path / "KernelBench"
        folders = (inner if inner.is_dir() else path).glob("level*")
        matches = {folder: _LEVEL.fullmatch(folder.name) for folder in folders if folder.is_dir()}
        found = {int(match[1]): folder for folder, match in matches.items() if match is not None}
        self._path, self.levels = path, dict(sorted(found.items()))
        if not found:
            message = "expected KernelBench's checkout, with KernelBench/level1/ in it"
            raise UserError(f"{path}: {message}, found no folder level1")

    def problems(self, level: int) -> dict[int, Path]:
        """Return the files of a level by their numbers, in order.

        Raises:
            UserError: there is no such level, or a number has two files.
        """
        if level not in self.levels:
            known = ", ".join(map(str, self.levels))
            raise UserError(f"{self._path}: no level {level}; there are {known}")
        found: dict[int, Path] = {}
        for file in sorted(self.levels[level].iterdir()):
            match = _FILE.fullmatch(file.name)
            if match is None:
                continue
            number = int(match.group(1))
            if number in found:
                message = f"is problem {number} of its level, as {found[number].name} is"
                raise UserError(f"{file}: {message}; remove one of them")
            found[number] = file
        return dict(sorted(found.items()))

    def problem(self, level: int, number: int) -> Problem:
        """Load a problem.

        Raises:
            UserError: there is no such problem, or its file is wrong.
        """
        files = self.problems(level)
        if number not in files:
            words = f"has no problem {number}: expected a file {number}_NAME.py"
            raise UserError(f"{self.levels[level]}: {words}")
        return load_problem(files[number])

"""KernelBench's problems: `KernelBench/level{L}/{P}_{Name}.py` in its checkout."""

import re
from functools import cached_property
from pathlib import Path

from kernelgen.errors import UserError
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Problem

_LEVEL = re.compile(r"level(\d+)")
_FILE = re.compile(r"(\d+)_.*\.py")


class Checkout:
    """The problems below a folder: KernelBench's checkout, or its folder KernelBench/.

    Raises:
        UserError: there are none.
    """

    def __init__(self, path: Path) -> None:
        inner = path / "KernelBench"
        self._path, self._root = path, inner if inner.is_dir() else path
        if not self._levels:
            message = "expected KernelBench's checkout, with KernelBench/level1/ in it"
            raise UserError(f"{path}: {message}, found no folder level1")

    @property
    def levels(self) -> tuple[int, ...]:
        """Return the levels that are there, in order."""
        return tuple(sorted(self._levels))

    def problems(self, level: int) -> dict[int, Path]:
        """Return the files of a level by their numbers, in order.

        Raises:
            UserError: there is no such level, or a number has two files.
        """
        if level not in self._levels:
            known = ", ".join(map(str, self.levels))
            raise UserError(f"{self._path}: no level {level}; there are {known}")
        found: dict[int, Path] = {}
        for file in sorted(self._levels[level].iterdir()):
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
            place = self._levels[level]
            raise UserError(f"{place}: has no problem {number}: expected a file {number}_NAME.py")
        return load_problem(files[number])

    @cached_property
    def _levels(self) -> dict[int, Path]:
        if not self._root.is_dir():
            return {}
        matches = {folder: _LEVEL.fullmatch(folder.name) for folder in self._root.iterdir()}
        return {int(m.group(1)): f for f, m in matches.items() if m is not None and f.is_dir()}

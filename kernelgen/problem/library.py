"""Finding a problem by name or by path.

A name is looked up in `problems/` of the current directory first, then among those that come with
kernelgen, so that a problem can be added or replaced without touching the installed package.
"""

import difflib
from pathlib import Path

from kernelgen.errors import UserError
from kernelgen.installation import problems_folder
from kernelgen.problem.record import Problem

_YAML = (".yaml", ".yml")


def load_problem(name_or_path: str | Path, beside: Path | None = None) -> Problem:
    """Load a problem.

    Args:
        name_or_path: a name such as `groupnorm`, or a path to a `.yaml`, `.yml` or KernelBench
            `.py` file. A string is a path if it ends in one of these or holds a separator.
        beside: a solution's file; a name that is no other problem's may be a YAML file beside it.

    Raises:
        ProblemError: the file cannot be read or is wrong.
        UserError: no problem has that name, or the path has another ending.
    """
    # PyYAML takes as long to import as `kernelgen list` takes for all else.
    from kernelgen.problem.kernelbench_file import read_kernelbench_problem
    from kernelgen.problem.yaml_file import read_yaml_problem

    path = Path(name_or_path)
    if path.suffix in _YAML:
        return read_yaml_problem(path)
    if path.suffix == ".py":
        return read_kernelbench_problem(path)
    if isinstance(name_or_path, Path) or len(path.parts) != 1:
        raise UserError(f"{path}: expected a file ending in .yaml, .yml or .py")
    name = str(name_or_path)
    for file in problem_files():
        if file.stem == name:
            return read_yaml_problem(file)
    if beside is not None and beside.is_file():
        own = beside.with_name(f"{name}.yaml")
        if own.is_file():
            return read_yaml_problem(own)
    close = difflib.get_close_matches(name, problem_names(), n=3, cutoff=0.5)
    mend = f"did you mean {' or '.join(close)}? " if close else ""
    raise UserError(f"no problem is called {name!r}; {mend}`kernelgen list` shows all of them")


def all_problems() -> tuple[Problem, ...]:
    """Load every problem that has a name, in the order of the names.

    Raises:
        ProblemError: one of the files cannot be read or is wrong.
    """
    return tuple(map(load_problem, problem_files()))


def problem_names() -> tuple[str, ...]:
    """Return the names that `load_problem` knows, sorted, without reading the files."""
    return tuple(file.stem for file in problem_files())


def problem_files() -> tuple[Path, ...]:
    """Return the file of each name, sorted by name; the current directory's own win."""
    files: dict[str, Path] = {}
    for folder in (Path("problems"), problems_folder()):
        if not folder.is_dir():
            continue
        for file in sorted(folder.iterdir()):
            if file.suffix in _YAML and file.is_file():
                files.setdefault(file.stem, file)
    return tuple(files[name] for name in sorted(files))

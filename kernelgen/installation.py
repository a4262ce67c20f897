"""Where the templates, the problems and the selftest's corpus that come with kernelgen lie.

In a wheel they are inside the package (`kernelgen/_data`); in a clone, and in an editable install
of one, they are folders of the repository.
"""

from pathlib import Path

TESTED_TORCH = (2, 13)
"""The newest release that CI tests: that of constraints.txt."""
_PACKAGE = Path(__file__).resolve().parent


def newer_than_tested(torch: str) -> str:
    """Return in words that a version of torch is newer than what CI tests, or ""."""
    release = tuple(int(part) for part in torch.split(".")[:2] if part.isdecimal())
    tested = ".".join(map(str, TESTED_TORCH))
    return f"newer than {tested}, which kernelgen is tested with" if release > TESTED_TORCH else ""


def _data_folder(name: str, in_clone: str | None = None) -> Path:
    packaged = _PACKAGE / "_data" / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / (in_clone or name)


def templates_folder() -> Path:
    """Return the folder of the Jinja templates."""
    return _data_folder("templates")


def problems_folder() -> Path:
    """Return the folder of the shipped problems."""
    return _data_folder("problems")


def recorded_calibration() -> Path:
    """Return where the rates of the H200 lie that this repository's records are of."""
    return _data_folder("h200", in_clone="benchmarks/h200/calibration") / "calibration.json"


def selftest_folder() -> Path:
    """Return the folder of `candidates/`, which the selftest grades, and of their `problems/`."""
    return _data_folder("selftest", in_clone="tests")

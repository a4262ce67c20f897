"""Where the templates and problems that come with kernelgen lie.

In a wheel they are inside the package (`kernelgen/_data`); in a clone, and in an editable install
of one, they are the top-level folders.
"""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def _data_folder(name: str) -> Path:
    packaged = _PACKAGE / "_data" / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name


def templates_folder() -> Path:
    """Return the folder of the Jinja templates."""
    return _data_folder("templates")


def problems_folder() -> Path:
    """Return the folder of the shipped problems."""
    return _data_folder("problems")

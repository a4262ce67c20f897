"""An extension as torch would have ninja build it: what two builds have to share to be the same."""

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec

_SOURCE = re.compile(r"^build \S+: (cuda_compile|compile) (.+)$", re.MULTILINE)
_LIBRARY = re.compile(r"^build ([\w.+-]+): link ", re.MULTILINE)
_NAME = re.compile(r"\w[\w.+-]*")


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """One extension, of which all files lie in one folder.

    Attributes:
        library: the file that ninja makes.
        ninja: torch's build.ninja, with paths relative to its folder.
        files: texts of the sources, by name.
    """

    library: str
    ninja: str
    files: dict[str, str]

    @property
    def digest(self) -> str:
        """Return what no other recipe has."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()

    def is_sound(self) -> bool:
        """Whether its names are names of files in its folder: a candidate may have made them up."""
        return all(_NAME.fullmatch(name) for name in (self.library, *self.files))

    def texts(self) -> tuple[str, str]:
        """Return what the C++ compiler and what nvcc is given, each joined."""
        return join_sources(self.ninja, lambda name: self.files.get(name, ""))


def read_recipe(folder: Path) -> Recipe | None:
    """Return the recipe that torch has written into a folder; None if not all is text there."""
    # As torch makes the names of sources absolute.
    own = os.path.abspath(folder)  # noqa: PTH100 (links are not followed)
    ninja = (folder / "build.ninja").read_text().replace(f"{own}/", "")
    library = _LIBRARY.search(ninja)
    names = [path for _, path in _SOURCE.findall(ninja)]
    if library is None or not all(_NAME.fullmatch(name) for name in names):
        return None
    try:
        files = {name: (folder / name).read_text(encoding="utf-8") for name in names}
    except UnicodeDecodeError:
        return None
    return Recipe(library=library[1], ninja=ninja, files=files)


def join_sources(ninja: str, read: Callable[[str], str]) -> tuple[str, str]:
    """Return what a build.ninja gives to the C++ compiler, and what to nvcc, each joined."""
    texts: dict[str, list[str]] = {"compile": [], "cuda_compile": []}
    for rule, path in _SOURCE.findall(ninja):
        texts[rule].append(read(path.replace("$ ", " ")))
    return "\n".join(texts["compile"]), "\n".join(texts["cuda_compile"])

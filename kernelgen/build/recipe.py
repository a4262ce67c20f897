"""An extension as torch would have ninja build it: what two builds have to share to be the same."""

import hashlib
import os
import re
import shlex
from pathlib import Path

import msgspec

_SOURCE = re.compile(r"^build \S+: (cuda_compile|compile) (.+)$", re.MULTILINE)
_LIBRARY = re.compile(r"^build (.+): link ", re.MULTILINE)
_NAME = re.compile(r"\w[\w.+-]*")
_BOUND = re.compile(r'^m\.def\("(\w+)", torch::wrap_pybind_function', re.MULTILINE)
_UNREADABLE = "\ufffd"


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """One extension.

    Attributes:
        library: the file that ninja makes.
        ninja: torch's build.ninja, with paths relative to its folder.
        files: texts of the sources, by name; one that lies elsewhere has its path for a name. A
            byte that is not UTF-8 is U+FFFD.
    """

    library: str
    ninja: str
    files: dict[str, str]

    @property
    def digest(self) -> str:
        """Return what no other recipe has."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()

    @property
    def rules(self) -> dict[str, str]:
        """Return the sources with what compiles each: `compile` or `cuda_compile`."""
        return _rules(self.ninja)

    @property
    def has_cuda(self) -> bool:
        """Whether nvcc compiles a part of it."""
        return "cuda_compile" in self.rules.values()

    @property
    def functions(self) -> tuple[str, ...]:
        """Return the names that load_inline was told to bind."""
        return tuple(name for text in self.files.values() for name in _BOUND.findall(text))

    def is_sound(self) -> bool:
        """Whether it has files of its own folder alone, and all is text; it may be made up."""
        names = all(_NAME.fullmatch(name) for name in (self.library, *self.files))
        return names and not any(_UNREADABLE in text for text in self.files.values())

    def texts(self) -> tuple[str, str]:
        """Return what the C++ compiler and what nvcc is given, each joined."""
        given: dict[str, list[str]] = {"compile": [], "cuda_compile": []}
        for name, rule in self.rules.items():
            given[rule].append(self.files.get(name, ""))
        return "\n".join(given["compile"]), "\n".join(given["cuda_compile"])

    def flags(self, rule: str) -> list[str]:
        """Return the words that a compiler is given, as a shell takes them from ninja."""
        variable = "cuda_cflags" if rule == "cuda_compile" else "cflags"
        found = re.search(rf"^{variable} = (.*)$", self.ninja, re.MULTILINE)
        return shlex.split(found[1].replace("$$", "$")) if found else []


def read_recipe(folder: Path) -> Recipe:
    """Return the recipe that torch has written into a folder."""
    # As torch makes the names of sources absolute.
    own = os.path.abspath(folder)  # noqa: PTH100 (links are not followed)
    ninja = (folder / "build.ninja").read_text().replace(f"{own}/", "")
    library = _LIBRARY.search(ninja)
    files = {
        name: (folder / name).read_text(encoding="utf-8", errors="replace")
        for name in _rules(ninja)
    }
    return Recipe(library=library[1] if library else "", ninja=ninja, files=files)


def _rules(ninja: str) -> dict[str, str]:
    return {path.replace("$ ", " "): rule for rule, path in _SOURCE.findall(ninja)}

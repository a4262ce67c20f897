"""An extension as torch would have ninja build it: what two builds have to share to be the same."""

import hashlib
import itertools
import os
import re
import shlex
from pathlib import Path, PurePath

import msgspec

_SOURCE = re.compile(r"^build \S+: (cuda_compile|compile) (.+)$", re.MULTILINE)
_LIBRARY = re.compile(r"^build (.+): link ", re.MULTILINE)
_NAME = re.compile(r"\w[\w.+-]*")
_BOUND = re.compile(r'^m\.def\("(\w+)", torch::wrap_pybind_function', re.MULTILINE)
# Objects get their source's name with another ending.
_SOURCE_NAME = re.compile(r"[^/\0]+\.(?!(?:o|tmp)$)[^./\0]+")
_LONGEST_NAME = 200
_ASKS_FOR_A_FILE = re.compile(r"__has_(?:include|include_next|embed)\s*\(\s*[^<\s]")
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
        """Whether it has files of its own folder alone, and all is text; it may be made up.

        What asks for a file beside it, and does without, would be another library elsewhere.
        """
        names = all(_NAME.fullmatch(name) for name in (self.library, *self.files))
        texts = self.files.values()
        whole = not any(_UNREADABLE in text or _ASKS_FOR_A_FILE.search(text) for text in texts)
        return names and whole and not self.fault()

    def fault(self) -> str:
        """Return why no compiler can be asked to make it, "" if some can; it may be made up."""
        try:
            words = [*self.flags("compile"), *self.flags("cuda_compile")]
        except ValueError as error:
            return f"its flags are not the words of a shell: {error}"
        names = [PurePath(path).name for path in self.rules]
        for name in names:
            long = len(name.encode()) > _LONGEST_NAME
            if long or not _SOURCE_NAME.fullmatch(name):
                return f"{name[:_LONGEST_NAME]!r} is no name of a source"
        # As torch names them.
        objects = [(PurePath(path).stem, rule) for path, rule in self.rules.items()]
        twice = [name for name, one in zip(names, objects, strict=True) if objects.count(one) > 1]
        if twice:
            return f"the objects of {' and '.join(twice[:2])} would have one name; rename a source"
        zero = "\0" in "".join([*words, *self.rules])
        return "a zero is among its flags or paths" if zero else ""

    def texts(self) -> tuple[str, str]:
        """Return what the C++ compiler and what nvcc is given, each joined."""
        given: dict[str, list[str]] = {"compile": [], "cuda_compile": []}
        for name, rule in self.rules.items():
            given[rule].append(self.files.get(name, ""))
        return "\n".join(given["compile"]), "\n".join(given["cuda_compile"])

    def folders(self) -> list[str]:
        """Return the folders in which its flags have headers looked for."""
        words = [*self.flags("compile"), *self.flags("cuda_compile")]
        joined = [word[2:] for word in words if word.startswith("-I") and len(word) > len("-I")]
        apart = [folder for word, folder in itertools.pairwise(words) if word in {"-I", "-isystem"}]
        return list(dict.fromkeys([*joined, *apart]))

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

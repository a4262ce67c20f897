"""Builds of tests, once for all processes of a run and for later runs.

A library is kept by the hash of its source, the command, and the files that both name, in pytest's
cache folder; `pytest --cache-clear` empties it.
"""

import ctypes
import hashlib
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from filelock import FileLock

TESTS = Path(__file__).resolve().parent
EMULATION = TESTS / "cuda_emulation"


class Libraries(Mapping[str, ctypes.CDLL]):
    """Libraries by name, each rendered, compiled and loaded when it is first asked for.

    Args:
        command: of the compiler, without the source and `-o`.
        sources: name -> what returns its C++ text.
        prepare: called with the name of a library and the library, once it is loaded.
        folder: where all runs keep libraries.
    """

    def __init__(
        self,
        command: Sequence[str],
        sources: Mapping[str, Callable[[], str]],
        folder: Path,
        prepare: Callable[[str, ctypes.CDLL], None] = lambda *_: None,
    ) -> None:
        self._command, self._sources, self._folder = command, sources, folder
        self._prepare = prepare
        self._loaded: dict[str, ctypes.CDLL] = {}

    def __getitem__(self, name: str) -> ctypes.CDLL:
        if name not in self._loaded:
            self._loaded[name] = library = ctypes.CDLL(str(self._compiled(name)))
            self._prepare(name, library)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def _compiled(self, name: str) -> Path:
        text = self._sources[name]()
        library = self._folder / f"{_key(text, *self._command)}.so"
        with FileLock(f"{library}.lock"):
            if not library.exists():
                source = library.with_suffix(".cpp")
                source.write_text(text)
                header = re.search(r'^#include "(.*)"', text, re.MULTILINE)
                command = self._with_header(header[1]) if header else self._command
                _compile(command, source, library)
        return library

    def _with_header(self, name: str) -> list[str]:
        """Return the command with a header, and the functions that stand in it, compiled ahead.

        That is most of the work. GCC takes NAME.gch where it stands on the path before NAME.
        """
        command = [part for part in self._command if part != "-shared"]
        ahead = self._folder / _key(name, *command) / f"{name}.gch"
        ahead.parent.mkdir(exist_ok=True)
        made = ahead.with_suffix(".o")
        with FileLock(f"{ahead}.lock"):
            if not ahead.exists():
                itself = [*command, "-O2", "-w", "-DEMULATION_ITSELF", "-c", "-x", "c++"]
                _compile(itself, EMULATION / name, made)
                _compile([*command, "-x", "c++-header"], EMULATION / name, ahead)
        return [self._command[0], f"-I{ahead.parent}", *self._command[1:], str(made)]


def _compile(command: Sequence[str], source: Path, made: Path) -> None:
    half = made.with_suffix(".half")
    subprocess.run([*command, str(source), "-o", str(half)], check=True)
    half.replace(made)


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join([*parts, _headers()]).encode()).hexdigest()[:32]


@cache
def _headers() -> str:
    """Return the text of all that the sources include, and the compiler's version."""
    version = subprocess.run(["c++", "--version"], check=True, capture_output=True, text=True)
    headers = sorted(EMULATION.glob("*.h"))
    return version.stdout + "".join(header.read_text() for header in headers)

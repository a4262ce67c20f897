"""torch's own build of an extension, made shorter: slim headers, one target, or ready already.

It takes the place of the one step of torch.utils.cpp_extension that starts ninja, in the process
that imports a solution. Sources and flags stay torch's and the solution's.
"""

import itertools
import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import msgspec

from kernelgen.build.recipe import Recipe, read_recipe
from kernelgen.build.slim_headers import full_headers_may_mend, slim_headers
from kernelgen.build.source import MOST_EXTENSIONS, TOO_MANY

Ninja = Callable[[str, bool, str], None]

_FLAGS = re.compile(r"^((?:cuda_)?cflags = )", re.MULTILINE)
_TARGETS = "TORCH_CUDA_ARCH_LIST"
# nvcc would read all headers once more, to list what no later build asks for.
_NO_LIST_OF_HEADERS = "TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES"
_PRECOMPILE = "_check_and_build_extension_h_precompiler_headers"
SLIM_FOLDER = "kernelgen_headers"


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """Extensions that were compiled ahead, by the digests of their recipes.

    Attributes:
        libraries: the files.
        failures: what the compilers said of what does not compile.
    """

    libraries: dict[str, bytes] = {}
    failures: dict[str, str] = {}


def settle_builds(target: tuple[int, int] | None) -> None:
    """Have torch's builder, in this process, compile for one device and nothing beside.

    torch adds PTX for devices to come. A device that this torch does not know needs that; and who
    has set the targets keeps them.
    """
    import torch

    os.environ[_NO_LIST_OF_HEADERS] = "1"
    if target is None or _TARGETS in os.environ:
        return
    major, minor = target
    # Not torch.cuda.get_arch_list, which is empty where there is no GPU.
    known = getattr(torch._C, "_cuda_getArchFlags", str)() or ""  # noqa: SLF001
    if f"sm_{major}{minor}" in known.split():
        os.environ[_TARGETS] = f"{major}.{minor}"


def shorten_builds(cpp_extension: ModuleType, ready: Ready) -> None:
    """Have torch take what is ready, and build the rest with slim headers if those will do."""
    ninja: Ninja = cpp_extension._run_ninja_build  # noqa: SLF001
    skip_precompiling(cpp_extension)
    numbers = itertools.count(1)

    def build(build_directory: str, verbose: bool, error_prefix: str) -> None:  # noqa: FBT001
        if next(numbers) > MOST_EXTENSIONS:
            raise RuntimeError(f"{error_prefix}: {TOO_MANY}")
        folder = Path(build_directory)
        recipe = read_recipe(folder)
        if _taken(recipe, folder, ready, error_prefix):
            return
        if not _built_slim(recipe, folder, ninja, error_prefix):
            ninja(build_directory, verbose, error_prefix)

    cpp_extension._run_ninja_build = build  # type: ignore[attr-defined] # noqa: SLF001


def skip_precompiling(cpp_extension: ModuleType) -> None:
    """Have torch precompile no headers: they would lie in its own folder, which is not writable."""
    setattr(cpp_extension, _PRECOMPILE, lambda *_args, **_kwargs: None)


def _taken(recipe: Recipe, folder: Path, ready: Ready, error_prefix: str) -> bool:
    digest = recipe.digest
    if digest in ready.failures:
        raise RuntimeError(f"{error_prefix}: {ready.failures[digest]}")
    if digest not in ready.libraries:
        return False
    made = folder / recipe.library
    made.write_bytes(ready.libraries[digest])
    made.chmod(0o755)  # as a linker leaves it: it may be a program
    return True


def _built_slim(recipe: Recipe, folder: Path, ninja: Ninja, error_prefix: str) -> bool:
    headers = slim_headers(*recipe.texts())
    if not headers:
        return False
    plan, place = folder / "build.ninja", folder.absolute() / SLIM_FOLDER
    torchs = plan.read_text()
    write_files(place, headers)
    plan.write_text(with_headers(torchs, place))
    try:
        ninja(str(folder), False, error_prefix)  # noqa: FBT003 - torch's own signature
    except RuntimeError as error:
        if not full_headers_may_mend(str(error), recipe.files):
            raise
        # Whatever it was: what is said with torch's own headers counts, and is told.
        plan.write_text(torchs)
        shutil.rmtree(place)
        return False
    return True


def write_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write texts to files by their names, which may begin with folders."""
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def with_headers(ninja: str, folder: Path) -> str:
    """Return a build.ninja that looks for headers in a folder before all others."""
    # A dollar is ninja's, all else a shell's.
    word = shlex.quote(f"-I{folder}").replace("$", "$$")
    return _FLAGS.sub(lambda match: f"{match[1]}{word} ", ninja)

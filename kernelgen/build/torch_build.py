"""torch's own build of an extension, made shorter: slim headers, one target, no list of headers.

It takes the place of the one step of torch.utils.cpp_extension that starts ninja, in the process
that imports a solution. Sources and flags stay torch's and the solution's.
"""

import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import msgspec

from kernelgen.build.slim_headers import slim_headers

_SOURCE = re.compile(r"^build \S+: (cuda_compile|compile) (.+)$", re.MULTILINE)
_FLAGS = re.compile(r"^((?:cuda_)?cflags = )", re.MULTILINE)
_SLIM_FOLDER = "kernelgen_headers"
SETTINGS: Mapping[str, str] = {"TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES": "1"}
"""Of torch's builder: nvcc would read all headers once more, to list what no later build asks."""


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """What ninja would compile, joined by compiler."""

    host: str
    cuda: str


def read_sources(ninja: str) -> Sources:
    """Return the sources that a build.ninja of torch's names."""
    texts: dict[str, list[str]] = {"compile": [], "cuda_compile": []}
    for rule, path in _SOURCE.findall(ninja):
        texts[rule].append(Path(path.replace("$ ", " ")).read_text(errors="replace"))
    return Sources(host="\n".join(texts["compile"]), cuda="\n".join(texts["cuda_compile"]))


def shorten_builds(cpp_extension: ModuleType) -> None:
    """Have torch build with slim headers, and with its own where those do not compile."""
    ninja: Callable[[str, bool, str], None] = cpp_extension._run_ninja_build  # noqa: SLF001
    include = Path(cpp_extension.__file__ or "").parents[1] / "include"
    os.environ.update(SETTINGS)

    def build(build_directory: str, verbose: bool, error_prefix: str) -> None:  # noqa: FBT001
        if not _built_slim(Path(build_directory), include, ninja):
            ninja(build_directory, verbose, error_prefix)

    cpp_extension._run_ninja_build = build  # type: ignore[attr-defined] # noqa: SLF001


def _built_slim(folder: Path, include: Path, ninja: Callable[[str, bool, str], None]) -> bool:
    plan = folder / "build.ninja"
    torchs = plan.read_text()
    headers = folder / _SLIM_FOLDER
    if not write_slim_headers(torchs, headers, include):
        return False
    plan.write_text(with_headers(torchs, headers))
    try:
        ninja(str(folder), False, "")  # noqa: FBT003 - torch's own signature
    except RuntimeError:
        # Whatever it was: what torch's own headers say is what counts, and is told.
        plan.write_text(torchs)
        shutil.rmtree(headers)
        return False
    return True


def write_slim_headers(ninja: str, folder: Path, include: Path) -> bool:
    """Write the stand-ins that a build can do with; return whether there are any."""
    sources = read_sources(ninja)
    headers = slim_headers(sources.host, sources.cuda, include)
    for name, text in headers.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return bool(headers)


def with_headers(ninja: str, folder: Path) -> str:
    """Return a build.ninja that looks for headers in a folder before all others."""
    # ninja takes a dollar, and a shell all else.
    word = shlex.quote(f"-I{folder}").replace("$", "$$")
    return _FLAGS.sub(lambda match: f"{match[1]}{word} ", ninja)


def only_target(major: int, minor: int, known: list[str]) -> str | None:
    """Return the TORCH_CUDA_ARCH_LIST of one device; None where it needs what torch would choose.

    torch adds PTX for devices to come, which costs a second pass of the compiler. A device that
    torch does not know needs it.
    """
    return f"{major}.{minor}" if f"sm_{major}{minor}" in known else None

"""Stand-ins for torch's catch-all headers: what a text uses of them, and not all of torch.

nvcc parses a header once for the host and once a target, and `torch/extension.h` is 400,000 lines.
A stand-in holds the tensor type and the operators that the text names, from torch's own headers, so
what compiles with it compiles to the same. What does not compile is compiled with torch's header,
unless that cannot mend it: a misspelled name or a missing semicolon fails with either, and to see
it twice costs a minute.
"""

import functools
import re
import subprocess
import sysconfig
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from importlib.util import find_spec
from pathlib import Path, PurePath

from kernelgen.build.compiler_messages import Diagnostic, parse_diagnostics
from kernelgen.build.toolchain import find_compiler
from kernelgen.errors import ToolchainError

_WHOLE = ("torch/extension.h", "torch/torch.h", "torch/all.h", "torch/types.h", "ATen/ATen.h")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([\w./]+)[>"]', re.MULTILINE)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
# Words that a stand-in lacks, or has in another sense: torch's own factories know of requires_grad,
# and torch::tensor takes another dtype than at::tensor.
_BEYOND = re.compile(
    r"requires_grad|\btensor\s*\(|__has_include|AT_PER_OPERATOR_HEADERS"
    r"|\btorch::(?:nn|autograd|jit|optim|serialize|data|fft|linalg|special|sparse|nested)\b"
)
_PYTHON = re.compile(r"\b(?:PYBIND11_\w+|pybind11|py|python|PyObject|wrap_pybind_function)\b")
# Where one of the words is in the text, its header is needed.
_BY_WORD: Mapping[str, tuple[str, ...]] = {
    "ATen/TensorIndexing.h": ("index", "index_put_", "indexing", "Slice"),
    "ATen/Parallel.h": ("parallel_for", "parallel_reduce", "get_num_threads", "set_num_threads"),
    "ATen/core/grad_mode.h": ("NoGradGuard", "AutoGradMode", "GradMode", "InferenceMode"),
    "torch/cuda.h": ("cuda",),
    "torch/library.h": ("TORCH_LIBRARY", "TORCH_LIBRARY_IMPL", "TORCH_LIBRARY_FRAGMENT"),
    "torch/version.h": ("TORCH_VERSION_MAJOR", "TORCH_VERSION_MINOR", "TORCH_VERSION"),
}
# Headers that every operator's includes and few texts use, by words that do. They are half of what
# nvcc would still parse.
_ITS_LISTS = "ITensorListRef"
_SPARED: Mapping[str, tuple[str, ...]] = {
    "ATen/Context.h": ("Context", "globalContext", "hasCUDA", "manual_seed", "getCUDAHooks"),
    "ATen/DeviceGuard.h": ("DeviceGuard", "device_of", _ITS_LISTS),
    "ATen/TensorUtils.h": ("CheckedFrom", "TensorArg", "TensorGeometry", "TensorGeometryArg"),
}
_USE_THEM = ("ATen/native/", "torch/csrc/")
# Read when this is imported: where a candidate builds, the package is out of sight by then.
TEXTS = tuple(
    Path(__file__).with_name("slim").joinpath(name).read_text(encoding="utf-8")
    for name in ("instead.h", "always.h", "names.h")
)
_INSTEAD, _ALWAYS, _NAMES = TEXTS
_CORE = "kernelgen_torch.h"
_ALL = "#include <torch/extension.h>\n"
# Of compilers' messages.
_SYNTAX = re.compile(r"expected |unrecognized token|missing (?:closing quote|terminating)|stray ")
_UNKNOWN = re.compile(
    r"identifier \"(\w+)\" is undefined|.* has no member \"(\w+)\""
    r"|['\u2018](?:.*::)?(\w+)['\u2019] "
    r"(?:was not declared|does not name a type|is not a member of)"
)
_QUOTED = re.compile(r"[\"'\u2018]([^\"'\u2019]+)[\"'\u2019]")
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:el)?if.*", re.MULTILINE)
_AS_FUNCTION = r"\busing\s+namespace\b|::\s*{0}\b|\b{0}\s*(?:(?:<[^<>;]*>)?\s*\(|::)"
_LONGEST_NAME = 200  # of an operator; a file's name has to be shorter than 256 bytes


@functools.cache
def torch_headers() -> Path:
    """Return the folder of torch's headers, without importing it."""
    spec = find_spec("torch")
    assert spec is not None, "an environment without torch builds nothing"
    return Path(spec.origin or "").parent / "include"


def slim_headers(host_text: str, cuda_text: str) -> dict[str, str]:
    """Return the stand-ins by the paths under which they are included; none where they won't do.

    Args:
        host_text: all that the C++ compiler is given, joined.
        cuda_text: all that nvcc is given, joined.
    """
    both = host_text + cuda_text
    included = set(_INCLUDE.findall(both))
    if not included & set(_WHOLE) or _BEYOND.search(both):
        return {}
    files = dict.fromkeys(_WHOLE, f"#pragma once\n#include <{_CORE}>\n")
    files |= dict.fromkeys(_spared(both, included), _INSTEAD)
    host, cuda = _contents(host_text), _contents(cuda_text)
    files[_CORE] = f"{_ALWAYS}#ifdef __CUDACC__\n{cuda}#else\n{host}#endif\n{_NAMES}"
    return files


def _spared(text: str, included: AbstractSet[str]) -> list[str]:
    if any(header.startswith(_USE_THEM) for header in included):
        return []
    words = set(_IDENTIFIER.findall(text))
    if any(_ITS_LISTS in _header(word).read_text() for word in _operators(words)):
        words.add(_ITS_LISTS)
    return [
        header
        for header, needs in _SPARED.items()
        if header not in included and not words.intersection(needs)
    ]


def _contents(text: str) -> str:
    words = set(_IDENTIFIER.findall(text))
    named = [header for header, needs in _BY_WORD.items() if words.intersection(needs)]
    named += [f"ATen/ops/{word}.h" for word in sorted(_operators(words))]
    if _PYTHON.search(text):
        named.append("torch/csrc/Exceptions.h")
    return "".join(f"#include <{header}>\n" for header in named)


def _operators(words: AbstractSet[str]) -> set[str]:
    internal = ("_ops", "_native", "_dispatch", "_meta")
    return {
        word
        for word in words
        if not word.endswith(internal) and len(word) <= _LONGEST_NAME and _header(word).is_file()
    }


def _header(operator: str) -> Path:
    return torch_headers() / "ATen" / "ops" / f"{operator}.h"


def full_headers_may_mend(log: str, texts: Mapping[str, str]) -> bool:
    """Return whether a build that failed with slim headers may do with torch's.

    Args:
        log: of the compilers.
        texts: of the sources, by name.
    """
    errors = [one for one in parse_diagnostics(log) if one.severity == "error"]
    try:
        return not errors or not all(_is_of(error, texts) for error in errors)
    except (ToolchainError, subprocess.CalledProcessError):
        return True


def _is_of(error: Diagnostic, texts: Mapping[str, str]) -> bool:
    """Return whether an error is of syntax or a name in a text's own lines, whatever headers."""
    text, unknown = texts.get(PurePath(error.file).name), _UNKNOWN.match(error.message)
    at_fault = unknown or _SYNTAX.match(error.message)
    if text is None or error.line is None or error.used_at or not at_fault:
        return False
    all_words, slim_words = (_words_of(headers) for headers in (_ALL, _ALWAYS))
    if unknown:
        name = unknown[unknown.lastindex or 0]
        # A name that is qualified or called may be a header's function; a variable's is not.
        if name in all_words and re.search(_AS_FUNCTION.format(name), text):
            return False
    lines = [*text.split("\n")[max(0, error.line - 2) : error.line], *_CONDITION.findall(text)]
    near = _IDENTIFIER.findall("\n".join([*_QUOTED.findall(error.message), *lines]))
    return (all_words - slim_words).isdisjoint(near)


@functools.cache
def _words_of(headers: str) -> frozenset[str]:
    """Return all words that a compiler reads of headers, names of macros included."""
    include = torch_headers()
    folders = [include, include / "torch/csrc/api/include", Path(sysconfig.get_path("include"))]
    options = ["-std=c++20", "-E", "-dD", "-P", *(f"-I{folder}" for folder in folders)]
    command = [*find_compiler().command, *options, "-x", "c++", "-"]
    done = subprocess.run(command, input=headers, text=True, check=True, capture_output=True)
    return frozenset(_IDENTIFIER.findall(done.stdout))

"""Why an extension did not build, in a few lines that point into the solution's own file."""

import re
from collections.abc import Mapping
from pathlib import PurePath

import msgspec

from kernelgen.build.compiler_messages import Diagnostic, Place, parse_diagnostics
from kernelgen.build.locate import find_declaration, find_literal, find_row
from kernelgen.build.ptxas import demangle
from kernelgen.solution.file import SolutionFile

_SHOWN_ERRORS = 3
# Of the errors, which may be any number: each is looked for in the solution.
_PLACED_ERRORS = 50
_SHOWN_LINES = 12

_BINDING = re.compile(r'^m\.def\("(?P<name>[^"]*)", ')
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_NINJA = re.compile(r"^(\[\d+/\d+\]|FAILED:|ninja:|\S*(?:nvcc|c\+\+|g\+\+|clang\+\+)\S* -)")
_UNDEFINED_SYMBOL = re.compile(r"undefined symbol: (?P<symbol>\S+)")
_UNDEFINED_REFERENCE = re.compile(r"undefined reference to [`'](?P<symbol>.*)'$")


# A member that is gone shows in the source line; the message may name only its types.
_GONE = re.compile(r"packed_accessor\b|\bPackedTensorAccessor\b")
_USE_OTHERS = (
    "packed_accessor and PackedTensorAccessor are deprecated: "
    "use packed_accessor32 or packed_accessor64, and PackedTensorAccessor32 or 64"
)
# Advice by what an error's message says.
_HINTS = {
    r"No such file or directory|cannot open source file": "the header is on no include path: "
    "correct its name, or name its folder in extra_include_paths",
    r"getCurrentCUDAStream|CUDAGuard": "include <ATen/cuda/CUDAContext.h> for the stream, "
    "<c10/cuda/CUDAGuard.h> for the guard",
    r"identifier \".*\" is undefined|was not declared in this scope": "declare it before its use, "
    "correct its spelling, or include its header",
    r"uses too much shared data": "static shared memory ends at 48 KB: take the rest as "
    "extern __shared__ and raise cudaFuncAttributeMaxDynamicSharedMemorySize",
    r"Unsupported gpu architecture": "this nvcc does not know that architecture",
    r"cannot find -lcudart": "CUDA_HOME has no lib64/libcudart.so: run `kernelgen doctor`",
}


class _Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One error as it is shown."""

    place: str
    message: str
    source: str = ""
    hint: str = ""


def explain_build_error(
    error_text: str, generated: Mapping[str, str], solution: SolutionFile
) -> str:
    """Return the first few errors of a failed build, each at its line in the solution.

    `error_text` is what torch's error says, or a compiler's own output; `generated` has the text of
    each file that was compiled, such as `cuda.cu`.
    """
    errors = [entry for entry in parse_diagnostics(error_text) if entry.severity == "error"]
    placed = errors[:_PLACED_ERRORS]
    findings = list(dict.fromkeys(_find(error, generated, solution) for error in placed))
    if not findings:
        return f"{solution.path}: {_without_noise(error_text)}"
    lines: list[str] = []
    hints_given: set[str] = set()
    for finding in findings[:_SHOWN_ERRORS]:
        lines.append(f"{finding.place}: {finding.message}")
        if finding.source:
            lines.append(f"    {finding.source}")
        if finding.hint and finding.hint not in hints_given:
            lines.append(f"  hint: {finding.hint}")
            hints_given.add(finding.hint)
    more = max(0, len(findings) - _SHOWN_ERRORS) + len(errors) - len(placed)
    if more > 0:
        lines.append(f"and {more} more error{'s' if more > 1 else ''}")
    return "\n".join(lines)


def _find(error: Diagnostic, generated: Mapping[str, str], solution: SolutionFile) -> _Finding:
    for pattern in (_UNDEFINED_SYMBOL, _UNDEFINED_REFERENCE):
        if match := pattern.search(error.message):
            return _undefined(match["symbol"], solution)
    placed = _in_generated(error, generated)
    if placed is None:
        place = f"{error.file}:{error.line}" if error.line is not None else error.file
        hint = _hint(error.message, "")
        return _Finding(place=f"{solution.path}: {place}", message=error.message, hint=hint)
    text = generated[placed.file]
    source = _line(text, placed.line)
    if match := _BINDING.match(source):
        return _binding(match["name"], error, solution)
    row = find_row(text, placed.line, solution.text)
    place = f" {placed.file}:{placed.line}" if row is None else f"{row}"
    return _Finding(
        place=f"{solution.path}:{place}",
        message=error.message,
        source=source,
        hint=_hint(error.message, source),
    )


def _in_generated(error: Diagnostic, generated: Mapping[str, str]) -> Place | None:
    """Return an error's place in a generated file, or else where the header in error was used."""
    own = () if error.line is None else (Place(file=error.file, line=error.line),)
    for place in (*own, *reversed(error.used_at)):
        name = PurePath(place.file).name
        if name in generated:
            return Place(file=name, line=place.line)
    return None


def _binding(name: str, error: Diagnostic, solution: SolutionFile) -> _Finding:
    """Explain an error in the pybind glue that torch writes for an entry of functions=."""
    place = _place(solution, find_literal(name, solution.text))
    if _IDENTIFIER.fullmatch(name) is None:
        call = re.search(r"([A-Za-z_]\w*)\s*\(", name)
        bare = call.group(1) if call else "name"
        return _Finding(
            place=place,
            message=f'functions= has "{name}", which is a signature and no name',
            hint=f'give the name alone, functions=["{bare}"], and the signature in cpp_sources',
        )
    if "not declared" in error.message:
        return _Finding(
            place=place,
            message=f'functions= names "{name}", which cpp_sources neither declares nor defines',
            hint=f"declare it in cpp_sources, such as: torch::Tensor {name}(torch::Tensor x);",
        )
    return _Finding(place=place, message=f'functions= cannot bind "{name}": {error.message}')


def _undefined(symbol: str, solution: SolutionFile) -> _Finding:
    name = demangle([symbol])[0]
    bare = re.search(r"([A-Za-z_]\w*)\s*(?:\(|$)", name)
    row = find_declaration(bare.group(1), solution.text) if bare else None
    return _Finding(
        place=_place(solution, row),
        message=f"{name} is declared and used, but defined nowhere",
        hint="define it in cpp_sources or cuda_sources with exactly this signature "
        '(a kernel or an extern "C" function has another name than its declaration here), '
        "or take it out of functions=",
    )


def _place(solution: SolutionFile, row: int | None) -> str:
    return str(solution.path) if row is None else f"{solution.path}:{row}"


def _hint(message: str, source: str) -> str:
    if _GONE.search(message) or _GONE.search(source):
        return _USE_OTHERS
    return next((advice for words, advice in _HINTS.items() if re.search(words, message)), "")


def _line(text: str, line: int) -> str:
    lines = text.split("\n")
    return lines[line - 1].strip() if line <= len(lines) else ""


def _without_noise(text: str) -> str:
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    useful = [line for line in lines if not _NINJA.match(line)] or lines
    return "\n".join(useful[-_SHOWN_LINES:])

"""Failures with slim headers that torch's full headers may mend, told from those of the text's own.

A misspelled name or a missing semicolon fails with either; to see it twice costs a minute.
"""

import functools
import re
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path, PurePath

from kernelgen.build.compiler_messages import Diagnostic, parse_diagnostics
from kernelgen.build.slim_headers import ALWAYS, IDENTIFIER, torch_headers
from kernelgen.build.toolchain import find_compiler
from kernelgen.errors import ToolchainError

_SYNTAX = re.compile(r"expected |unrecognized token|missing (?:closing quote|terminating)|stray ")
_UNKNOWN = re.compile(
    r"identifier \"(\w+)\" is undefined|.* has no member \"(\w+)\""
    r"|['\u2018](?:.*::)?(\w+)['\u2019] "
    r"(?:was not declared|does not name a type|is not a member of)"
)
_QUOTED = re.compile(r"[\"'\u2018]([^\"'\u2019]+)[\"'\u2019]")
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:el)?if.*", re.MULTILINE)
_AS_FUNCTION = r"\busing\s+namespace\b|::\s*{0}\b|\b{0}\s*(?:(?:<[^<>;]*>)?\s*\(|::)"


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
    all_words, slim_words = (_words_of(headers) for headers in (_ALL, ALWAYS))
    if unknown:
        name = unknown[unknown.lastindex or 0]
        # A name that is qualified or called may be a header's function; a variable's is not.
        if name in all_words and re.search(_AS_FUNCTION.format(name), text):
            return False
    lines = [*text.split("\n")[max(0, error.line - 2) : error.line], *_CONDITION.findall(text)]
    near = IDENTIFIER.findall("\n".join([*_QUOTED.findall(error.message), *lines]))
    return (all_words - slim_words).isdisjoint(near)


_ALL = "#include <torch/extension.h>\n"


@functools.cache
def _words_of(headers: str) -> frozenset[str]:
    """Return all words that a compiler reads of headers, names of macros included."""
    include = torch_headers()
    folders = [include, include / "torch/csrc/api/include", Path(sysconfig.get_path("include"))]
    options = ["-std=c++20", "-E", "-dD", "-P", *(f"-I{folder}" for folder in folders)]
    command = [*find_compiler().command, *options, "-x", "c++", "-"]
    done = subprocess.run(command, input=headers, text=True, check=True, capture_output=True)
    return frozenset(IDENTIFIER.findall(done.stdout))

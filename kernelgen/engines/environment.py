"""The two Jinja environments: one writes C++ literals, the other Python literals.

Control syntax is a comment of the language around it, so that a template highlights as what it
becomes: values `${x}`, statements on a line of their own (`//% if` in C++, `#% if` in Python),
inline statements `/*% if %*/`, notes `/*# #*/`. None of these occurs in CUDA, whose braces,
`{%0,%1}` operand lists included, pass through untouched.
"""

import math
from collections.abc import Iterable
from functools import cache

import jinja2
import jinja2.meta

from kernelgen.installation import templates_folder
from kernelgen.problem.python_text import NotPythonError, parse_python, undefined_names
from kernelgen.problem.record import digest

HASH_DIGITS = 16
_LEFTOVERS = ("${", "//%", "#%", "/*%", "%*/", "/*#", "#*/")


class RenderError(Exception):
    """A template broke a rule of its own: a bug in kernelgen, not in what the user gave."""


def to_cpp(value: object) -> object:
    """Return a value as a C++ literal; text passes as it is.

    Raises:
        RenderError: the value has no literal: None, an infinity, a NaN, a sequence.
    """
    if isinstance(value, str | jinja2.Undefined):
        return value  # an Undefined raises with its own, better message when it is written
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return f"{value!r}f"
    raise RenderError(f"no C++ literal for {value!r}")


def to_python(value: object) -> object:
    """Return a value as a Python literal; text passes as it is.

    Raises:
        RenderError: the value is not expected in a solution: None, an infinity, a NaN.
    """
    if isinstance(value, str | jinja2.Undefined):
        return value
    if isinstance(value, bool | int | tuple) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    raise RenderError(f"no Python literal for {value!r}")


def in_docstring(text: str) -> str:
    """Return text that stands in a docstring as it is."""
    return text.replace("\\", "\\\\").replace('"""', r"\"\"\"")


@cache
def cpp_environment() -> jinja2.Environment:
    """Return the environment of `*.cu.jinja` and `*.cpp.jinja`."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_folder()),
        variable_start_string="${",
        variable_end_string="}",
        block_start_string="/*%",
        block_end_string="%*/",
        comment_start_string="/*#",
        comment_end_string="#*/",
        line_statement_prefix="//%",
        undefined=jinja2.StrictUndefined,
        finalize=to_cpp,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - the output is source code, not HTML
    )


@cache
def python_environment() -> jinja2.Environment:
    """Return the environment of `*.py.jinja`: the same, with Python's literals and comments."""
    return cpp_environment().overlay(line_statement_prefix="#%", finalize=to_python)


def templates_hash(given: Iterable[tuple[jinja2.Environment, str]]) -> str:
    """Return the first digits of one sha256 over templates and all that can be included in them.

    Each is given with the environment that reads it.

    Raises:
        RenderError: a template is included by a computed name.
    """
    found: dict[str, str] = {}
    waiting = list(given)
    while waiting:
        environment, current = waiting.pop(0)
        if current in found:
            continue
        assert environment.loader is not None
        found[current] = environment.loader.get_source(environment, current)[0]
        for name in _referenced(environment, found[current]):
            if name is None:
                raise RenderError(f"{current}: a template is included by a computed name")
            waiting.append((environment, name))
    return digest("".join(f"{name}\n{found[name]}" for name in sorted(found)))[:HASH_DIGITS]


@cache
def _referenced(environment: jinja2.Environment, source: str) -> tuple[str | None, ...]:
    return tuple(jinja2.meta.find_referenced_templates(environment.parse(source)))


def checked_source(text: str, template: str) -> str:
    """Return kernel source that may stand in a raw triple-quoted Python string.

    Raises:
        RenderError: it may not, or a delimiter was left in it.
    """
    if not text.isascii():
        raise RenderError(f"{template}: rendered to text that is not ASCII")
    if '"""' in text or text.endswith("\\"):
        raise RenderError(f"{template}: rendered to text that would end its Python string")
    for leftover in _LEFTOVERS:
        if leftover in text:
            raise RenderError(f"{template}: rendered to text with {leftover} in it")
    return text


def checked_python(text: str, reference: str) -> str:
    """Return rendered Python that compiles and binds the names it reads.

    Raises:
        RenderError: it does not. Names that the reference reads and does not bind are its own.
    """
    try:
        uses = {use.name for use in undefined_names(text, parse_python(text))}
    except NotPythonError as error:
        raise RenderError(f"rendered to no Python: line {error.line}: {error}") from error
    if uses - {use.name for use in undefined_names(reference, parse_python(reference))}:
        raise RenderError(f"rendered to text that reads {', '.join(sorted(uses))}, bound nowhere")
    return text

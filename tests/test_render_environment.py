"""The Jinja environments: what passes untouched, what is refused, what templates may not use."""

import re
from pathlib import Path

import jinja2
import pytest

from kernelgen.engines.environment import (
    RenderError,
    checked_source,
    cpp_environment,
    python_environment,
    templates_hash,
)
from kernelgen.installation import templates_folder

TEMPLATES = sorted(templates_folder().rglob("*.jinja"))


@pytest.mark.parametrize(
    "text",
    [
        'asm("mma.sync {%0,%1}, {%2};" : "=r"(a));\n',
        "int a[2][2] = {{1,2},{3,4}};\n",
        "f({{n, m}});\n",
        "#define GLUE(a, b) {#op, a##b}\n",
        "[[maybe_unused]] int x = a % b;\n",
        "/* a comment, 5 % 3 */ // and another\n",
    ],
)
def test_cuda_passes_untouched(text: str) -> None:
    assert cpp_environment().from_string(text).render() == text
    assert python_environment().from_string(text).render() == text


@pytest.mark.parametrize(
    ("value", "literal"),
    [(True, "true"), (7, "7"), (1e-5, "1e-05f"), (2.0, "2.0f"), ("float4", "float4")],
)
def test_values_become_cpp_literals(value: object, literal: str) -> None:
    assert cpp_environment().from_string("${value}").render(value=value) == literal


def test_values_become_python_literals() -> None:
    template = python_environment().from_string("${a} ${b} ${c}")
    assert template.render(a=True, b=(3, 4), c=1e-5) == "True (3, 4) 1e-05"


@pytest.mark.parametrize("value", [None, float("inf"), float("nan"), (1, 2), [1], {"a": 1}])
def test_what_has_no_cpp_literal_is_refused(value: object) -> None:
    with pytest.raises(RenderError, match="no C\\+\\+ literal"):
        cpp_environment().from_string("${value}").render(value=value)


@pytest.mark.parametrize("value", [None, float("inf"), float("nan")])
def test_what_has_no_python_literal_is_refused(value: object) -> None:
    with pytest.raises(RenderError, match="no Python literal"):
        python_environment().from_string("${value}").render(value=value)


@pytest.mark.parametrize("text", ["${missing}", "//% if missing\nx\n//% endif\n"])
def test_an_unknown_name_is_an_error(text: str) -> None:
    with pytest.raises(jinja2.UndefinedError, match="missing"):
        cpp_environment().from_string(text).render()


def test_line_statements_leave_no_blank_lines() -> None:
    text = "a\n//% if yes\nb\n//% endif\nc\n"
    assert cpp_environment().from_string(text).render(yes=True) == "a\nb\nc\n"
    assert python_environment().from_string(text.replace("//", "#")).render(yes=False) == "a\nc\n"


@pytest.mark.parametrize(
    "text", ['x = """;\n', "ends with \\", "naïve\n", "left ${x}\n", "//% if\n", "/*# note #*/\n"]
)
def test_source_that_cannot_stand_in_the_solution_is_refused(text: str) -> None:
    with pytest.raises(RenderError):
        checked_source(text, "t.cu.jinja")


def test_the_hash_covers_everything_that_is_included(tmp_path: Path) -> None:
    environment = cpp_environment().overlay(loader=jinja2.FileSystemLoader(tmp_path))
    (tmp_path / "main.cu").write_text('//% include "part.cu"\nx\n')
    (tmp_path / "part.cu").write_text("one\n")
    before = templates_hash([(environment, "main.cu")])
    assert templates_hash([(environment, "part.cu")]) != before
    (tmp_path / "part.cu").write_text("two\n")
    assert templates_hash([(environment, "main.cu")]) != before
    (tmp_path / "part.cu").write_text("one\n")
    assert templates_hash([(environment, "main.cu"), (environment, "part.cu")]) == before


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_use_nothing_that_defeats_strictness(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"\|\s*(default|d)\b|\bis\s+(not\s+)?(defined|undefined)\b", text)
    assert text.isascii()
    assert "\t" not in text

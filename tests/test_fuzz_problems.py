"""Hostile problem files: a problem, or one line that names the file; never a hang, never a bomb."""

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelgen.errors import ProblemError
from kernelgen.installation import problems_folder
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Problem

HERE = Path(__file__).parent
FILES = sorted([*problems_folder().glob("*.yaml"), *(HERE / "problems").glob("*.yaml")])
TEXTS = [path.read_text() for path in FILES]

FUZZ = settings(
    max_examples=600,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
# Of the processor, for files of any size: a person waits for the message.
LIMIT_S = 10.0
LONGEST_MESSAGE = 1000


def read_or_refuse(path: Path, text: str | bytes) -> Problem | ProblemError:
    """Load a problem; a refusal names the file and is one line that a person can read."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode(errors="surrogatepass"))
    begin = time.process_time()
    found = outcome(path)
    assert time.process_time() - begin < LIMIT_S
    if isinstance(found, ProblemError):
        assert str(found).startswith(str(path))
        assert str(found).isprintable()  # no end of a line, no control of a terminal
        assert len(str(found)) < LONGEST_MESSAGE + len(str(path))
    return found


def outcome(path: Path) -> Problem | ProblemError:
    try:
        return load_problem(path)
    except ProblemError as error:
        return error


YAML_WORDS = [
    "&a ", "*a", "<<: *a", "<<: {a: 1}", "!!python/object:os.system x", "!!python/name:os.system ",
    "!!binary aGk=", "!!set {a}", "!!omap [a: 1]", "!!timestamp 2001-01-01", "!!null x", "!x ", "!",
    "\t", "\ufeff", "\0", "\r", "\x85", "\u2028", "\x1b[31m", "\ud800", "\U000e0001", "? ", "- ",
    "---\n", "...\n", "%YAML 9.9\n", "%TAG ! x\n", "{", "}", "[", "]", "|", ">-\n", '"', "'", "#",
    "1e999", "-.inf", ".nan", "0x" + "f" * 400, "9" * 5000, "1_000", "0b1", "1:30", "012", "~",
    "summary: twice\n", "cases:\n", "constants: {}\n", "model: |\n  x\n", "tolerance: 1e-9\n",
]  # fmt: skip
PYTHON_WORDS = [
    "def ", "class Model:\n", "(", ")", "[", "{", '"""', "'", "\\", "lambda: ", "yield ", "await ",
    "import *", "from __future__ import annotations\n", "\t", "\f", "\0", "\ufeff", "\r", "\ud800",
    "global Model\n", "nonlocal x\n", "del Model\n", "return 1\n", "async ", "x: int = 1\n", ":=",
    "match x:\n  case 1: pass\n", "f'{x!r:{y}}'", "9" * 5000, "0777", "1e999999", "é", "\u2028",
    "# coding: utf-7\n", "# -*- coding: ebcdic -*-\n", "@", "...", "not " * 50, "-" * 300,
    "if 1:\n", "def get_inputs(*, n): ...\n", "def get_inputs(n=[]): ...\n",
    "class Model(*x): ...\n",
]  # fmt: skip


def mutated(draw: st.DrawFn, text: str, words: list[str]) -> str:
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        if draw(st.booleans()):  # at the beginning of a line, where YAML and Python look
            start = text.rfind("\n", 0, start) + 1
        cut = draw(st.integers(0, 30))
        added = draw(st.sampled_from(words) | st.text(max_size=4))
        if draw(st.integers(0, 9)) == 0:
            other = draw(st.integers(0, len(text)))
            added = text[other : other + draw(st.integers(0, 200))]
        text = text[:start] + added + text[start + cut :]
    return text


@st.composite
def yaml_files(draw: st.DrawFn) -> str:
    return mutated(draw, draw(st.sampled_from(TEXTS)), YAML_WORDS + PYTHON_WORDS)


@given(text=yaml_files())
@FUZZ
def test_a_mutated_problem_is_a_problem_or_refused(tmp_path: Path, text: str) -> None:
    read_or_refuse(tmp_path / "mutated.yaml", text)


KERNELBENCH = '''
"""A model as KernelBench has them."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Scales and adds."""

    def __init__(self, features: int, *, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (n := x.shape[0]) > 1:
            return F.relu(x * self.weight + self.eps) / n
        return x


batch, features = 4, 8


def get_inputs():
    return [torch.rand(batch, features)]


def get_init_inputs():
    return [features]
'''


@st.composite
def python_files(draw: st.DrawFn) -> str:
    return mutated(draw, KERNELBENCH, PYTHON_WORDS)


@given(text=python_files())
@FUZZ
def test_a_mutated_kernelbench_file_is_a_problem_or_refused(tmp_path: Path, text: str) -> None:
    read_or_refuse(tmp_path / "mutated.py", text)


@given(raw=st.binary(max_size=300))
@FUZZ
def test_bytes_are_refused_whatever_the_ending(tmp_path: Path, raw: bytes) -> None:
    for name in ("bytes.yaml", "bytes.py"):
        assert isinstance(read_or_refuse(tmp_path / name, raw), ProblemError)


# --- bombs ----------------------------------------------------------------------------------------

# Just below what a problem file may be.
LARGE = 120 << 10
GOOD = TEXTS[0]
BOMBS: dict[str, str | bytes] = {
    "aliases": "a: &a [x, x]\n"
    + "".join(f"{n}: &{n} [*{m}, *{m}]\n" for m, n in zip("abcdefgh", "bcdefghi", strict=True)),
    "an alias of itself": "summary: &a [*a]\n",
    "merge keys": "base: &b {x: 1}\nconstants:\n  <<: *b\n",
    "an object": "summary: !!python/object/apply:os.system [id]\n" + GOOD,
    "an object in a constant": GOOD + "\ntemplate: !!python/object:kernelgen.Problem {}\n",
    "tabs": GOOD.replace("  ", "\t"),
    "a null": GOOD.replace("summary", "sum\0mary"),
    "a byte order mark in the middle": GOOD.replace("model:", "\ufeffmodel:"),
    "UTF-16": GOOD.encode("utf-16"),
    "a line without an end": "summary: " + "x" * LARGE + "\n" + GOOD,
    "a key without an end": "x" * LARGE + ": 1\n" + GOOD,
    "a quoted key without an end": '"' + "x" * LARGE + '": 1\n' + GOOD,
    "a comment without an end": GOOD + "#" * LARGE,
    "a number without an end": GOOD.replace(
        "constants:\n", "constants:\n  n: " + "9" * LARGE + "\n", 1
    ),
    "a hexadecimal number without an end": GOOD.replace(
        "constants:\n", "constants:\n  n: 0x" + "f" * LARGE + "\n", 1
    ),
    "many brackets": "[" * LARGE,
    "many braces": "{" * LARGE,
    "many dashes": "- " * (LARGE // 2),
    "many questions": "? " * (LARGE // 2),
    "many colons": "a: " * (LARGE // 3),
    "many quotes": '"' * LARGE,
    "many anchors": "&a " * (LARGE // 3),
    "many new lines": "\n" * LARGE + "x",
    "many documents": "---\n" * (LARGE // 4),
    "a list without an end": GOOD.replace(
        "constants:\n", "constants:\n  n: [" + "1," * (LARGE // 2) + "1]\n", 1
    ),
    "many keys": GOOD + "".join(f"key{n}: 1\n" for n in range(9_000)),
    "many equal keys": GOOD + "key: 1\n" * 15_000,
    "deep Python": GOOD.replace("model: |\n", "model: |\n  x = " + "(" * 5000 + ")" * 5000 + "\n"),
    "a long sum": GOOD.replace("model: |\n", "model: |\n  x = " + "1+" * 20_000 + "1\n"),
    "many Python": GOOD.replace("model: |\n", "model: |\n" + "  x = 1\n" * (LARGE // 8)),
}


@pytest.mark.parametrize("ending", [".yaml", ".py"])
def test_a_file_without_an_end_is_not_read_to_it(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"endless{ending}"
    path.symlink_to("/dev/zero")
    with pytest.raises(ProblemError, match="at most 128 KiB"):
        load_problem(path)


NO_PROBLEMS = [
    "aliases", "an alias of itself", "merge keys", "an object", "an object in a constant", "tabs",
    "a null", "UTF-16", "a key without an end", "many equal keys", "deep Python",
]  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_read_or_refused_in_time(name: str, tmp_path: Path) -> None:
    found = read_or_refuse(tmp_path / "bomb.yaml", BOMBS[name])
    assert (tmp_path / "bomb.yaml").stat().st_size <= 128 << 10, "a larger one is not read"
    if name in NO_PROBLEMS:
        assert isinstance(found, ProblemError)


PYTHON_BOMBS: dict[str, str | bytes] = {
    "parentheses": "x = " + "(" * 5000 + ")" * 5000,
    "a long sum": "x = " + "1 + " * 30_000 + "1",
    "a long chain": "x = a" + ".b" * 50_000,
    "unary": "x = " + "-" * 50_000 + "1",
    "nots": "x = " + "not " * 30_000 + "1",
    "a default that is deep": "def get_inputs(x=" + "-" * 900 + "1): return []",
    "nested functions": "".join(" " * n + f"def f{n}():\n" for n in range(99)) + " " * 99 + "pass",
    "nested lambdas": "x = " + "lambda: " * 1000 + "1",
    "a base that is deep": "class Model(" + "a(" * 150 + ")" * 150 + "): pass",
    "a name without an end": "x" * LARGE + " = 1",
    "a line without an end": "x = '" + "y" * LARGE,
    "a number without an end": "x = " + "9" * LARGE,
    "a parameter without an end": "def get_inputs(" + "x" * LARGE + "): return []",
    "UTF-16": KERNELBENCH.encode("utf-16"),
    "a null": KERNELBENCH + "\0",
    "many lines": "x = 1\n" * 20_000,
}


@pytest.mark.parametrize("name", PYTHON_BOMBS)
@pytest.mark.parametrize("where", ["before", "after"])
def test_a_python_bomb_is_read_or_refused_in_time(name: str, where: str, tmp_path: Path) -> None:
    bomb = PYTHON_BOMBS[name]
    if isinstance(bomb, str):
        bomb = f"{bomb}\n{KERNELBENCH}" if where == "before" else f"{KERNELBENCH}\n{bomb}\n"
    read_or_refuse(tmp_path / "bomb.py", bomb)

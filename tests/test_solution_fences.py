"""Candidates in Markdown: which block is taken, and that lines keep their numbers."""

import time
from pathlib import Path

import msgspec
import pytest
from warm_lane import graded, tell

from kernelgen.build.capture import capture_sources
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.verdict import Status
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import digest
from kernelgen.solution.answer import code_of
from kernelgen.solution.file import read_solution

MODEL = "class ModelNew(nn.Module):\n    pass"


def answer(*blocks: str, opening: str = "```python") -> str:
    """Return a model's answer with prose around each block."""
    fenced = [f"{opening}\n{block}\n```" for block in blocks]
    parts = "\n".join(f"It's block {number}:\n\n{each}" for number, each in enumerate(fenced))
    return f"Here you are.\n{parts}\n\nThat's it."


def taken(text: str) -> str:
    """Return what is left of a text, having checked that each line stands where it stood."""
    code = code_of(text)
    before, after = text.split("\n"), code.split("\n")
    assert len(before) == len(after)
    assert all(new in (old, "") for old, new in zip(before, after, strict=True))
    return code.strip("\n")


@pytest.mark.parametrize("opening", ["```python", "```", "``` py", "````python", "  ```python"])
def test_the_block_is_taken(opening: str) -> None:
    if opening.startswith("````"):
        text = answer(MODEL, opening=opening) + "\n````"
        assert taken(text).startswith(MODEL)
    else:
        assert taken(answer(MODEL, opening=opening)) == MODEL


def test_the_last_block_that_defines_modelnew_is_taken() -> None:
    first, last = f"a = 1\n{MODEL}", f"a = 2\n{MODEL}"
    use = "model = ModelNew()\nmodel(x)"
    assert taken(answer("class Model: pass", first, last, use)) == last


def test_a_name_bound_to_the_class_counts() -> None:
    assert taken(answer("class Fast:\n    pass\nModelNew = Fast")).endswith("ModelNew = Fast")


def test_a_block_that_is_never_closed_ends_with_the_file() -> None:
    assert taken(f"Sure!\n```python\n{MODEL}") == MODEL


@pytest.mark.parametrize(
    "text",
    [
        f'"""\n```python\n{MODEL}\n```\n"""\n{MODEL}\n',
        "def broken(:\n    pass\n",
        answer("class Model: pass"),
        f"prose without a fence\n{MODEL}",
    ],
    ids=["Python with fences", "broken Python", "no ModelNew", "no fence"],
)
def test_what_is_python_or_has_no_such_block_is_left_alone(text: str) -> None:
    assert code_of(text) == text


CODE = f"import torch.nn as nn\n\n\n{MODEL}"
SUMMARY = '### Summary\n\nIt\'s one kernel (fused), so that:\n- no pass is wasted\n1. "Fast"\n'


def indented(text: str, by: str) -> str:
    """Return a text with something before each line that is not blank."""
    return "\n".join(by + line if line else line for line in text.split("\n"))


@pytest.mark.parametrize(
    "text",
    [
        f"Sure:\n\n~~~python\n{CODE}\n~~~\n{SUMMARY}",
        f"Sure:\n\n~~~~ `py`\n{CODE}\n~~~~\n",
        f"1. The code:\n\n   ```python\n{indented(CODE, '   ')}\n   ```\n\n2. That's it.",
        f"- ```python\n{indented(CODE, '  ')}\n  ```\n- done",
        indented(f"Sure:\n```python\n{CODE}\n```\nDone.", "    "),
        indented(f"Sure:\n```python\n{CODE}\n```\nDone.", "\t"),
        indented(f"Sure:\n```python\n{CODE}\n```\nDone.", "> "),
        f"Sure:\n   ```python\n{CODE}\n   ```\nDone.",
        f"````markdown\nSure:\n\n```python\n{CODE}\n```\n{SUMMARY}````\n",
        f"```markdown\nSure:\n\n```python\n{CODE}\n```\n```\n",
        f"~~~\n```python\n{CODE}\n```\n~~~\n",
        f"```py\nimport torch\n```\nA draft:\n```py\n{CODE}\n\nThen:\n```py\n{CODE}\n```",
        f"```python\n{CODE}\n```\nOnce more, cut short:\n```python\n{MODEL}\n    def forward(self",
        f"{CODE}\n```\n{SUMMARY}",
        f"{CODE}\n\n{SUMMARY}",
        f"{CODE}\n\nSummary\n\nIt's one kernel.\n",
        f"{CODE}\n\n{SUMMARY}\n```python\nmodel = Model()\n```\n",
        f"{CODE}\n\nmodel(x) is called as follows:\n\n    import torch\n",
    ],
    ids=[
        "tildes", "tildes with an info of backticks", "in a list", "beside a list's mark",
        "four spaces", "a tab", "a quote", "the fence alone is indented", "longer fences outside",
        "equal fences outside", "tildes outside", "a block that is not closed", "cut short",
        "no opening fence", "a summary without fences", "a heading of one word",
        "a fence in the summary", "code in the summary",
    ],
)  # fmt: skip
def test_the_model_is_found_in_an_answer_of_any_form(text: str) -> None:
    code = code_of(text)
    assert code.strip("\n") == CODE
    after, before = code.split("\n"), text.split("\n")
    assert all(old.endswith(new) for new, old in zip(after, before, strict=True))


@pytest.mark.parametrize("quotes", ['"""', "'''"])
def test_a_fence_in_a_string_closes_no_block(quotes: str) -> None:
    documented = f"{quotes}It's used so:\n\n```python\ny = f(x)\n```\n\n~~~\n{quotes}\n{CODE}"
    older = CODE.replace("pass", "old = 1")
    assert taken(
        f"It's:\n```python\n{older}\n```\nor\n```python\n{documented}\n```\n{SUMMARY}"
    ) == (documented)


@pytest.mark.parametrize(
    "rest",
    [
        "def helper(:\n    pass\n",
        "    def forward(self, x):\n        return f(\n",
        "@f(\ndef g(): pass",
    ],
)
def test_a_mistake_in_code_is_no_summary(rest: str) -> None:
    assert code_of(f"{CODE}\n{rest}") == f"{CODE}\n{rest}"


@pytest.mark.parametrize(
    "unit",
    [
        "```\n",
        "~~~ x\n",
        '"""\n',
        '\\"""\n',
        '\\"',
        "'''\\",
        "> - ",
        "class ModelNew\n```\n",
        "(\n",
        "ModelNew: '\n",
    ],
)
def test_no_text_takes_more_than_linear_time(unit: str) -> None:
    def seconds(count: int) -> float:
        text = "?\n" + unit * count + "\\"
        start = time.process_time()
        code_of(text)
        return time.process_time() - start

    # A text of more than 100 kB is first counted word by word, which takes a second.
    assert seconds(16_000) < 16 * max(seconds(4_000), 0.2)


def test_the_hash_is_of_the_file_and_the_header_is_found_in_the_block(tmp_path: Path) -> None:
    file = tmp_path / "answer.py"
    text = "prose\n" * 40 + answer(f"# problem: softmax\n{MODEL}")
    file.write_bytes(text.replace("\n", "\r\n").encode())
    solution = read_solution(file)
    assert solution.sha256 == digest(file.read_bytes())
    assert solution.declared_problem == "softmax"


SOLUTION = """\
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return BODY
"""
BUILT = """
from torch.utils.cpp_extension import load_inline

load_inline("fenced", cpp_sources="int f();", functions=["f"])
"""


def reference(folder: Path) -> Path:
    file = folder / "1_Twice.py"
    file.write_text(
        "import torch\nimport torch.nn as nn\n\n\n"
        "class Model(nn.Module):\n    def forward(self, x):\n        return x * 2\n\n\n"
        "def get_inputs():\n    return [torch.randn(3, 5)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    return file


def test_a_fenced_file_is_graded_and_a_failure_names_its_line(tmp_path: Path) -> None:
    problem = msgspec.structs.replace(load_problem(reference(tmp_path)), require="anything")
    options = GradeOptions(problem=problem, time=False, device="cpu")
    right, fails = tmp_path / "right.py", tmp_path / "fails.py"
    right.write_text(answer("nothing", SOLUTION.replace("BODY", "x + x")))
    fails.write_text(answer("nothing", SOLUTION.replace("BODY", "x.no_such_method()")))
    line = fails.read_text().split("\n").index("        return x.no_such_method()") + 1
    assert graded(right, options).status is Status.PASSED
    verdict = graded(fails, options)
    assert verdict.status is Status.RUNTIME_ERROR
    assert f"{fails}:{line}" in verdict.reason


def test_what_a_fenced_file_would_build_is_found_too(tmp_path: Path) -> None:
    file = tmp_path / "answer.py"
    file.write_text(answer(SOLUTION.replace("BODY", "x") + BUILT))
    reply = capture_sources(file, None, tmp_path, tell)
    assert [recipe.library for recipe in reply.recipes] == ["fenced.so"]


@pytest.mark.parametrize(
    ("source", "device"),
    [
        ('"""A __global__ kernel, by cuda_sources."""\nx = 1\n', "cpu"),
        ("def f():\n    'import triton'\n    return 1  # __global__ void f()\n", "cpu"),
        ("load_inline('f', cpp, cuda_sources=None)\n", "cpu"),
        ("load_inline('f', cpp, cuda_sources = [ ], verbose=True)\n", "cpu"),
        ("load_inline(\n    'f', cpp,\n    'x __global__ void f() {}')\n", "cuda"),
        ("load_inline('f', cpp, cuda_sources=[SOURCE])\n", "cuda"),
        ("load_inline('f', cpp, cuda_sources=None or SOURCE)\n", "cuda"),
        ("import triton.language as tl\n", "cuda"),
        ("def f():\n    from triton import jit\n", "cuda"),
        ("CODE = '''\n__global__ void f() {}\n'''\n", "cuda"),
        ("CODE = '''\n__global__ void f() {}\n'''\n)", "cuda"),
    ],
)
def test_a_file_is_for_a_gpu_by_what_it_says_in_code(source: str, device: str) -> None:
    assert read_solution(Path("x.py"), source.encode()).wants == device

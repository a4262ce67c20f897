"""The YAML reader: what it accepts, and that every refusal names line, key and mend."""

# Tables of edits read best with one edit a line.
# ruff: noqa: E501

from pathlib import Path

import pytest
import yaml

from kernelgen.errors import ProblemError
from kernelgen.installation import problems_folder
from kernelgen.problem.python_text import parse_python
from kernelgen.problem.record import Minimal, Problem
from kernelgen.problem.yaml_file import read_yaml_problem

GOOD = """\
summary: doubles its input

constants:
  rows: 4
  shape: [2, [3, 5]]
  eps: 1e-5

cpu:
  constants: {rows: 2}

model: |
  class Model(nn.Module):
      def forward(self, x):
          return 2 * x + eps

get_inputs: |
  def get_inputs():
      return [torch.rand(rows, *shape)]

get_init_inputs: |
  def get_init_inputs():
      return []

tolerance: 1e-5
kernelbench: 2/100
allowed_imports: [triton]
cases:
  - name: one_row
    why: a single row
    constants: {rows: 1}
  - name: normal
    get_inputs: |
      def get_inputs():
          return [torch.randn(rows, *shape)]
"""

SHIPPED = sorted(problems_folder().glob("*.yaml"))
# Beside products, whose rows depend on all of the other matrix: each result depends on all rows.
WHOLE = {
    "attention_biased",  # whose bias is of heads, not of the batch
    "batchnorm",
    "conv2d_batchnorm",
    "conv_transpose3d_batchnorm_pool",
    "cross_entropy",
    "frobenius_norm",
    "hinge_loss",
    "huber_loss",
    "kl_div",
    "mse_loss",
    "triplet_margin",
}
MEMORY_BOUND = [
    *(5, 12, *range(19, 23), *range(25, 33), 88),  # pointwise
    *(*range(47, 50), *range(51, 54)),  # reductions
    *(*range(94, 97), *range(98, 101)),  # losses
    *(*range(23, 25), *range(33, 41)),  # norms
    *range(89, 94),  # scans
    *range(41, 47),  # pooling
]


def read(folder: Path, text: str | bytes) -> object:
    path = folder / "doubled.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_yaml_problem(path)


def refusal(folder: Path, text: str | bytes) -> ProblemError:
    with pytest.raises(ProblemError) as caught:
        read(folder, text)
    assert str(caught.value).startswith(str(folder / "doubled.yaml"))
    assert len(str(caught.value).splitlines()) == 1
    return caught.value


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_problems_load_and_their_cases_parse(path: Path) -> None:
    problem = read_yaml_problem(path)

    assert problem.name == path.stem
    # A parameter's gradient is a sum over the batch.
    whole = path.stem.startswith("matmul") or path.stem in WHOLE or problem.gradients
    assert problem.batch_independent == (not whole)
    for case in problem.all_cases():
        parse_python(problem.reference_source(case, "cuda"))
        parse_python(problem.reference_source(case, "cpu"))


def test_these_problems_are_shipped() -> None:
    assert {path.stem for path in SHIPPED} >= {
        "groupnorm_silu_add",
        "instancenorm_1d",
        "instancenorm_3d",
        "linear_instancenorm_add_mul",
        "rmsnorm",
    }


def test_what_memory_limits_in_kernelbench_s_first_level_is_shipped_once() -> None:
    named = [read_yaml_problem(path).kernelbench for path in SHIPPED]
    found = [name for name in named if name]
    assert len(found) == len(set(found))
    assert set(found) >= {f"1/{number}" for number in MEMORY_BOUND}


def test_every_key_reaches_the_record(tmp_path: Path) -> None:
    path = tmp_path / "doubled.yaml"
    path.write_text(GOOD)
    problem = read_yaml_problem(path)

    assert problem.summary == "doubles its input"
    assert problem.constants == {"rows": 4, "shape": (2, (3, 5)), "eps": 1e-5}
    assert problem.cpu_constants == {"rows": 2}
    assert problem.tolerance == 1e-5
    assert problem.kernelbench == "2/100"
    assert problem.allowed_imports == ("triton",)
    assert not problem.batch_independent
    assert [case.name for case in problem.cases] == ["one_row", "normal"]
    assert problem.cases[0].why == "a single row"
    assert problem.cases[0].constants == {"rows": 1}
    assert "randn" in (problem.cases[1].get_inputs or "")


def test_the_policy_has_defaults_and_is_read(tmp_path: Path) -> None:
    path = tmp_path / "doubles.yaml"
    path.write_text(GOOD)
    plain = read_yaml_problem(path)
    path.write_text(f"require: anything\nlibraries: forbidden\nbuffers: compared\n{GOOD}")
    strict = read_yaml_problem(path)

    assert (plain.require, plain.libraries) == ("own_kernel", "allowed")
    assert (strict.require, strict.libraries) == ("anything", "forbidden")
    assert (plain.buffers, strict.buffers) == ("ignored", "compared")


# A text in GOOD, and another in its place; the text on whose line the blame falls; the key; what is said.
REFUSED = {
    "unknown key": ("tolerance:", "tolerence:", "tolerence", "tolerence", "did you mean `tolerance`"),
    "unknown key of a case": ("    why:", "    reason:", "reason", "cases[0].reason", "known keys"),
    "duplicate key": ("cases:", "summary: again\ncases:", "summary: again", "summary", "twice"),
    "missing key": ("get_init_inputs: |", "cpu_: |", "cpu_", "cpu_", "unknown key"),
    "summary of two lines": ("doubles its input", '"two\\nlines"', "summary", "summary", "2 lines"),
    "quote left open": ("doubles its input", '"two', "summary", None, "not YAML"),
    "summary a number": ("doubles its input", "3", "summary", "summary", "expected text"),
    "tolerance zero": ("tolerance: 1e-5", "tolerance: 0.0", "tolerance", "tolerance", "above 0"),
    "tolerance wide": ("tolerance: 1e-5", "tolerance: 0.1", "tolerance", "tolerance", "at most"),
    "tolerance true": ("tolerance: 1e-5", "tolerance: yes", "tolerance", "tolerance", "a number"),
    "tolerance nan": ("tolerance: 1e-5", "tolerance: .nan", "tolerance", "tolerance", "finite"),
    "tolerance a list": ("tolerance: 1e-5", "tolerance: [1]", "tolerance", "tolerance", "a list"),
    "require unknown": ("tolerance: 1e-5", "require: a_kernel", "require", "require", "expected `own_kernel` or `anything`, found 'a_kernel'"),
    "require a flag": ("tolerance: 1e-5", "require: yes", "require", "require", "expected text"),
    "libraries unknown": ("tolerance: 1e-5", "libraries: none", "libraries", "libraries", "`allowed` or `forbidden`"),
    **{
        f"kernelbench {value}": (
            "kernelbench: 2/100",
            f"kernelbench: {value}",
            "kernelbench",
            "kernelbench",
            "expected KernelBench's level and number such as 1/23, found",
        )
        for value in ("level1/23", "1/023", "23", "0/5", "1/0", "1 / 23", "[1, 23]", "yes")
    },
    "constant a keyword": ("  eps:", "  lambda:", "lambda", "constants.lambda", "keyword"),
    "constant shadows": ("  eps:", "  torch:", "torch:", "constants.torch", "already has a meaning"),
    "constant shadows a builtin": ("  eps:", "  len:", "len:", "constants.len", "already has"),
    "constant no name": ("  eps:", "  e-s:", "e-s:", "constants.e-s", "Python name"),
    "constant a mapping": ("1e-5\n\ncpu", "{a: 1}\n\ncpu", "eps:", "constants.eps", "a mapping"),
    "constant a date": ("rows: 4", "rows: 2020-01-01", "rows:", "constants.rows", "timestamp"),
    "constant nothing": ("rows: 4", "rows:", "rows:", "constants.rows", "found nothing"),
    "constant in base 60": ("rows: 4", "rows: 1:30", "rows:", "constants.rows", "base 8 or 60"),
    "constant computed": ("rows: 4", "rows: 10*4", "rows:", "constants.rows", "found the text '10*4'"),
    "constant in brackets": ("rows: 4", "rows: (2 + 2) / 1", "rows:", "constants.rows", "a number"),
    "constant octal": ("rows: 4", "rows: 012", "rows:", "constants.rows", "base 8 or 60"),
    "constant infinite": ("rows: 4", "rows: .inf", "rows:", "constants.rows", "finite"),
    "constant a key that is no text": ("  rows: 4", "  4: rows", "4: rows", "constants", "in quotes"),
    "cpu constant unknown": ("{rows: 2}", "{row: 2}", "{row: 2}", "cpu.constants.row", "`constants`"),
    "cpu constant of another kind": ("{rows: 2}", "{rows: [2]}", "{rows", "cpu.constants.rows", "list"),
    "case constant unknown": ("{rows: 1}", "{cols: 1}", "cols", "cases[0].constants.cols", "new one"),
    "case called main": ("name: one_row", "name: main", "main", "cases[0].name", "rename"),
    "case named twice": ("name: normal", "name: one_row", "name: one_row\n    get", "cases[1].name", "two cases"),
    "case name no text": ("name: normal", "name: no", "- name: normal", "cases[1].name", "in quotes"),
    "case that changes nothing": ("    constants: {rows: 1}\n", "", "- name: one", "cases[0]", "repeats"),
    "list broken off": ("  - name: one_row", "  a:", "  - name: normal", None, "not YAML"),
    "flag a text": ("tolerance: 1e-5", "batch_independent: maybe", "maybe", "batch_independent", "true"),
    "a template": ("cases:\n", "template:\n  name: matrix_product\ncases:\n", "template:", "template", "not needed any more, the kernels follow from the Model; remove the key"),
    "import dotted": ("[triton]", "[triton.language]", "allowed", "allowed_imports[0]", "top-level"),
    "Python syntax": ("return 2 * x + eps", "return 2 *", "return 2 *", "model", "not Python"),
    "return outside": ("def get_init_inputs():\n      return []", "return []", "  return []", "get_init_inputs", "outside function"),
    "misspelt constant": ("torch.rand(rows", "torch.rand(row", "torch.rand(row", "get_inputs", "`row`"),
    "misspelt constant in a case": ("randn(rows", "randn(rowz", "randn(rowz", "cases[1].get_inputs", "`rowz`"),
    "no Model": ("class Model(", "class Net(", "class Net(", "model", "class Model(nn.Module)"),
    "Model without base": ("Model(nn.Module)", "Model", "class Model", "model", "no base class"),
    "no forward": ("def forward(", "def froward(", "class Model", "model", "`forward`"),
    "no get_inputs": ("def get_inputs():\n      return [torch.rand(", "def inputs():\n      return [(", "def inputs", "get_inputs", "def get_inputs()"),
    "get_inputs with parameters": ("def get_inputs():\n      return [torch.rand(", "def get_inputs(rows):\n      return [torch.rand(", "def get_inputs(rows)", "get_inputs", "found `def get_inputs(rows)`"),
    "an input too many": ("return [torch.rand(", "return [rows, torch.rand(", "def get_inputs", "get_inputs", "returns 2 arguments, but Model.forward takes (x); let them agree"),
    "an input too many in a case": ("return [torch.randn(", "return [rows, torch.randn(", "def get_inputs():\n          ", "cases[1].get_inputs", "returns 2 arguments"),
    "an argument missing": ("      def forward(", "      def __init__(self, k):\n          super().__init__()\n      def forward(", "def get_init_inputs", "get_init_inputs", "returns 0 arguments, but Model.__init__ takes (k)"),
    "block hides a constant": ("  class Model(", "  rows = 3\n  class Model(", "  rows = 3", "model", "binds `rows`"),
    "future import": ("  class Model(", "  from __future__ import annotations\n  class Model(", "  from __future__", "model", "__future__"),
    "tab": ("  rows: 4", "\trows: 4", "\trows", None, "indent with spaces"),
    "alias": ("rows: 4\n  shape: [2, [3, 5]]", "rows: &a 4\n  shape: *a", "*a", None, "alias"),
    "second document": ("tolerance:", "---\ntolerance:", "---", None, "remove the line `---`"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_file_is_refused_with_line_key_and_mend(name: str, tmp_path: Path) -> None:
    old, new, blamed, key, said = REFUSED[name]
    assert GOOD.count(old) == 1
    text = GOOD.replace(old, new)
    blamed_text = blamed if blamed in text else new
    error = refusal(tmp_path, text)

    assert said in str(error)
    assert error.key == key
    assert error.line == line_of(text, blamed_text)


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    error = refusal(tmp_path, "summary: x\nmodel: |\n  class Model(nn.Module): pass\n")

    assert "`get_inputs`, `get_init_inputs`" in error.message


@pytest.mark.parametrize("text", ["", "# nothing\n", "- a\n- b\n", "word\n"])
def test_a_file_that_is_no_mapping_is_refused(text: str, tmp_path: Path) -> None:
    assert "expected a mapping" in refusal(tmp_path, text).message


@pytest.mark.parametrize(
    "raw",
    [
        b"summary: \xff\n",
        b"summary: \x07\n",
        b'summary: "\\UFFFFFFFF"\n',
        b"summary: " + b"[" * 5000,
        b"constants: {rows: !!int abc}\nsummary: x\nmodel: x\nget_inputs: x\nget_init_inputs: x\n",
        b"constants: {rows: !!bool abc}\nsummary: x\nmodel: x\nget_inputs: x\nget_init_inputs: x\n",
        b"summary: !!python/object/apply:os.getcwd []\n",
    ],
)
def test_hostile_bytes_are_refused(raw: bytes, tmp_path: Path) -> None:
    refusal(tmp_path, raw)


def test_an_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="cannot be read: No such file"):
        read_yaml_problem(tmp_path / "absent.yaml")


def test_a_quoted_number_stays_text(tmp_path: Path) -> None:
    path = tmp_path / "quoted.yaml"
    path.write_text(GOOD.replace("rows: 4", 'rows: "1e-5"').replace("{rows: 2}", '{rows: "2"}')
                    .replace("{rows: 1}", "{rows: text}"))  # fmt: skip

    assert read_yaml_problem(path).constants["rows"] == "1e-5"


def test_a_python_error_in_another_style_of_text_blames_the_key(tmp_path: Path) -> None:
    text = GOOD.replace("get_init_inputs: |\n  def get_init_inputs():\n      return []",
                        'get_init_inputs: "def get_init_inputs(:"')  # fmt: skip
    error = refusal(tmp_path, text)

    assert error.line == line_of(text, "get_init_inputs:")


# --- minimal --------------------------------------------------------------------------------------


def test_declared_minima_are_read(tmp_path: Path) -> None:
    text = GOOD.replace(
        "  constants: {rows: 2}\n", "  constants: {rows: 2}\n  minimal: {flops: 0}\n"
    )
    problem = read(tmp_path, text + "minimal:\n  bytes: 15_032_385_536\n  flops: 2e9\n")
    assert isinstance(problem, Problem)
    assert problem.minimal == Minimal(bytes=15_032_385_536, flops=2_000_000_000)
    assert problem.cpu_minimal == Minimal(flops=0)
    assert problem.minimal_on("cuda") == problem.minimal
    assert problem.minimal_on("cpu") == problem.cpu_minimal


def test_without_the_key_nothing_is_declared(tmp_path: Path) -> None:
    problem = read(tmp_path, GOOD)
    assert isinstance(problem, Problem)
    assert problem.minimal == problem.cpu_minimal == Minimal()


@pytest.mark.parametrize(
    ("value", "key", "words"),
    [
        ("{}", "minimal", "expected `bytes`, `flops` or both, found neither; remove the key"),
        ("7", "minimal", "expected a mapping"),
        ("{byte: 7}", "minimal.byte", "unknown key; did you mean `bytes`?"),
        ("{bytes: 0}", "minimal.bytes", "expected a whole number from 1 to "),
        ("{flops: -1}", "minimal.flops", "expected a whole number from 0 to "),
        ("{flops: 1e19}", "minimal.flops", "leave the key out to have them counted"),
        ("{bytes: 1.5}", "minimal.bytes", "expected a whole number such as 15032385536, found"),
        ("{bytes: true}", "minimal.bytes", "expected a whole number such as 15032385536, found"),
        ("{flops: 2*8*8}", "minimal.flops", "YAML computes nothing; write the number itself"),
        ("{flops: .inf}", "minimal.flops", "expected a finite number"),
        ("{flops: [1]}", "minimal.flops", "found a list"),
    ],
)
def test_wrong_minima_are_refused(tmp_path: Path, value: str, key: str, words: str) -> None:
    text = GOOD + f"minimal: {value}\n"
    error = refusal(tmp_path, text)
    assert error.key == key
    assert error.line == line_of(text, "minimal:")
    assert words in error.message


def test_a_machine_without_libyaml_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    files = sorted(problems_folder().glob("*.yaml"))
    by_libyaml = [read_yaml_problem(file) for file in files]
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    assert [read_yaml_problem(file) for file in files] == by_libyaml

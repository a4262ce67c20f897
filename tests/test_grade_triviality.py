"""Answers that need no work, and parts that make no difference."""

import warnings
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from oracle_references import model_source, oracle_reference
from shipped import PROBLEMS

from kernelgen.cli import program
from kernelgen.grading.correctness.compare import compare, relative_reference_error
from kernelgen.grading.oracle.reference import Reference
from kernelgen.grading.oracle.soundness import idle_parts, trivial_answers
from kernelgen.grading.verdict import Status
from kernelgen.lint.linting import Linting
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Case, Problem, Rule

# Of so few, all may happen to be their mean.
FEW_RESULTS = 100


def source(forward: str, constructor: str = "pass") -> str:
    inputs = "torch.rand(8, 16), torch.rand(8, 16)"
    return model_source(forward, inputs, constructor, takes="x, y")


def made(forward: str, constructor: str = "pass", seed: bytes = b"seed") -> Reference:
    return oracle_reference(source(forward, constructor), seed=seed)


@pytest.mark.parametrize(
    ("forward", "answers"),
    [
        ("return (x * y - 5.0).clamp(min=0.0)", ("all zeros", "the mean everywhere")),
        ("return torch.ones_like(x) + 0 * y", ("all ones", "the mean everywhere")),
        ("return x + 1e-9 * y", ("input 0 as it is",)),
        ("return torch.full_like(x, 7.0) + 1e-7 * y", ("the mean everywhere",)),
        ("return x + y", ()),
        ("return torch.softmax(x + y, 1)", ()),
        ("return (x > y).any(1, keepdim=True)", ("all ones",)),
        # One number is its own mean.
        ("return (x * y).sum()", ()),
        ("return 5.0 + 1e-7 * (x * y).sum()", ("the result of other inputs",)),
        ("return (x > y).sum() // 1000 + 7", ("the result of other inputs",)),
    ],
)
def test_answers_without_work_are_named(forward: str, answers: tuple[str, ...]) -> None:
    reference = made(forward)
    inputs, expected = reference.expect(0)
    assert trivial_answers(reference, inputs, expected) == answers


def test_other_inputs_have_to_agree_twice() -> None:
    named = 0
    for seed in range(48):
        reference = made("return (x.sum() > y.sum()).long() + 7", seed=bytes([seed]))
        inputs, expected = reference.expect(0)
        answers = trivial_answers(reference, inputs, expected)
        named += "the result of other inputs" in answers
    assert 4 <= named <= 18  # a quarter, where one draw that agrees is a half


@pytest.mark.parametrize(
    ("forward", "constructor", "parts"),
    [
        ("return x + 0.0 * y", "pass", ("inputs[1]",)),
        ("return x + y", "pass", ()),
        ("return self.norm(x) + y", "self.norm = nn.LayerNorm(16)", ()),
        # Few results: their errors would be looked up nearby.
        (
            "return (x * y).sum() + 0.01 * self.bias",
            "self.bias = nn.Parameter(torch.zeros(1))",
            (),
        ),
        # A row's mean is taken away, and with it a bias that all of the row shares.
        (
            "h = x + y + self.bias; return h - h.mean(1, keepdim=True)",
            "self.bias = nn.Parameter(torch.zeros(1))",
            ("bias",),
        ),
        # A buffer that the model writes is a result; one that it reads in vain is not.
        ("return self.norm(x) + y", "self.norm = nn.BatchNorm1d(16)", ()),
        (
            "return x + y + 0.0 * self.table",
            "self.register_buffer('table', torch.linspace(1.0, 2.0, 16))",
            ("table",),
        ),
    ],
)
def test_parts_that_make_no_difference_are_named(
    forward: str, constructor: str, parts: tuple[str, ...]
) -> None:
    assert idle_parts(made(forward, constructor)) == (parts, 0)


@pytest.mark.parametrize(
    ("given", "forward", "parts"),
    [
        ("torch.linspace(-9.0, 9.0, 128).view(8, 16)", "return x + y", ()),
        ("torch.linspace(-9.0, 9.0, 128).view(8, 16)", "return x.abs() * 0.0 + y", ("inputs[0]",)),
        ("torch.arange(128).view(8, 16)", "return x * 2 + y", ()),
        # Whatever is put in place of a constant is no input of the problem.
        ("torch.ones(8, 16)", "return 0.0 * x + y", ()),
    ],
)
def test_inputs_that_are_the_same_in_each_call_are_tried_in_another_order(
    given: str, forward: str, parts: tuple[str, ...]
) -> None:
    text = source(forward).replace("[torch.rand(8, 16),", f"[{given},")
    one = oracle_reference(text)
    assert idle_parts(one) == (parts, 0)


def test_a_part_has_to_make_no_difference_twice() -> None:
    named = 0
    for seed in range(48):
        reference = made(
            "return x + y + self.bias * (self.scale > 0)",
            "self.scale, self.bias = nn.Parameter(torch.randn(1)), nn.Parameter(torch.rand(1))",
            seed=bytes([seed]),
        )
        named += "bias" in idle_parts(reference)[0]
    assert 4 <= named <= 18  # a quarter, where one draw in which it makes none is a half


def test_trying_leaves_the_parameters_as_they_were() -> None:
    one = made("return self.norm(x) + y", "self.norm = nn.LayerNorm(16)")
    before = [tensor.clone() for _, tensor in one.state()]
    idle_parts(one)
    assert all(bool((a == b).all()) for a, (_, b) in zip(before, one.state(), strict=True))


def write(folder: Path, forward: str) -> Path:
    file = folder / "problem.py"
    file.write_text(source(forward))
    return file


def test_lint_goes_through_the_oracle_and_names_refusals(tmp_path: Path) -> None:
    problem = load_problem(write(tmp_path, "return x + torch.seed() / 2**64"))
    linting = Linting([problem], "cpu", lambda _: None)
    linting.run()
    (found,) = linting.record().cases
    assert found.refused
    assert "different results on equal inputs" in found.findings[0]


def test_the_command_prints_findings_and_says_so_by_its_exit_code(tmp_path: Path) -> None:
    file = write(tmp_path, "return x + 0.0 * y")
    result = CliRunner().invoke(program, ["lint", str(file), "-q"])
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "found  problem: main: input 0 as it is passes",
        "found  problem: main: inputs[1] makes no difference",
        "1 cases, 2 findings",
    ]


@pytest.mark.long
def test_the_shipped_problems_are_clean() -> None:
    result = CliRunner().invoke(program, ["lint", "-q"])
    assert result.exit_code == 0, result.output
    cases = sum(len(problem.all_cases()) for problem in PROBLEMS)
    assert result.stdout.splitlines()[-1] == f"{cases} cases, 0 findings"


@pytest.mark.long
@pytest.mark.parametrize(
    ("problem", "case"),
    [
        pytest.param(problem, case, id=f"{problem.name}-{case.name}")
        for problem in PROBLEMS
        for case in problem.all_cases()
    ],
)
def test_draws_of_shipped_cases_are_far_from_findings(problem: Problem, case: Case) -> None:
    """Seeds are secret, so that what one draw in a hundred does is a finding now and then."""
    for draw in range(4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the instance norm of a row warns about its channels
            reference = oracle_reference(
                problem.reference_source(case, "cpu"),
                name=case.name,
                seed=bytes([draw]),
                batch_independent=problem.batch_independent,
            )
            _, expected = reference.expect(0)
        # Half of what the case would be refused for.
        assert relative_reference_error(expected) <= 5e-5
        for ref in expected.ref32:
            if not 1 < ref.numel() <= FEW_RESULTS:
                continue
            mean = ref.double().mean()
            off = (ref.double() - mean).abs().max()
            assert off >= 100 * problem.tolerance * (1.0 + mean.abs())


@pytest.mark.parametrize(
    ("rule", "forward", "tolerance"),
    [
        # Of the sums, float32 has whole numbers; half of one is allowed twice.
        ("reference", "return (0.9 * x + 1e7) - 1e7 + 0 * y", 1e-5),
        ("kernelbench", "return 1e-6 * (x - y)", 1e-4),
    ],
)
def test_answers_far_off_that_another_rule_takes_are_named(
    rule: Rule, forward: str, tolerance: float
) -> None:
    reference = made(forward)
    reference.rule, reference.tolerance = rule, tolerance
    inputs, expected = reference.expect(0)
    zeros = [torch.zeros_like(ref) for ref in expected.ref32]
    assert zeros[0].ne(expected.ref32[0]).any()
    assert compare(zeros, expected, tolerance, full=False).status is Status.PASSED
    assert "all zeros" in trivial_answers(reference, inputs, expected)

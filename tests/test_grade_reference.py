"""The reference of a case: inputs, parameters, exact results, and what is refused."""

import time

import pytest
import torch
from oracle_references import model_source, oracle_reference

from kernelgen.grading.correctness.compare import compare, relative_reference_error
from kernelgen.grading.oracle import exact, footprint
from kernelgen.grading.oracle.reference import Reference
from kernelgen.grading.oracle.soundness import expect_sound, require_sound
from kernelgen.grading.verdict import ProblemFault, Status


def made(  # noqa: PLR0913 (the parts of a problem, each with a default)
    forward: str,
    *,
    constructor: str = "pass",
    inputs: str = "torch.randn(6, 4)",
    arguments: str = "",
    seed: bytes = b"seed",
    batch_independent: bool = False,
) -> Reference:
    source = model_source(forward, inputs, constructor, arguments=arguments)
    return oracle_reference(source, seed=seed, batch_independent=batch_independent)


def test_a_call_number_gives_the_same_inputs_again_and_another_one_others() -> None:
    one = made("return x")
    assert torch.equal(one.code.make_inputs(1)[0], one.code.make_inputs(1)[0])
    assert not torch.equal(one.code.make_inputs(1)[0], one.code.make_inputs(2)[0])


def test_the_seed_decides_inputs_and_parameters() -> None:
    linear = "self.linear = nn.Linear(4, 3)"
    one = made("return self.linear(x)", constructor=linear, seed=b"a")
    two = made("return self.linear(x)", constructor=linear, seed=b"b")
    assert not torch.equal(one.code.make_inputs(1)[0], two.code.make_inputs(1)[0])
    assert not torch.equal(one.state()[0][1], two.state()[0][1])


def test_the_exact_result_is_float64_and_near() -> None:
    one = made("return self.linear(x)", constructor="self.linear = nn.Linear(4, 3)")
    _, expected = one.expect(1)
    ((row, (exact,)),) = expected.exact_chunks()
    assert (expected.exact, row, exact.dtype) == ("float64", 0, torch.float64)
    assert relative_reference_error(expected) < 1e-5


def test_a_large_batch_is_computed_by_chunks_that_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "CHUNK_BYTES", 2 * 2 * 16 * 3)
    one = made("return torch.softmax(x, -1)", batch_independent=True)
    _, expected = one.expect(1)
    chunks = list(expected.exact_chunks())
    assert expected.exact == "float64 by chunks"
    assert [row for row, _ in chunks] == [0, 3]
    assert compare(expected.ref32, expected, 1e-5, full=True).status is Status.PASSED


@pytest.mark.parametrize(
    ("forward", "apart"),
    [
        ("return torch.softmax(x, -1)", True),
        ("return torch.softmax(x, -1), x.sum(1)", True),
        ("return x - x.mean(0)", False),
        ("return x.cumsum(0)", False),  # the first rows give theirs
        ("return x - x[0]", False),
        ("return x.sum()", False),
        ("return x.T", False),
        ("assert len(x) == 6; return x + 1", False),
        ("return torch.dropout(x, 0.5, True)", False),
    ],
)
def test_what_float64_has_no_room_for_is_computed_by_chunks_if_rows_are_apart(
    forward: str,
    apart: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exact, "CHUNK_BYTES", 2 * 2 * 16 * 3)
    monkeypatch.setattr(exact, "free_bytes", lambda _: 0)
    one = made(forward)
    _, expected = one.expect(1)
    assert expected.exact == ("float64 by chunks" if apart else "float32")
    assert ("not enough memory" in one.exact.note) != apart
    for later in 2, 3:
        assert one.expect(later)[1].exact == expected.exact
    assert compare(expected.ref32, expected, 1e-5, full=True).status is Status.PASSED


def test_rows_are_not_apart_because_a_part_of_them_has_nearly_the_mean_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exact, "CHUNK_BYTES", 2 * 2 * 16 * 3)
    monkeypatch.setattr(exact, "free_bytes", lambda _: 0)
    one = made("return x * x.mean(0)", inputs="1 + 1e-5 * torch.randn(6, 4)")
    assert one.expect(1)[1].exact == "float32"
    # The first three and the last three rows have one mean.
    inputs = "torch.tensor([[0], [1], [2]]).repeat(2, 4)"
    one = made("y = x.float(); return y - y.mean(0)", inputs=inputs)
    assert one.expect(1)[1].exact == "float32"


def test_of_16_bits_a_large_batch_is_computed_by_chunks_where_rows_are_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exact, "CHUNK_BYTES", 64)
    x = torch.randn(6, 4).bfloat16()
    for model, how in (
        (torch.nn.Tanh(), "float64 by chunks"),
        (torch.nn.BatchNorm1d(4, affine=False, track_running_stats=False), "float64"),
    ):
        one = exact.ExactReference(
            model, "cpu", batch_independent=False, dtype=torch.bfloat16, needed=True
        )
        found, chunks = one.of([x], [model(x)], at_once=False)
        assert found == how
        rows = torch.cat([part for _, (part,) in chunks()])
        torch.testing.assert_close(rows, model(x.double()))


def test_a_reference_of_16_bits_is_not_taken_for_the_exact_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = torch.randn(6, 4).bfloat16()
    insists = exact.ExactReference(
        Insisting(), "cpu", batch_independent=False, dtype=torch.bfloat16, needed=True
    )
    with pytest.raises(ProblemFault, match=r"does not run in float64 .*bfloat16 are to be"):
        insists.of([x], [x])
    monkeypatch.setattr(exact, "free_bytes", lambda _: 0)
    with pytest.raises(MemoryError, match="not enough for the float64 reference"):
        insists.of([x], [x])


class Insisting(torch.nn.Module):
    """A model that takes bfloat16 alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the inputs."""
        assert x.dtype is torch.bfloat16
        return x


@pytest.mark.parametrize(("slow", "fails"), [(True, False), (False, False), (False, True)])
def test_the_exact_result_is_computed_by_what_is_quicker(
    monkeypatch: pytest.MonkeyPatch, *, slow: bool, fails: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    by_cudnn: list[bool] = []

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            by_cudnn.append(torch.backends.cudnn.enabled)
            if fails and not by_cudnn[-1]:
                raise torch.OutOfMemoryError
            time.sleep(0.05 if by_cudnn[-1] is slow else 0.0)
            return x * 2

    monkeypatch.setattr(exact, "free_bytes", lambda _: 1 << 30)
    one = exact.ExactReference(Model(), "cuda", batch_independent=False)
    for rows in (2, 2, 2, 2, 2, 3):
        x = torch.ones(rows)
        assert one.of([x], [x * 2])[0] == "float64"
    # Other shapes are tried anew.
    expected = [False, True, True, True, True, True, False, True] if fails else []
    assert by_cudnn == (expected or [False, True, False, not slow, not slow, False])
    assert torch.backends.cudnn.enabled


def test_after_the_first_call_float64_waits_until_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed: list[torch.dtype] = []

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            computed.append(x.dtype)
            return x * 2

    one = exact.ExactReference(Model(), "cpu", batch_independent=False)
    for number, at_once in enumerate((False, True, False, False)):
        x = torch.full((3,), float(number))
        name, chunks = one.of([x], [x * 2], at_once=at_once)
        assert name == "float64"
        assert len(computed) == min(number + 1, 2)
    for _ in range(2):
        ((_, (found,)),) = chunks()
        assert found.tolist() == [6.0] * 3
    assert computed == [torch.float64] * 3, "what was computed is kept"
    # Inputs of another shape have given none yet, and may fail.
    one.of([torch.ones(4)], [torch.ones(4)], at_once=False)
    assert len(computed) == 4
    # A candidate may have taken the memory since.
    monkeypatch.setattr(exact, "free_bytes", lambda _: 0)
    assert one.of([x], [x * 2], at_once=False)[0] == "float32"


@pytest.mark.parametrize("change", ["self.mean += 1e-3", "self.mean = self.mean + 1e-3"])
def test_float64_keeps_step_with_a_reference_that_reads_what_it_has_written(change: str) -> None:
    buffer = "self.register_buffer('mean', torch.zeros(()))"
    one = made(f"{change}; return x - self.mean", constructor=buffer)
    for call in range(10):
        _, expected = one.expect(call)
    # Nobody asked for the results between: a candidate that stands still is not to agree for that.
    ((_, (found,)),) = expected.exact_chunks()
    assert (found - expected.ref32[0]).abs().max() < 1.5e-3, "it is a step ahead throughout"


def test_a_large_batch_that_insists_on_float32_is_compared_in_it_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exact, "CHUNK_BYTES", 64)
    one = made("assert x.dtype == torch.float32; return x + 1", batch_independent=True)
    _, expected = one.expect(1)
    assert expected.exact == "float32"
    assert "which does not run in float64" in one.exact.note
    assert compare(expected.ref32, expected, 1e-5, full=True).status is Status.PASSED


@pytest.mark.parametrize(
    "forward",
    [
        "return x - x.mean(0)",
        "return x * torch.log(torch.tensor(len(x) - 2.5))",  # of a row or two: NaN
    ],
)
def test_a_false_claim_of_batch_independence_is_the_problems_fault(
    forward: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "CHUNK_BYTES", 64)
    one = made(forward, batch_independent=True)
    with pytest.raises(ProblemFault, match="a row alone gives another result"):
        one.expect(1)


@pytest.mark.parametrize(
    "forward",
    [
        "return x @ torch.ones(4, 2, dtype=torch.float32)",
        "assert x.dtype == torch.float32; return x + 1",
    ],
)
def test_a_model_that_insists_on_float32_is_compared_in_it_and_the_verdict_says_so(
    forward: str,
) -> None:
    one = made(forward)
    _, expected = one.expect(1)
    assert expected.exact == "float32"
    assert "which does not run in float64" in one.exact.note


def test_tensors_that_a_model_holds_or_makes_are_float64_too() -> None:
    one = made(
        "return x @ self.plain + torch.ones(2)",
        constructor="self.plain = torch.full((4, 2), 0.1)",
    )
    _, expected = one.expect(1)
    assert expected.exact == "float64"
    assert [name for name, _ in one.state()] == ["plain"]


def test_a_reference_that_writes_into_its_input_is_noticed() -> None:
    one = made("return x.add_(1.0)")
    inputs, expected = one.expect(1)
    assert one.mutates_inputs
    assert torch.equal(inputs[0] + 1.0, expected.ref32[0])


def test_a_float64_reference_that_writes_into_its_input_does_not_change_ours() -> None:
    one = made("return x.mul_(2.0)", inputs="torch.randn(6, 4, dtype=torch.float64)")
    inputs, expected = one.expect(1)
    ((_, (exact_result,)),) = expected.exact_chunks()
    assert torch.equal(exact_result, 2.0 * inputs[0])


def test_a_result_that_is_the_models_own_memory_is_kept_apart() -> None:
    one = made("return self.linear.weight", constructor="self.linear = nn.Linear(4, 3)")
    _, expected = one.expect(1)
    assert expected.ref32[0].data_ptr() != one.state()[0][1].data_ptr()


def test_constructor_arguments_are_new_each_time() -> None:
    one = made("return x", constructor="sizes[0].append(3)", arguments="[1, 2]")
    assert one.code.init_inputs == [[1, 2]]


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        ("return x + torch.seed() / 2**64", "different results on equal inputs"),
        ("self.calls = getattr(self, 'calls', 0) + 1; return x + self.calls", "such as a counter"),
        ("return x * float('nan')", "100 % of an output of the reference is NaN or inf"),
        ("return x[:0]", "no elements"),
        ("return (x + 1e7) - 1e7", "off from itself in float64"),
    ],
)
def test_a_reference_that_verifies_nothing_is_refused(forward: str, reason: str) -> None:
    one = made(forward)
    _, expected = one.expect(0)
    with pytest.raises(ProblemFault, match=reason):
        require_sound(one, expected, must_have_elements=True)


def test_where_fp32_is_too_inexact_on_what_was_drawn_other_values_are() -> None:
    def unlucky(seed: bytes) -> Reference:
        return made(
            "far = 1e7 * (self.shift > 0); return (x + far) - far",
            constructor="self.shift = nn.Parameter(torch.randn(3).mean())",
            seed=seed,
        )

    draws = set()
    for seed in (bytes([number]) for number in range(24)):
        reference = unlucky(seed)
        drawn = [float(reference.state()[0][1])]
        while len(drawn) < 3:
            assert reference.draw_again()
            drawn.append(float(reference.state()[0][1]))
        lucky = [value for value in drawn if value <= 0]
        one = unlucky(seed)
        if lucky:
            expect_sound(one, must_have_elements=True)
            assert float(one.state()[0][1]) == lucky[0]
        else:
            with pytest.raises(ProblemFault, match="off from itself in float64"):
                expect_sound(one, must_have_elements=True)
        draws.add(drawn.index(lucky[0]) if lucky else None)
    assert draws == {0, 1, 2, None}


@pytest.mark.parametrize(
    "forward",
    [
        "return torch.max(x, 1)",
        "return {'b': x, 'a': x.sum()}, [x.bfloat16()]",
        "return x.to(torch.bfloat16) @ x.to(torch.bfloat16).T",
        "return x.masked_fill(x > 1, float('-inf'))",
        "return x.argmax(1)",
    ],
)
def test_an_unusual_reference_is_no_wrong_one(forward: str) -> None:
    one = made(forward)
    _, expected = one.expect(0)
    require_sound(one, expected, must_have_elements=True)


def test_integer_inputs_keep_their_dtype() -> None:
    one = made(
        "return self.table(x)",
        constructor="self.table = nn.Embedding(10, 3)",
        inputs="torch.randint(0, 10, (5,))",
    )
    inputs, expected = one.expect(1)
    assert inputs[0].dtype == torch.int64
    assert expected.exact == "float64"


def test_a_footprint_is_known_without_allocating() -> None:
    one = made(
        "return self.linear(x)",
        constructor="self.linear = nn.Linear(4, 3)",
        inputs="torch.randn(10**9, 4)",
    )
    size = one.footprint()
    assert size is not None
    assert (size.inputs, size.outputs, size.parameters) == (16 * 10**9, 12 * 10**9, 4 * (12 + 3))
    reason = size.refusal("cpu", 10**9)
    assert reason is not None
    assert "28 GB for the candidate's inputs and outputs" in reason
    assert "1 GB are free" in reason


def test_what_fits_is_not_refused() -> None:
    size = footprint.Footprint(inputs=1000, parameters=0, outputs=1000)
    assert size.refusal("cpu", None) is None
    assert size.refusal("cpu", 5000) is not None


@pytest.mark.parametrize(
    ("forward", "constructor", "blamed"),
    [
        ("return x.absent()", "pass", r"Model\.forward\(\.\.\.\) raised AttributeError"),
        ("return x", "self.a = absent", r"Model\(\.\.\.\) raised NameError"),
    ],
)
def test_faults_name_the_part_of_the_problem(forward: str, constructor: str, blamed: str) -> None:
    with pytest.raises(ProblemFault, match=blamed):
        made(forward, constructor=constructor).expect(1)


def test_one_row_of_a_call_is_new_and_the_results_are_those_of_it() -> None:
    reference = made("return x * 2", inputs="torch.randn(6, 4)")
    before, _ = reference.expect(1)
    inputs, expected = reference.expect(2, before)
    rows = (inputs[0] != before[0]).any(dim=1)
    assert int(rows.sum()) == 1
    assert torch.equal(inputs[0][rows], reference.code.make_inputs(2)[0][rows])
    assert torch.equal(expected.ref32[0], inputs[0] * 2)


@pytest.mark.parametrize(
    "inputs", ["torch.randn(1, 4)", "torch.randn(())", "torch.rand(1).expand(6)"]
)
def test_where_no_row_can_be_kept_all_is_new(inputs: str) -> None:
    reference = made("return x * 2", inputs=inputs)
    before, _ = reference.expect(1)
    assert torch.equal(reference.expect(2, before)[0][0], reference.code.make_inputs(2)[0])


def test_one_that_begins_again_is_what_a_new_one_with_the_seed_is() -> None:
    drawn = "self.linear = nn.Linear(4, 3); self.shift = nn.Parameter(torch.randn(3))"
    one, new = (
        made(
            "return self.linear(x.add_(1)) + self.shift + torch.rand(3)",
            constructor=drawn,
            seed=seed,
        )
        for seed in (b"a", b"b")
    )
    one.expect(1)
    before = one.initial_digests()
    assert one.begin_again(b"b")
    assert one.initial_digests() == new.initial_digests() != before
    assert one.described() == new.described()
    assert (one.draws, one.mutates_inputs, one.seed_of(1)) == (False, False, new.seed_of(1))
    assert torch.equal(one.code.make_inputs(1)[0], new.code.make_inputs(1)[0])
    for (_, mine), (_, other) in zip(one.state(), new.state(), strict=True):
        assert torch.equal(mine, other)


def test_rows_that_are_nan_alone_and_among_others_are_independent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exact, "CHUNK_BYTES", 64)
    one = made("return torch.where(x > 0, x, float('nan'))", batch_independent=True)
    assert one.expect(1)[1].exact == "float64 by chunks"

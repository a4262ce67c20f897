"""Agreement at 1e-5, on the very edge."""

import math
from collections.abc import Iterator
from itertools import pairwise

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgen.grading.correctness.compare import Chunk, Expected, Nearby, compare
from kernelgen.grading.correctness.elements import Block, Bound, ErrorOfReference
from kernelgen.grading.correctness.form import form_problem
from kernelgen.grading.oracle.exact import ExactReference
from kernelgen.grading.verdict import Status
from kernelgen.grading.wire.arena import HostArena
from kernelgen.grading.wire.messages import Tensors
from kernelgen.grading.wire.transport import deposit
from kernelgen.grading.wire.tree import Items, TensorLeaf
from kernelgen.problem.record import LARGEST_TOLERANCE
from kernelgen.report.numbers import of_allowed

TOLERANCE = 1e-5


def expected_of(exact: torch.Tensor, ref32: torch.Tensor | None = None) -> Expected:
    reference = exact.float() if ref32 is None else ref32
    return Expected(
        described=deposit(reference, None),
        ref32=[reference],
        exact_chunks=lambda: iter([(0, [exact])]),
        exact="float64",
    )


def status_of(out: torch.Tensor, exact: torch.Tensor, ref32: torch.Tensor | None = None) -> Status:
    return compare([out], expected_of(exact, ref32), TOLERANCE, full=True).status


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (0.0, Status.PASSED),
        (1.9e-5, Status.PASSED),
        (2.1e-5, Status.WRONG_VALUES),
        (-1.9e-5, Status.PASSED),
        (-2.1e-5, Status.WRONG_VALUES),
    ],
)
def test_the_bound_is_relative_plus_absolute(error: float, status: Status) -> None:
    # All ones: rms 1, so an element at 1 may be off by 1e-5 + 1e-5.
    exact = torch.ones(1000, dtype=torch.float64)
    out = exact.clone()
    out[17] += error
    found = compare([out], expected_of(exact, exact.clone()), TOLERANCE, full=True)
    assert found.status is status
    assert found.wrong == (0 if status is Status.PASSED else 1)


@pytest.mark.parametrize("scale", [1e-12, 1e-4, 1.0])
def test_the_absolute_term_shrinks_with_the_signal(scale: float) -> None:
    generator = torch.Generator().manual_seed(1)
    exact = scale * torch.randn(4096, dtype=torch.float64, generator=generator)
    assert status_of(exact.float(), exact) is Status.PASSED
    assert status_of(torch.zeros(4096), exact) is Status.WRONG_VALUES
    assert status_of((exact * (1 + 1e-3)).float(), exact) is Status.WRONG_VALUES


def test_large_values_do_not_widen_the_absolute_term() -> None:
    exact = torch.full((100,), 1e6, dtype=torch.float64)
    exact[3] = 0.0
    out = exact.clone()
    out[3] = 2e-5
    assert status_of(out, exact, exact.clone()) is Status.WRONG_VALUES


def test_a_reference_that_misses_the_bound_widens_it_to_twice_its_error() -> None:
    exact = torch.ones(100, dtype=torch.float64)
    ref32 = exact.clone()
    ref32[5] += 1e-3
    out = exact.clone()
    out[50] += 1.9e-3
    assert status_of(out, exact, ref32) is Status.PASSED
    out[50] += 0.2e-3
    assert status_of(out, exact, ref32) is Status.WRONG_VALUES


def test_a_reference_that_keeps_the_bound_by_less_than_half_widens_it_too() -> None:
    """Another order of the same sums may err as much where the reference happened not to."""
    exact = torch.ones(100, dtype=torch.float64)
    exact[:50] = 100.0
    ref32 = exact.clone()
    ref32[5] += 3e-4
    ref32[70] += 1.1e-5
    out = exact.clone()
    out[80] += 5.5e-4
    assert status_of(out, exact, ref32) is Status.PASSED
    out[80] += 1e-4
    assert status_of(out, exact, ref32) is Status.WRONG_VALUES
    ref32[70] = 1.0 + 0.9e-5
    out[80] = 1.0 + 3e-5
    assert status_of(out, exact, ref32) is Status.WRONG_VALUES


def test_a_reference_that_misses_the_bound_in_one_slice_widens_no_other() -> None:
    exact = torch.ones(2, 5000, dtype=torch.float64)
    ref32 = exact.clone()
    ref32[0, 7] += 1e-3
    out = exact.clone()
    ref32[1, 7] += 1e-5
    out[0, 9] += 1.9e-3
    out[1, 9] += 3.9e-5
    assert status_of(out, exact, ref32) is Status.PASSED
    out[1, 9] += 0.2e-5
    assert status_of(out, exact, ref32) is Status.WRONG_VALUES


@pytest.mark.parametrize(
    ("first_error", "off", "asks"),
    [
        (None, 0.4, False),
        (None, 0.8, True),
        (0.05, 0.8, False),
        (0.05, 0.95, True),
        (0.4, 0.8, True),
        (0.0, 0.8, True),  # none, by luck or since float32 stood in for float64
    ],
)
def test_float64_is_asked_for_where_the_reference_s_errors_leave_it_something_to_say(
    *, first_error: float | None, off: float, asks: bool
) -> None:
    """Errors are parts of the bound of 1, which is 2e-5; the first call's are known later."""
    exact = torch.ones(5000, dtype=torch.float64)
    asked: list[int] = []
    errors: dict[int, float] = {}

    def found(out: torch.Tensor, ref32: torch.Tensor, *, full: bool = False) -> Status:
        def chunks() -> Iterator[Chunk]:
            asked.append(1)
            yield 0, [exact]

        expected = msgspec.structs.replace(
            expected_of(exact, ref32), exact_chunks=chunks, errors=errors
        )
        return compare([out.float()], expected, TOLERANCE, full=full).status

    if first_error is not None:
        assert found(exact, (exact + 2e-5 * first_error).float(), full=True) is Status.PASSED
        asked.clear()
    out = exact.clone()
    out[7] += 2e-5 * off
    assert found(out, exact.float()) is Status.PASSED
    assert bool(asked) == asks
    out[7] = 1.0 + 2e-5 * 1.1
    assert found(out, exact.float()) is Status.WRONG_VALUES


def test_one_error_says_little_and_inputs_nearby_say_more() -> None:
    """Behind a threshold that one element passes, its own error may be 0 by chance."""
    exact = torch.zeros(5000, dtype=torch.float64)
    exact[7] = 1.0
    near = exact.clone()
    near[7] += 1e-4
    out = exact.float()
    out[7] += 1.5e-4
    asked = []

    def nearby() -> Iterator[Nearby]:
        asked.append(1)
        yield [near.float()], [exact]

    def found(ref32: torch.Tensor, out: torch.Tensor) -> Status:
        expected = msgspec.structs.replace(expected_of(exact, ref32), nearby=nearby)
        return compare([out], expected, TOLERANCE, full=False).status

    assert found(exact.float(), exact.float()) is Status.PASSED
    assert not asked
    assert found(exact.float(), out) is Status.PASSED
    assert asked
    out[7] += 1e-4
    assert found(exact.float(), out) is Status.WRONG_VALUES
    asked.clear()
    # Many errors tell enough.
    assert found((exact + 1e-9).float(), out) is Status.WRONG_VALUES
    assert not asked


def test_errors_nearby_widen_no_bound_of_an_output_that_rounds_often() -> None:
    """Nor are they asked for where an integer is wrong."""
    torch.manual_seed(2)
    exact = [torch.rand(5000, dtype=torch.float64), torch.zeros(5000, dtype=torch.float64)]
    ref32, near = [one.float() for one in exact], [one.float() for one in exact]
    near[0][7] += 1.0
    out = [one.clone() for one in ref32]
    out[0][7] += 1e-3
    asked = []

    def nearby() -> Iterator[Nearby]:
        asked.append(1)
        yield near, exact

    def found(out: list[torch.Tensor], ref32: list[torch.Tensor]) -> Status:
        expected = Expected(
            described=deposit(ref32, None),
            ref32=ref32,
            exact_chunks=lambda: iter([(0, [*exact])]),
            exact="float64",
            nearby=nearby,
        )
        return compare(out, expected, TOLERANCE, full=False).status

    assert found(out, ref32) is Status.WRONG_VALUES
    assert asked
    asked.clear()
    exact[1] = torch.zeros(5000, dtype=torch.int64)
    whole = [ref32[0], exact[1].clone()]
    assert found([ref32[0], exact[1] + 1], whole) is Status.WRONG_VALUES
    assert not asked


def test_inputs_nearby_round_anew() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4096, 1), torch.nn.BatchNorm1d(1))
    reference = ExactReference(model, "cpu", batch_independent=False)
    x = torch.rand(64, 4096)
    kept = [tensor.clone() for tensor in (x, *model.buffers())]
    errors = [
        (ref32[0] - exact[0]).abs() for ref32, exact in reference.nearby([x], None, shaken=False)
    ]
    assert len(errors) == 6
    assert len({float(error.max()) for error in errors}) == 6
    assert all(0.0 < float(error.max()) < 1e-4 for error in errors)
    assert all(torch.equal(a, b) for a, b in zip(kept, (x, *model.buffers()), strict=True))


@pytest.mark.parametrize("cuts", [[], [1], [4096], [5000, 5001], [100, 8200, 12288], [12289]])
def test_the_maxima_of_slices_do_not_depend_on_the_blocks(cuts: list[int]) -> None:
    error = torch.rand(13_000, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    found = ErrorOfReference((13_000,), torch.device("cpu"), Bound(0.0, 0.0))
    for start, stop in pairwise([0, *cuts, 13_000]):
        block = error[start:stop]
        found.add(Block(start, block, torch.zeros_like(block), block))
    slack = found.slack()
    assert slack is not None
    # Slices of 4096 elements, the last of which takes what is left over.
    expected = torch.cat(
        [part.max().expand(len(part)) for part in torch.split(error, [4096, 4096, 4808])]
    )
    limit = 2.0 * error.max()
    assert torch.equal(slack.at(range(13_000)), (4.0 * expected).clamp(max=limit))


def test_a_reference_within_half_the_bound_widens_nothing() -> None:
    exact = torch.ones(100, dtype=torch.float64)
    ref32 = exact.clone()
    ref32[5] += 0.9e-5
    out = exact.clone()
    out[50] += 2.1e-5
    assert status_of(out, exact, ref32) is Status.WRONG_VALUES


@pytest.mark.parametrize(
    ("far", "error", "share"),
    [(0.0, 0.0, 0.0), (0.0, 0.5e-5, 0.5), (3.0, 2e-5, 0.5), (3.0, 4e-5, 1.0), (3.0, 6e-5, 1.5)],
)
def test_an_error_is_a_share_of_what_is_allowed(far: float, error: float, share: float) -> None:
    exact = torch.ones(1000, dtype=torch.float64)
    exact[7] = far
    out = exact.clone()
    out[7] += error * (1.0 - 1e-9)
    found = compare([out], expected_of(exact, exact), TOLERANCE, full=True)
    assert found.of_allowed == pytest.approx(share, rel=1e-2)
    assert (found.status is Status.PASSED) == (share <= 1.0)


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, ""), (0.0, "0%"), (1e-9, "<1%"), (0.126, "13%"), (1.0, "100%"), (12.34, "12.3x")],
)
def test_a_share_is_written_with_few_digits(share: float | None, text: str) -> None:
    assert of_allowed(share) == text


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_non_finite_element_is_its_own_status(value: float) -> None:
    exact = torch.ones(7, 11, dtype=torch.float64)
    out = exact.float()
    out[3, 4] = value
    found = compare([out], expected_of(exact), TOLERANCE, full=True)
    assert found.status is Status.NON_FINITE
    assert "[3, 4]" in found.reason
    assert found.worst is None
    assert found.max_abs_err is None


def test_a_non_finite_value_that_the_reference_has_too_agrees() -> None:
    exact = torch.tensor([1.0, math.inf, math.nan, -math.inf], dtype=torch.float64)
    assert status_of(exact.float(), exact) is Status.PASSED
    assert status_of(exact.float().nan_to_num(), exact) is Status.WRONG_VALUES


def test_where_float32_alone_is_not_finite_either_value_is_right() -> None:
    exact = torch.tensor([math.inf, 2.0, math.nan], dtype=torch.float64)
    eager = torch.tensor([math.nan, math.inf, 3.0])
    assert status_of(exact.float(), exact, eager) is Status.PASSED
    assert status_of(eager, exact, eager) is Status.PASSED
    for other in ([1.0, 2.0, 3.0], [math.inf, 2.1, 3.0], [math.inf, 2.0, 3.1]):
        assert status_of(torch.tensor(other), exact, eager) is Status.WRONG_VALUES


def test_a_value_beyond_float32_is_expected_as_the_reference_has_it() -> None:
    exact = torch.tensor([1.0, 1e300], dtype=torch.float64)
    assert status_of(torch.tensor([1.0, math.inf]), exact) is Status.PASSED
    assert status_of(torch.tensor([1.0, 3e38]), exact) is Status.WRONG_VALUES


def test_the_worst_element_is_named_with_index_got_and_expected() -> None:
    exact = torch.arange(24, dtype=torch.float64).reshape(2, 3, 4)
    out = exact.float()
    out[1, 2, 3] += 5.0
    out[0, 0, 1] += 0.1
    found = compare([out], expected_of(exact), TOLERANCE, full=True)
    assert found.worst is not None
    assert (found.worst.index, found.worst.got, found.worst.expected) == ((1, 2, 3), 28.0, 23.0)
    assert "2 of 24 elements" in found.reason
    assert "the first wrong element is [0, 0, 1]" in found.reason


def test_zeros_are_named_as_such() -> None:
    exact = torch.ones(10, dtype=torch.float64)
    found = compare([torch.zeros(10)], expected_of(exact), TOLERANCE, full=True)
    assert "every element of output is 0" in found.reason


def test_integers_must_be_equal() -> None:
    exact = torch.arange(10)
    expected = expected_of(exact, exact)
    assert compare([exact.clone()], expected, TOLERANCE, full=True).status is Status.PASSED
    wrong = exact.clone()
    wrong[4] = 99
    found = compare([wrong], expected, TOLERANCE, full=True)
    assert found.status is Status.WRONG_VALUES
    assert found.worst is not None
    assert (found.worst.index, found.worst.got, found.worst.expected) == ((4,), 99.0, 4.0)


def test_an_empty_output_agrees() -> None:
    exact = torch.empty(0, 4, dtype=torch.float64)
    assert status_of(torch.empty(0, 4), exact) is Status.PASSED


def test_chunks_see_every_element_once() -> None:
    exact = torch.arange(30, dtype=torch.float64).reshape(10, 3)
    out = exact.float()
    out[9, 2] += 1.0
    expected = Expected(
        described=deposit(exact.float(), None),
        ref32=[exact.float()],
        exact_chunks=lambda: iter([(0, [exact[:4]]), (4, [exact[4:8]]), (8, [exact[8:]])]),
        exact="float64 by chunks",
    )
    found = compare([out], expected, TOLERANCE, full=True)
    assert (found.elements, found.wrong) == (30, 1)
    assert found.worst is not None
    assert found.worst.index == (9, 2)


def test_missing_chunks_are_a_fault_of_ours() -> None:
    exact = torch.ones(10, 3, dtype=torch.float64)
    expected = Expected(
        described=deposit(exact.float(), None),
        ref32=[exact.float()],
        exact_chunks=lambda: iter([(0, [exact[:4]])]),
        exact="float64 by chunks",
    )
    with pytest.raises(RuntimeError, match="12 of 30 elements"):
        compare([exact.float()], expected, TOLERANCE, full=True)


@given(
    values=st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=50),
    noise=st.floats(-1e-3, 1e-3),
    where=st.integers(0, 49),
)
@settings(deadline=None, max_examples=50, derandomize=True)
def test_what_agrees_at_a_tolerance_agrees_at_twice_of_it(
    values: list[float], noise: float, where: int
) -> None:
    exact = torch.tensor(values, dtype=torch.float64)
    out = exact.clone()
    out[where % len(values)] += noise
    expected = expected_of(exact, exact.clone())
    tight = compare([out], expected, TOLERANCE, full=False)
    loose = compare([out], expected, 2 * TOLERANCE, full=False)
    assert tight.status is not Status.PASSED or loose.status is Status.PASSED


@pytest.mark.parametrize(
    ("got", "want", "status", "said"),
    [
        (torch.ones(3), torch.ones(3, 1), Status.WRONG_SHAPE, ("(3,)", "(3, 1)")),
        (torch.ones(1), torch.ones(3), Status.WRONG_SHAPE, ("(1,)", "(3,)")),
        (torch.ones(3).double(), torch.ones(3), Status.WRONG_DTYPE, ("float64", "float32")),
        (torch.ones(3), torch.ones(3).bfloat16(), Status.WRONG_DTYPE, ("float32", "bfloat16")),
        (None, torch.ones(3), Status.WRONG_STRUCTURE, ("None",)),
        ([torch.ones(3)], torch.ones(3), Status.WRONG_STRUCTURE, ("list",)),
        (torch.ones(3), (torch.ones(3), torch.ones(2)), Status.WRONG_STRUCTURE, ("tuple of 2",)),
        ((torch.ones(3),), (torch.ones(3), torch.ones(2)), Status.WRONG_STRUCTURE, ("of 1",)),
        ({0: torch.ones(3)}, (torch.ones(3),), Status.WRONG_STRUCTURE, ("dict",)),
        ({"b": torch.ones(3)}, {"a": torch.ones(3)}, Status.WRONG_STRUCTURE, ("'b'", "'a'")),
        ((torch.ones(3), 4), (torch.ones(3), 5), Status.WRONG_STRUCTURE, ("4", "5")),
        (torch.ones(3, device="meta"), torch.ones(3), Status.WRONG_STRUCTURE, ("meta",)),
        (torch.ones(3).to_sparse(), torch.ones(3), Status.WRONG_STRUCTURE, ("sparse",)),
    ],
)
def test_form_is_judged_before_values(
    got: object, want: object, status: Status, said: tuple[str, ...]
) -> None:
    found = form_problem(described(got), described(want))
    assert found is not None
    assert found.status is status
    assert all(word in found.reason for word in said), found.reason


@pytest.mark.parametrize(
    ("got", "want", "place"),
    [
        ((*[1] * 5, 7), (*[1] * 5, 8), "output[5]: 7, not 8"),
        ({"a": {"b": 1}}, {"a": {"c": 1}}, "output['a']['b']: 1, not nothing"),
        ({"a": 1}, {"a": 1.0}, "output['a']: 1, not 1.0"),
        ((*[1] * 5, [2]), (*[1] * 5, 2), "output[5][0]: 2, not nothing"),
        ((*[1] * 5, [[2]]), (*[1] * 5, [[2, 3]]), "output[5][0][1]: nothing, not 3"),
    ],
)
def test_two_structures_that_are_told_alike_differ_at_a_place(
    got: object, want: object, place: str
) -> None:
    found = form_problem(described(got), described(want))
    assert found is not None
    assert found.reason.endswith(f"they differ at {place}")


def test_an_output_named_twice_and_another_never_is_forged() -> None:
    honest = described((torch.zeros(3), torch.ones(3)))
    forged = msgspec.structs.replace(honest, tree=Items("tuple", (TensorLeaf(0), TensorLeaf(0))))
    found = form_problem(forged, honest)
    assert found is not None
    assert found.status is Status.TAMPERED


def test_a_float_taken_out_of_a_tensor_agrees_closely() -> None:
    assert (
        form_problem(described((torch.ones(1), 1.0 + 1e-7)), described((torch.ones(1), 1.0)))
        is None
    )
    assert (
        form_problem(described((torch.ones(1), 1.1)), described((torch.ones(1), 1.0))) is not None
    )


def test_a_list_may_stand_for_a_tuple() -> None:
    got, want = [torch.zeros(3)], (torch.zeros(3),)
    wide = [tensor.clone() for tensor in got]
    assert form_problem(described(wide), described(want)) is None


def described(value: object) -> Tensors:

    arena = HostArena(1 << 16)
    sent = deposit(value, arena)
    arena.close()
    return sent


@pytest.mark.parametrize(
    ("out", "status"),
    [(1.9e-4, Status.PASSED), (2.1e-4, Status.WRONG_VALUES), (-1.9e-4, Status.PASSED)],
)
def test_kernelbenchs_rule_compares_with_float32(out: float, status: Status) -> None:
    # The exact result is far from the fp32 reference's, and does not count.
    ref32 = torch.ones(1000)
    expected = msgspec.structs.replace(
        expected_of(torch.full((1000,), 2.0, dtype=torch.float64), ref32), absolute=1e-4
    )
    found = compare([ref32 + out], expected, 1e-4, full=True)
    assert (found.status, found.exact) == (status, "float32")


def test_kernelbenchs_rule_does_not_shrink_with_the_signal() -> None:
    ref32 = torch.full((1000,), 1e-6)
    expected = expected_of(ref32.double(), ref32)
    zeros = [torch.zeros(1000)]
    assert compare(zeros, expected, 1e-4, full=True).status is Status.WRONG_VALUES
    theirs = msgspec.structs.replace(expected, absolute=1e-4)
    assert compare(zeros, theirs, 1e-4, full=True).status is Status.PASSED


def test_what_float32_stands_in_for_has_no_coarser_bounds() -> None:
    """A bound that is made in a short type is rounded up to its least number."""
    least = torch.finfo(torch.float32).smallest_normal * torch.finfo(torch.float32).eps
    exact = torch.zeros(1000)
    exact[0] = 24e3 * least
    tolerance = 0.75 * math.sqrt(1000) / 24e3  # of the root mean square, 0.75 of the least number
    out = exact.clone()
    out[17] = least
    found = compare([out], expected_of(exact, exact).in_float32(), tolerance, full=True)
    assert found.wrong == 1


SCALES = st.sampled_from([0.0, 0.3e-5, 0.49e-5, 0.9e-5, 1.4e-5, 2.5e-5, 1e-4])


@given(of_reference=SCALES, of_candidate=SCALES, alike=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
def test_without_the_exact_result_nothing_passes_that_it_would_refuse(
    of_reference: float, of_candidate: float, *, alike: bool, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    exact, error, other = torch.randn(3, 64, 96, generator=draw, dtype=torch.float64)
    error = (error * (torch.rand(64, 96, generator=draw) < 0.5)).clamp(-1.0, 1.0)
    other = error if alike else other.clamp(-1.0, 1.0)
    ref32 = exact + of_reference * error * exact.abs()
    out = ref32 + of_candidate * other
    computed: list[None] = []

    def chunks() -> Iterator[tuple[int, list[torch.Tensor]]]:
        computed.append(None)
        yield 0, [exact]

    expected = msgspec.structs.replace(expected_of(exact, ref32), exact_chunks=chunks)
    found = compare([out], expected, TOLERANCE, full=False)
    surely = not computed
    assert surely or of_candidate
    assert not surely or of_candidate < 1e-4
    whole = compare([out], expected, TOLERANCE, full=True)
    assert found.status is whole.status
    assert (found.max_abs_err is None) == surely
    assert found.elements == whole.elements


@pytest.mark.parametrize("tolerance", [1e-5, 1e-3, LARGEST_TOLERANCE])
@pytest.mark.parametrize("of_bound", [0.4999, 0.5001])
def test_half_a_bound_beside_a_reference_that_errs_by_half_is_within_it_at_any_tolerance(
    tolerance: float, of_bound: float
) -> None:
    exact = torch.full((4096,), 1e3, dtype=torch.float64)
    ref32 = exact + of_bound * tolerance * (exact + 1.0)
    for share in torch.linspace(0.49, 0.5, 41).tolist():
        out = ref32 + share * tolerance * (ref32 + 1.0)
        found = [
            compare([out], expected_of(exact, ref32), tolerance, full=full).status
            for full in (False, True)
        ]
        assert found[0] is found[1], share

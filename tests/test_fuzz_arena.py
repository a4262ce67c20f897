"""A hostile description of tensors: the oracle's reads stay inside, or it is refused."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgen.grading.correctness.form import form_problem
from kernelgen.grading.verdict import Status
from kernelgen.grading.wire.arena import HostArena
from kernelgen.grading.wire.messages import Tensors, Verified
from kernelgen.grading.wire.transport import deposit, fetch, receive
from kernelgen.grading.wire.tree import Entries, Items, Node, Opaque, Scalar, TensorLeaf, TensorSpec

FUZZ = settings(max_examples=300, deadline=None, derandomize=True, database=None)
CAPACITY_BYTES = 1 << 16
ARENA = HostArena(CAPACITY_BYTES)

WORD = st.sampled_from([-(1 << 63), -1, 0, 1, 2, 3, 8, 1 << 31, 1 << 40, 1 << 62, (1 << 63) - 1])
SIZE = st.integers(-2, 9) | WORD
DTYPES = [
    "float32",
    "float64",
    "bfloat16",
    "bool",
    "int64",
    "uint8",
    "complex64",
    "quint8",
    "bits8",
]
DTYPES += ["nn", "", "__name__", "float8_e4m3fn", "Tensor", "\0", "dtype"]
# Often a size that agrees with the shape, so that the reads behind the first check are reached.
SPECS = st.builds(
    lambda dtype, shape, stride, offset, nbytes: TensorSpec(
        dtype=dtype,
        shape=tuple(shape),
        stride=tuple(stride),
        device="cpu",
        offset=offset,
        nbytes=covered(dtype, shape, stride) if nbytes is None else nbytes,
    ),
    dtype=st.sampled_from(DTYPES[:6]) | st.sampled_from(DTYPES),
    shape=st.lists(SIZE, max_size=4),
    stride=st.lists(SIZE, max_size=4),
    offset=st.integers(-9, CAPACITY_BYTES + 9) | st.integers(0, 64) | WORD,
    nbytes=st.none() | st.none() | SIZE,
)


def covered(dtype: str, shape: list[int], stride: list[int]) -> int:
    """Return the bytes that a tensor of this form covers, if it is one."""
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype) or 0 in shape:
        return 0
    reach = sum((size - 1) * step for size, step in zip(shape, stride, strict=False))
    return (reach + 1) * kind.itemsize


@given(spec=SPECS)
@FUZZ
def test_a_fetched_tensor_lies_inside_the_arena(spec: TensorSpec) -> None:
    try:
        tensor = fetch(spec, ARENA, "cpu")
    except (ValueError, TypeError):
        return
    assert tuple(tensor.shape) == spec.shape
    assert tensor.numel() == 0 or 0 <= spec.offset <= CAPACITY_BYTES - spec.nbytes
    # The tensor read is the reader's own: no more than was described, none of it the arena's.
    assert tensor.untyped_storage().nbytes() == spec.nbytes
    if tensor.dtype in (torch.float32, torch.int64, torch.uint8) and tensor.numel() < 1 << 16:
        tensor.clone()


@given(specs=st.lists(SPECS, max_size=3), data=st.data())
@FUZZ
def test_a_received_value_is_whole_or_refused(specs: list[TensorSpec], data: st.DataObject) -> None:
    sent = Tensors(tree=data.draw(trees(len(specs))), specs=tuple(specs))
    try:
        incoming = receive(sent, ARENA, "cpu", [0] * len(specs))
        incoming.feed()
    except (ValueError, TypeError):
        return
    assert incoming.value is not sent


def trees(count: int) -> st.SearchStrategy[Node]:
    leaf: st.SearchStrategy[Node] = st.builds(TensorLeaf, st.integers(-2, count))
    leaf |= st.builds(Scalar, st.none() | st.integers() | st.text(max_size=4))
    leaf |= st.builds(Opaque, st.text(max_size=4))

    def around(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        items = st.lists(inner, max_size=3).map(tuple)
        keyed = st.lists(st.tuples(st.sampled_from("ab"), inner), max_size=2).map(tuple)
        return st.builds(Items, st.sampled_from(["list", "tuple"]), items) | st.builds(
            Entries, keyed
        )

    return st.recursive(leaf, around, max_leaves=6)


EXPECTED = deposit((torch.ones(2, 3), {"mean": torch.zeros(4)}, 2.5), None)
GOOD = deposit((torch.ones(2, 3), {"mean": torch.zeros(4)}, 2.5), ARENA)


@given(data=st.data())
@FUZZ
def test_a_forged_result_is_named_before_it_is_read(data: st.DataObject) -> None:
    specs = list(GOOD.specs)
    for _ in range(data.draw(st.integers(0, 2))):
        specs[data.draw(st.integers(0, len(specs) - 1))] = data.draw(SPECS)
    specs += data.draw(st.lists(SPECS, max_size=1))
    tree = data.draw(st.just(GOOD.tree) | trees(len(specs)))
    forged = Tensors(tree=tree, specs=tuple(specs))
    found = form_problem(forged, EXPECTED)
    if found is None:
        shapes = [spec.shape for spec in forged.specs]
        assert shapes == [spec.shape for spec in EXPECTED.specs]
        return
    assert found.status in {
        *(Status.TAMPERED, Status.WRONG_STRUCTURE, Status.WRONG_SHAPE, Status.WRONG_DTYPE)
    }
    assert found.reason


LONG = "x" * 1_000_000
FORM: dict[str, dict[str, Any]] = {
    "shape": {"shape": (1,) * 100_000},
    "dtype": {"dtype": LONG},
    "device": {"device": LONG},
}


@pytest.mark.parametrize("field", FORM)
def test_a_reason_quotes_no_more_than_a_person_reads(field: str) -> None:
    import msgspec

    first = msgspec.structs.replace(GOOD.specs[0], **FORM[field])
    assert_short(form_problem(Tensors(tree=GOOD.tree, specs=(first, GOOD.specs[1])), EXPECTED))


@pytest.mark.parametrize(
    "tree", [Scalar(LONG), Opaque(LONG), Items(LONG, ()), Entries(((LONG, Scalar(1)),))]
)
def test_a_structure_is_quoted_briefly(tree: Node) -> None:
    assert_short(form_problem(Tensors(tree=tree, specs=()), EXPECTED))


def assert_short(found: Verified | None) -> None:
    assert found is not None
    assert found.status is not Status.PASSED
    assert len(found.reason) < 2000


def test_overlapping_elements_are_read_without_more_memory() -> None:
    rows = 1 << 40
    spec = TensorSpec(dtype="uint8", shape=(rows,), stride=(0,), device="cpu", offset=0, nbytes=1)
    tensor = fetch(spec, ARENA, "cpu")
    assert tensor.numel() == rows
    assert tensor.untyped_storage().nbytes() == 1
    assert math.prod(tensor.shape) == rows

"""Values through the arena and back, and what an impossible description does."""

import itertools
from collections.abc import Callable, Iterator

import msgspec
import pytest
import torch

from kernelgen.grading.wire.arena import HostArena
from kernelgen.grading.wire.channel import CANDIDATE_LIMIT_BYTES
from kernelgen.grading.wire.messages import Tensors
from kernelgen.grading.wire.transport import (
    at_offset_0,
    deposit,
    fetch,
    look,
    receive,
    span,
    span_bytes,
    withdraw,
)
from kernelgen.grading.wire.tree import MAX_NODES, Items, Node, Opaque, TensorSpec, leaves


@pytest.fixture
def arena() -> HostArena:
    return HostArena(1 << 20)


def through(value: object, arena: HostArena, padding: int = 0) -> object:
    sent = deposit(value, arena)
    sent = msgspec.json.decode(msgspec.json.encode(sent), type=Tensors)
    incoming = receive(sent, arena, "cpu", [padding] * len(sent.specs), poison=True)
    incoming.feed()
    return incoming.value


@pytest.mark.parametrize("padding", [0, 512, 4096])
@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 5),
        torch.randn(3, 5).t(),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(10, 10)[2:7, 1::3],
        torch.randn(4, 1).expand(4, 6),
        torch.tensor(3.5),
        torch.empty(0, 7),
        torch.arange(5),
        torch.tensor([True, False]),
        torch.randn(8).to(torch.bfloat16),
        torch.nn.Parameter(torch.randn(3)),
    ],
)
def test_a_tensor_keeps_values_shape_strides_and_dtype(
    arena: HostArena, tensor: torch.Tensor, padding: int
) -> None:
    back = through(tensor, arena, padding)
    assert isinstance(back, torch.Tensor)
    assert back.dtype == tensor.dtype
    assert back.shape == tensor.shape
    assert back.numel() == 0 or back.stride() == tensor.stride()
    assert torch.equal(back, tensor)
    looked_at = look(deposit(tensor, arena, start=1024), arena)
    for one in (back, looked_at, at_offset_0(tensor.detach())):
        assert one.storage_offset() == 0
        assert one.untyped_storage().nbytes() == span_bytes(one)


def test_containers_and_scalars_come_back(arena: HostArena) -> None:
    value = [1, 2.5, None, "text", True, (3, [4]), {"key": 5}, float("inf")]
    assert through(value, arena) == value


def test_what_is_sent_is_a_copy(arena: HostArena) -> None:
    tensor = torch.ones(4)
    back = through(tensor, arena)
    tensor.fill_(7)
    assert isinstance(back, torch.Tensor)
    assert torch.equal(back, torch.ones(4))


def test_a_subclass_and_an_object_are_described_not_sent(arena: HostArena) -> None:
    class Lazy(torch.Tensor):
        pass

    sent = deposit([torch.ones(2).as_subclass(Lazy), object()], arena)
    assert isinstance(sent.tree, Items)
    assert [type(item) for item in sent.tree.items] == [Opaque, Opaque]
    with pytest.raises(TypeError, match="cannot be sent"):
        withdraw(sent, arena, "cpu")


@pytest.mark.parametrize(
    ("make", "shares"),
    [
        (lambda x: x, True),
        (lambda x: x.t()[1:, ::2], True),
        (torch._neg_view, True),  # noqa: SLF001
        (lambda x: torch.frombuffer(x.numpy(), dtype=x.dtype)[5:], True),
        (lambda x: x[:0], False),
        (lambda x: x.clone(), False),
    ],
    ids=["itself", "a part", "negated", "by its address", "nothing", "a copy"],
)
def test_memory_of_an_input_is_known(
    arena: HostArena, make: Callable[[torch.Tensor], torch.Tensor], *, shares: bool
) -> None:
    x, other = torch.rand(6, 5), torch.rand(3)
    outputs = [make(x), torch.rand(2)]
    sent = deposit(outputs, arena, pack=True, inputs=[other, x])
    assert [spec.of_input for spec in sent.specs] == [shares, False]


def test_what_does_not_fit_is_described_without_bytes() -> None:
    small = HostArena(4096)
    sent = deposit([torch.ones(8), torch.ones(10_000)], small)
    assert [spec.offset for spec in sent.specs] == [0, -1]


@pytest.mark.parametrize(
    "change",
    [
        {"offset": 1 << 20},
        {"offset": -8},
        {"nbytes": 1 << 19},
        {"shape": (1 << 40,)},
        {"shape": (-3,)},
        {"stride": (-1,)},
        {"stride": (1 << 40,)},
    ],
)
def test_a_description_outside_the_arena_is_refused(
    arena: HostArena, change: dict[str, object]
) -> None:
    spec = TensorSpec(dtype="float32", shape=(4,), stride=(1,), device="cpu", offset=0, nbytes=16)
    with pytest.raises(ValueError, match="inside the arena"):
        fetch(msgspec.structs.replace(spec, **change), arena, "cpu")


def test_a_dtype_that_is_none_is_refused(arena: HostArena) -> None:
    spec = TensorSpec(dtype="nn", shape=(4,), stride=(1,), device="cpu", offset=0, nbytes=16)
    with pytest.raises(TypeError, match="no dtype"):
        fetch(spec, arena, "cpu")


def test_a_span_covers_the_gaps() -> None:
    base = torch.arange(20.0)
    assert span(base[3:13:4]).numel() == 9 * 4


def test_a_peer_cannot_shrink_the_arena(arena: HostArena) -> None:
    import os

    with pytest.raises(PermissionError):
        os.ftruncate(arena.fd, 16)


def endless() -> list[object]:
    twice: list[object] = []
    twice += [twice, twice]
    return twice


class Endless(tuple[object, ...]):
    """A tuple that says of itself that it has no end."""

    __slots__ = ()

    def __iter__(self) -> Iterator[object]:
        return itertools.count()


# Results that a candidate may return, each of which no record of bounded length could hold whole.
TOO_LARGE: dict[str, tuple[Callable[[], object], str]] = {
    "list": (lambda: [0] * 1_000_000, "list of 1000000 items, where 10000 values in all"),
    "tuple": (lambda: (None,) * 20_000, "tuple of 20000 items"),
    "dict": (lambda: dict.fromkeys(map(str, range(20_000))), "dict of 20000 entries"),
    "list of lists": (lambda: [[0] * 200 for _ in range(200)], "list of 200 items"),
    "endless": (endless, "list of 2 items"),
    "text": (lambda: "\0" * 5_000_000, "text of 5000000 characters"),
    "texts": (lambda: ["\0" * 1000] * 9000, "text of 1000 characters"),
    "surrogate": (lambda: "\ud800", "text of 1 characters"),
    "key": (lambda: {"x" * 5_000_000: 1}, "builtins.dict"),
    "int": (lambda: 1 << 100_000, "int of 100001 bits"),
    "name": (type("n" * 5_000_000, (), {}), "nnn"),
    "dimensions": (lambda: [torch.empty((1,) * 64)] * 9000, "tensor of 64 dimensions"),
}


def opaque_in(node: Node) -> str:
    return " | ".join(leaf.type_name for _, leaf in leaves(node) if isinstance(leaf, Opaque))


@pytest.mark.parametrize(("make", "says"), TOO_LARGE.values(), ids=TOO_LARGE)
def test_what_is_too_large_is_said_to_be_and_fits_a_record(
    make: Callable[[], object], says: str, arena: HostArena
) -> None:
    sent = deposit(make(), arena)
    assert says in opaque_in(sent.tree)
    assert len(msgspec.json.encode(sent)) < CANDIDATE_LIMIT_BYTES


def test_as_many_values_as_are_looked_at_come_back(arena: HostArena) -> None:
    value = list(range(MAX_NODES))
    assert through(value, arena) == value
    assert isinstance(deposit([*value, 0], arena).tree, Opaque)


def test_a_tuple_is_what_it_holds_not_what_it_says(arena: HostArena) -> None:
    assert through(Endless((1, 2)), arena) == (1, 2)


def test_other_values_are_written_over_the_last_ones_uncounted(arena: HostArena) -> None:
    incoming = receive(deposit([torch.zeros(3, 4).t(), 7], arena), arena, "cpu", [512])
    incoming.feed()
    tensor = incoming.value[0]
    place = tensor.data_ptr(), tensor._version  # noqa: SLF001
    other = torch.randn(3, 4).t()
    again = incoming.again(deposit([other, 7], arena), arena)
    assert again is not None
    again.feed()
    assert again.value[0] is tensor
    assert torch.equal(tensor, other)
    assert (tensor.data_ptr(), tensor._version) == place  # noqa: SLF001


@pytest.mark.parametrize(
    "other", [[torch.zeros(4, 4), 7], [torch.zeros(3, 4), 7], [torch.zeros(3, 4).t(), 8]]
)
def test_what_has_another_form_is_not_written_over_the_last(
    arena: HostArena, other: list[object]
) -> None:
    incoming = receive(deposit([torch.zeros(3, 4).t(), 7], arena), arena, "cpu", [0])
    assert incoming.again(deposit(other, arena), arena) is None

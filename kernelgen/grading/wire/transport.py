"""Tensors into the arena and out of it again.

The receiver copies the bytes out before it uses them: it never computes with, or compares, memory
that the other side can write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch

from kernelgen.grading.wire.arena import Arena, Place, Places, flat_at
from kernelgen.grading.wire.messages import Placed, Tensors
from kernelgen.grading.wire.tree import TensorSpec, describe, rebuild

# Where a tensor may start: enough for any vector access and for a bulk copy's 128 bytes.
ALIGNMENT_BYTES = 512
GAPPED = 2
_POISON = 0xFF
_COMPARED_AT_ONCE = 1 << 27


def span_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of memory from a strided tensor's first element to its last."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def span(tensor: torch.Tensor) -> torch.Tensor:
    """Return the memory that a strided tensor covers as a flat uint8 tensor sharing it."""
    nbytes = span_bytes(tensor)
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    if nbytes == 0:
        return flat
    start = tensor.storage_offset() * tensor.element_size()
    return flat.set_(tensor.untyped_storage(), start, (nbytes,), (1,))


def overlap(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two strided tensors cover some of the same memory."""
    ours, theirs = tensor.data_ptr(), other.data_ptr()
    # Either covers nothing, or ends before the other begins, or not.
    return ours < theirs + span_bytes(other) and theirs < ours + span_bytes(tensor)


def at_offset_0(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same form that begins its memory and fills it, as a received one does.

    It is the tensor itself where that is so; else a copy.
    """
    if span_bytes(tensor) == tensor.untyped_storage().nbytes():
        return tensor
    tensor = tensor.resolve_neg()
    return span(tensor).clone().view(tensor.dtype).as_strided(tensor.shape, tensor.stride())


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two flat uint8 tensors of one length hold the same bytes."""
    # In parts, and in words where possible: the comparison makes a byte for each element.
    words = (torch.int64, torch.int32, torch.uint8)
    word = next(w for w in words if all(_divides(w.itemsize, tensor) for tensor in (one, other)))
    parts = (torch.split(tensor.view(word), _COMPARED_AT_ONCE) for tensor in (one, other))
    return all(torch.equal(mine, yours) for mine, yours in zip(*parts, strict=True))


def _divides(word_bytes: int, tensor: torch.Tensor) -> bool:
    return tensor.numel() % word_bytes == 0 and tensor.storage_offset() % word_bytes == 0


def aligned(nbytes: int) -> int:
    """Round a size up to where the next tensor may start."""
    return -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def arena_bytes(tensors: list[torch.Tensor], *, pack: bool = False) -> int:
    """Return the room that these tensors take in an arena, deposited with `pack` or without."""
    return sum(aligned(tensor.nbytes if pack else span_bytes(tensor)) for tensor in tensors)


def deposit(
    value: object,
    arena: Arena | None,
    *,
    pack: bool = False,
    start: int = 0,
    inputs: Sequence[torch.Tensor] = (),
) -> Tensors:
    """Describe a value and copy its tensors' bytes into the arena, as far as they fit.

    Without an arena, it is only described. The bytes go to `start`, a multiple of the alignment,
    and behind it. `pack` leaves out gaps between a tensor's elements: inputs keep theirs, which are
    part of what a candidate is tested on; of a result only the elements count. `inputs` are those
    of the call that made it.
    """
    specs: list[TensorSpec] = []
    cursor = start

    def put(tensor: torch.Tensor) -> int:
        nonlocal cursor
        of_input = any(overlap(tensor, one) for one in inputs)
        tensor = tensor.detach().resolve_neg()
        if pack and span_bytes(tensor) > tensor.nbytes:
            tensor = tensor.contiguous()
        nbytes = span_bytes(tensor)
        offset = -1
        here = arena is not None and tensor.device.type == arena.device
        if arena is not None and here and cursor + nbytes <= arena.capacity_bytes:
            offset = cursor
            if nbytes:
                arena.write(cursor, span(tensor))
                cursor += aligned(nbytes)
        specs.append(_spec_of(tensor, offset, of_input=of_input))
        return len(specs) - 1

    tree = describe(value, put)
    return Tensors(tree=tree, specs=tuple(specs))


def _spec_of(tensor: torch.Tensor, offset: int, *, of_input: bool) -> TensorSpec:
    return TensorSpec(
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        stride=tuple(tensor.stride()),
        device=tensor.device.type,
        offset=offset,
        nbytes=span_bytes(tensor),
        of_input=of_input,
    )


def locate(
    value: object, places: Places, kept: list[torch.Tensor], inputs: Sequence[torch.Tensor]
) -> Placed:
    """Describe a call's result and say where its tensors lie, moving a byte only where it has to.

    `kept` gets the tensors whose memory that is. On a CPU somebody reads all of it: one that takes
    more than GAPPED times its elements is packed.

    Raises:
        OSError: some of them lie where no other process can look.
    """
    specs: list[TensorSpec] = []
    blocks: list[str] = []

    def put(tensor: torch.Tensor) -> int:
        of_input = any(overlap(tensor, one) for one in inputs)
        tensor = tensor.detach().resolve_neg()
        if tensor.device.type != places.device:
            raise OSError(f"nobody else can look at a tensor on the {tensor.device.type}")
        if places.device == "cpu" and span_bytes(tensor) > GAPPED * tensor.nbytes:
            tensor = tensor.contiguous()
        kept.append(tensor)
        place = places.of(tensor) if tensor.numel() else Place(b"", 0)
        specs.append(_spec_of(tensor, place.offset, of_input=of_input))
        blocks.append(place.ipc_handle.hex())
        return len(specs) - 1

    tree = describe(value, put)
    return Placed(tensors=Tensors(tree=tree, specs=tuple(specs)), blocks=tuple(blocks))


def look(sent: Tensors, arena: Arena) -> Any:
    """Make the value again, its tensors in the arena itself; raises what `receive` raises."""
    tensors = []
    for spec in sent.specs:
        require_inside(spec, arena)
        tensors.append(_shaped(arena.view(max(spec.offset, 0), spec.nbytes), spec))
    return rebuild(sent.tree, tensors)


class Incoming(msgspec.Struct, frozen=True):
    """A value whose tensors have their memory but not yet their bytes.

    Attributes:
        value: the value.
        feed: copies the bytes in (on a GPU: enqueues that on the current stream).
        sent: what the other side deposited.
        memory: of each tensor.
    """

    value: Any
    feed: Callable[[], None]
    sent: Tensors
    memory: tuple[torch.Tensor, ...]

    def again(self, sent: Tensors, arena: Arena) -> Incoming | None:
        """Return the same tensors, to be fed with other bytes, or None if the form is another.

        Torch does not count that as a write in place: a kernel's is not counted either.
        """
        here, there = (
            [(spec.dtype, spec.shape, spec.stride, spec.nbytes) for spec in one.specs]
            for one in (self.sent, sent)
        )
        if self.sent.tree != sent.tree or here != there:
            return None
        for spec in sent.specs:
            require_inside(spec, arena)
        memory = tuple(one.data for one in self.memory)
        return Incoming(self.value, _feeding(sent, arena, memory), sent, self.memory)


def receive(
    sent: Tensors, arena: Arena, device: str, paddings: list[int], *, poison: bool = False
) -> Incoming:
    """Make the value again, its tensors in fresh memory of this process.

    `paddings`, in bytes and multiples of the alignment, move each tensor within its own allocation,
    so that equal sizes do not mean equal addresses. With `poison` every byte is 0xff (NaN as a
    float) until the value is fed.

    Raises:
        ValueError: a tensor does not lie inside the arena.
        TypeError: the value holds something that cannot be sent.
    """
    memory = tuple(
        _memory_for(spec, arena, device, padding)
        for spec, padding in zip(sent.specs, paddings, strict=True)
    )
    if poison:
        for bytes_of_one in memory:
            bytes_of_one.fill_(_POISON)
    tensors = [_shaped(*one) for one in zip(memory, sent.specs, strict=True)]
    return Incoming(rebuild(sent.tree, tensors), _feeding(sent, arena, memory), sent, memory)


def _feeding(sent: Tensors, arena: Arena, memory: tuple[torch.Tensor, ...]) -> Callable[[], None]:
    def feed() -> None:
        for spec, bytes_of_one in zip(sent.specs, memory, strict=True):
            if spec.nbytes:
                arena.read(spec.offset, bytes_of_one)

    return feed


def withdraw(sent: Tensors, arena: Arena, device: str) -> Any:
    """Make the value again and copy its bytes in; raises what `receive` raises."""
    return rebuild(sent.tree, [fetch(spec, arena, device) for spec in sent.specs])


def fetch(spec: TensorSpec, arena: Arena, device: str) -> torch.Tensor:
    """Copy one tensor out of the arena.

    Raises:
        ValueError: the spec does not describe memory inside the arena.
        TypeError: its dtype is none, or a size or a stride is no machine word.
    """
    memory = _memory_for(spec, arena, device, 0)
    if spec.nbytes:
        arena.read(spec.offset, memory)
    return _shaped(memory, spec)


def _memory_for(spec: TensorSpec, arena: Arena, device: str, padding: int) -> torch.Tensor:
    require_inside(spec, arena)
    whole = torch.empty(spec.nbytes + padding, dtype=torch.uint8, device=device)
    return flat_at(whole, padding, spec.nbytes)


def require_inside(spec: TensorSpec, arena: Arena) -> None:
    """Refuse, with ValueError or TypeError, what does not describe memory inside the arena."""
    dtype = dtype_of(spec)
    reach = sum((size - 1) * step for size, step in zip(spec.shape, spec.stride, strict=True))
    needed = 0 if 0 in spec.shape else (reach + 1) * dtype.itemsize
    inside = spec.nbytes == 0 or 0 <= spec.offset <= arena.capacity_bytes - spec.nbytes
    if min((*spec.shape, *spec.stride, 0)) < 0 or needed != spec.nbytes or not inside:
        raise ValueError("a tensor that does not lie inside the arena")


def _shaped(memory: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    dtype = dtype_of(spec)
    try:
        return memory.view(dtype).as_strided(spec.shape, spec.stride, 0)
    except (RuntimeError, OverflowError) as error:
        # Sizes and strides that lie inside the arena only because a dimension of 1 or 0 hides them.
        raise ValueError(f"a tensor that cannot be: {error}") from error


def dtype_of(spec: TensorSpec) -> torch.dtype:
    """Return the dtype that a description names; raises TypeError if there is none."""
    dtype = getattr(torch, spec.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{spec.dtype[:40]!r} is no dtype")
    return dtype

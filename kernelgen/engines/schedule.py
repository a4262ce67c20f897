"""Launch numbers and their legality: a schedule that exists can be compiled and launched.

Each number says which values `kernelgen tune` tries for it.
"""

from functools import cache, partial
from typing import Annotated, Any, get_args

import msgspec

_WARP = 32
_THREADS_LIMIT = 1024
_ITEMS_LIMIT = 32
_VECTOR = 4
_SLICE_LIMIT = 1 << 30
# Five warps of a block have other roles.
_RING_WORKERS = _THREADS_LIMIT - 5 * _WARP
# Three stages of both parts of more columns, beside 128 rows, are more than a block's memory.
_LEAST_COLUMNS, _HOPPER_COLUMNS = 16, 168
# Times all columns of tiles that memory has room for, it is still a number of 32 bits.
_GROUP_ROWS_LIMIT = 64
# That a block may have from sm_90 on.
_SHARED_BYTES = 227 << 10
# Beside a slot: its barriers, what is in it, the statistics; and what each warp has summed.
_BYTES_OF_SLOT = 80
_BYTES_OF_WARP = 16
_LINE_BYTES = 128


def tried(
    *values: int, least: int | None = None, most: int | None = None, of: int = 1
) -> msgspec.Meta:
    """Return the mark of a number for which these values are worth trying.

    It is a multiple of `of` from `least` to `most`, where that follows from no other number.
    """
    return msgspec.Meta(ge=least, le=most, multiple_of=of, extra={"tried": values})


_OF_BLOCK = partial(tried, least=_WARP, most=_THREADS_LIMIT, of=_WARP)
_OF_THREAD = partial(tried, least=_VECTOR, most=_ITEMS_LIMIT, of=_VECTOR)
_OF_TILE = partial(tried, least=_LEAST_COLUMNS, most=_HOPPER_COLUMNS, of=8)


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Launch numbers of a kernel; this one has none that anybody would change."""

    def __post_init__(self) -> None:
        for name, mark in _marks(type(self)).items():
            if mark.le is not None:
                _need_range(name, getattr(self, name), mark.ge, mark.le, of=mark.multiple_of)


class RingSchedule(Schedule, frozen=True, kw_only=True):
    """How blocks keep the slices of segments in rings of slots in shared memory.

    Attributes:
        sets: sets of workers of a block, which take turns.
        workers: threads of a set.
        vectors: of four values, that each worker has of a slot.
        slots: slices that a block can keep.
        ahead: slots that are being filled ahead of the workers.
        listeners: warps that wait for the statistics of a slice's segment; at most the sets.
    """

    sets: Annotated[int, tried(1, 2)] = 2
    workers: Annotated[int, _OF_BLOCK(128, 256, 512)] = 256
    vectors: Annotated[int, tried(2, 4, 5, 8, least=1, most=16)] = 4
    slots: Annotated[int, tried(7, 11, 13, 14)] = 14
    ahead: Annotated[int, tried(2, 3, 4, 5)] = 4
    listeners: Annotated[int, tried(1, 2)] = 1

    @property
    def slot_length(self) -> int:
        """Elements of a slot."""
        return self.workers * self.vectors * _VECTOR

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.workers.bit_count() != 1:
            raise ValueError(f"workers must be a power of two, not {self.workers}")
        _need_range("sets", self.sets, 1, _RING_WORKERS // self.workers)
        _need_range("slots", self.slots, self.sets + 2, 64)
        # Each set keeps a slice.
        _need_range("ahead", self.ahead, 1, self.slots - self.sets)
        # The end of the slices comes once for each set, and is heard of as often.
        _need_range("listeners", self.listeners, 1, self.sets)
        beside = self.slots * (_BYTES_OF_SLOT + self.workers // _WARP * _BYTES_OF_WARP)
        lines = -(-beside // _LINE_BYTES)  # the slots begin at a whole line
        kept = self.slots * self.slot_length * 4 + lines * _LINE_BYTES
        if kept > _SHARED_BYTES:
            raise ValueError(
                f"slots: {self.slots} slots of {self.workers} * {self.vectors} "
                f"vectors take {kept} bytes, and there are {_SHARED_BYTES}"
            )


class ColumnsSchedule(Schedule, frozen=True, kw_only=True):
    """How blocks keep fixed columns of all segments.

    Attributes:
        threads: that see the values; two more warps copy and join.
        ahead: chunks, a vector of each thread, that are being filled ahead of the threads.
    """

    threads: Annotated[int, _OF_BLOCK(256, 384, 448)] = 448
    ahead: Annotated[int, tried(2, 4, 5, 6, least=2, most=32)] = 5


class RegistersSchedule(Schedule, frozen=True, kw_only=True):
    """How a block holds a segment in registers.

    Attributes:
        items: values that a thread holds; 4 of them are one load.
    """

    items: Annotated[int, _OF_THREAD(4, 8, 16, 32)] = 16


class CacheSchedule(Schedule, frozen=True, kw_only=True):
    """How a block reads a segment twice, the second time from its L1 cache.

    Attributes:
        threads: of the block.
        items: values that a thread has on their way at once.
    """

    threads: Annotated[int, _OF_BLOCK(256, 512, 1024)] = 1024
    items: Annotated[int, _OF_THREAD(8, 16, 32)] = 32


class CppSchedule(Schedule, frozen=True, kw_only=True):
    """How segments are spread over the threads of a CPU.

    Attributes:
        batch: values that are summed in float at once; they stay in the L1 cache.
        slice: elements up to which one thread takes a whole segment, however few there are.
    """

    batch: Annotated[int, tried(64, 128, 256, 512, 1024, 2048, least=16, most=4096)] = 512
    slice: Annotated[int, tried(4096, 8192, 16384, 65536)] = 16384

    def __post_init__(self) -> None:
        super().__post_init__()
        _need_range("slice", self.slice, self.batch, _SLICE_LIMIT)


class ChainSchedule(Schedule, frozen=True, kw_only=True):
    """How a matrix product is spread over the blocks of a GPU.

    Attributes:
        tile_columns: of a tile, from 16 to 168.
        group_rows: tiles that are visited from top to bottom before those beside them.
    """

    tile_columns: Annotated[int, _OF_TILE(96, 112, 128, 144, 152, 160, 168)] = 168
    group_rows: Annotated[int, tried(4, 8, 16, least=1, most=_GROUP_ROWS_LIMIT)] = 8


class NarrowSchedule(ChainSchedule, frozen=True, kw_only=True):
    """The same of a product of 16-bit values, whose tiles have 128 or 256 columns."""

    tile_columns: Annotated[int, tried(128, 256, least=128, most=256, of=128)] = 256


class CppProductSchedule(Schedule, frozen=True, kw_only=True):
    """How a matrix product is cut for the caches of a CPU.

    Attributes:
        depth: of the pieces of both operands that are multiplied at once, in float; less of it is
            more accurate.
    """

    depth: Annotated[int, tried(32, 64, 128, 256, least=16, most=4096)] = 64


def tried_values(kind: type[Schedule]) -> dict[str, tuple[int, ...]]:
    """Return the values worth trying for each number of a schedule, in the order of the numbers."""
    return {name: mark.extra["tried"] for name, mark in _marks(kind).items()}


@cache
def _marks(kind: type[Schedule]) -> dict[str, Any]:
    return {field.name: get_args(field.type)[1] for field in msgspec.structs.fields(kind)}


def _need_range(name: str, value: int, least: int, most: int, *, of: int = 1) -> None:
    if value % of or not least <= value <= most:
        multiple = f"a multiple of {of} " if of > 1 else ""
        raise ValueError(f"{name} must be {multiple}from {least} to {most}, not {value}")

"""Launch numbers and their legality: a schedule that exists can be compiled and launched.

Each number says which values `kernelgen tune` tries for it; one without `tried` is never changed.
"""

from typing import Annotated, Any

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
_BYTES_OF_SLOT = 108
_BYTES_OF_WARP = 12
_LINE_BYTES = 128


def tried(*values: int) -> msgspec.Meta:
    """Return the mark of a number for which these values are worth trying."""
    return msgspec.Meta(extra={"tried": values})


class CudaSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """How segments are spread over blocks and threads.

    Attributes:
        threads: of a block that reads one slice of a long segment.
        items: values a thread holds in registers at once; 4 of them are one load.
        row_threads: most threads of a block that holds a whole segment in registers.
        cache_threads: most threads of a block that reads a whole segment twice, the second time
            from its L1 cache; none does where row_threads hold as much.
        rows_per_block: segments that share a block where one warp can hold a segment.
        min_slice: least elements of a slice, unless the segment has fewer.
        max_slice: most elements of a slice, unless the segment would have too many slices.
        target_blocks: slices shrink towards min_slice until there are about so many blocks.
        max_slices: most slices of a segment.
        map_threads: of a block that maps a tile of a long segment, one vector a thread.
        ring_sets: sets of workers of a block that keeps slices in a ring of slots in shared memory.
        ring_workers: threads of a set.
        ring_vectors: vectors of a slot that each worker has.
        ring_slots: slices that a block can keep.
        ring_ahead: slots that are being filled ahead of the workers.
        ring_long_ahead: the same, where a segment takes a third of all slots or more.
        ring_weights: most elements of a segment in rings where each has a weight of its own.
        ring_listeners: warps that wait for the statistics of a slice's segment; at most the sets.
        least_rings: multiprocessors of a device, at least, for rings: their slots hold a segment.
    """

    threads: Annotated[int, tried(128, 256, 512, 1024)] = 512
    items: Annotated[int, tried(4, 8, 16, 32)] = 16
    row_threads: Annotated[int, tried(256, 512, 640, 1024)] = 640
    cache_threads: Annotated[int, tried(32, 512, 1024)] = 1024
    rows_per_block: Annotated[int, tried(1, 2, 4, 8, 16)] = 4
    min_slice: Annotated[int, tried(1024, 4096, 16384)] = 4096
    max_slice: Annotated[int, tried(16384, 32768, 65536, 131072, 262144)] = 65536
    target_blocks: Annotated[int, tried(1024, 2048, 4096, 8192, 16384)] = 4096
    max_slices: Annotated[int, tried(256, 1024, 4096)] = 1024
    map_threads: Annotated[int, tried(128, 256, 512)] = 256
    ring_sets: Annotated[int, tried(1, 2)] = 2
    ring_workers: Annotated[int, tried(128, 256, 512)] = 256
    ring_vectors: Annotated[int, tried(2, 4, 5, 8)] = 4
    ring_slots: Annotated[int, tried(7, 11, 13, 14)] = 14
    ring_ahead: Annotated[int, tried(2, 3, 4, 5)] = 4
    ring_long_ahead: Annotated[int, tried(1, 2, 3)] = 2
    ring_weights: int = 2 << 20
    ring_listeners: Annotated[int, tried(1, 2)] = 1
    least_rings: int = 100

    def __post_init__(self) -> None:
        _need_block("threads", self.threads)
        _need_block("map_threads", self.map_threads)
        _need_block("row_threads", self.row_threads)
        _need_block("cache_threads", self.cache_threads)
        if self.items % _VECTOR or not _VECTOR <= self.items <= _ITEMS_LIMIT:
            raise ValueError(f"items must be a multiple of 4 from 4 to 32, not {self.items}")
        _need_range("rows_per_block", self.rows_per_block, 1, self.row_threads // _WARP)
        _need_slices(self.min_slice, self.max_slice)
        _need_range("target_blocks", self.target_blocks, 1, 1 << 24)
        _need_range("max_slices", self.max_slices, 1, 1 << 16)
        _need_block("ring_workers", self.ring_workers)
        if self.ring_workers.bit_count() != 1:
            raise ValueError(f"ring_workers must be a power of two, not {self.ring_workers}")
        _need_range("ring_sets", self.ring_sets, 1, _RING_WORKERS // self.ring_workers)
        _need_range("ring_vectors", self.ring_vectors, 1, 16)
        _need_range("ring_slots", self.ring_slots, self.ring_sets + 2, 64)
        # Each set keeps a slice.
        for name in ("ring_ahead", "ring_long_ahead"):
            _need_range(name, getattr(self, name), 1, self.ring_slots - self.ring_sets)
        # The end of the slices comes once for each set, and is heard of as often.
        _need_range("ring_listeners", self.ring_listeners, 1, self.ring_sets)
        _need_range("ring_weights", self.ring_weights, 1, _SLICE_LIMIT)
        _need_range("least_rings", self.least_rings, 1, 1024)
        slot = self.ring_workers * self.ring_vectors * 16
        beside = _BYTES_OF_SLOT + self.ring_workers // _WARP * _BYTES_OF_WARP
        kept = self.ring_slots * (slot + beside) + _LINE_BYTES  # slots begin at whole lines
        if kept > _SHARED_BYTES:
            raise ValueError(
                f"ring_slots: {self.ring_slots} slots of {self.ring_workers} * {self.ring_vectors} "
                f"vectors take {kept} bytes, and there are {_SHARED_BYTES}"
            )


class CppSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """How segments are spread over the threads of a CPU.

    Attributes:
        batch: values that are summed about their own mean at once; they stay in the L1 cache.
        slice: elements a thread takes at a time when there are few segments.
    """

    batch: Annotated[int, tried(64, 128, 256, 512, 1024, 2048)] = 512
    slice: Annotated[int, tried(4096, 8192, 16384, 65536)] = 16384

    def __post_init__(self) -> None:
        _need_range("batch", self.batch, 16, 4096)
        _need_range("slice", self.slice, self.batch, _SLICE_LIMIT)


class CudaProductSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """How a matrix product is spread over the blocks of a GPU.

    Attributes:
        wide_columns, narrow_columns: of a tile on Hopper; the kernel with whose tiles the device is
            done sooner is taken.
        group_rows: tiles that are visited from top to bottom before those beside them.
    """

    wide_columns: Annotated[int, tried(144, 152, 160, 168)] = 168
    narrow_columns: Annotated[int, tried(96, 112, 128)] = 128
    group_rows: Annotated[int, tried(4, 8, 16)] = 8

    def __post_init__(self) -> None:
        for name in ("wide_columns", "narrow_columns"):
            columns = getattr(self, name)
            if columns % 8 or not _LEAST_COLUMNS <= columns <= _HOPPER_COLUMNS:
                limit = f"a multiple of 8 from {_LEAST_COLUMNS} to {_HOPPER_COLUMNS}"
                raise ValueError(f"{name} must be {limit}, not {columns}")
        if self.narrow_columns >= self.wide_columns:
            raise ValueError("narrow_columns must be less than wide_columns")
        _need_range("group_rows", self.group_rows, 1, _GROUP_ROWS_LIMIT)


class CppProductSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """How a matrix product is cut for the caches of a CPU.

    Attributes:
        depth: of the pieces of both operands that are multiplied at once, in float; less of it is
            more accurate.
    """

    depth: Annotated[int, tried(32, 64, 128, 256)] = 64

    def __post_init__(self) -> None:
        _need_range("depth", self.depth, 16, 4096)


Schedule = CudaSchedule | CppSchedule | CudaProductSchedule | CppProductSchedule


def tried_values(kind: type[Schedule]) -> dict[str, tuple[int, ...]]:
    """Return the values worth trying for each number of a schedule, in the order of the numbers."""
    return {field.name: _tried(field.type) for field in msgspec.structs.fields(kind)}


def _tried(annotation: Any) -> tuple[int, ...]:
    marks = getattr(annotation, "__metadata__", ())
    extras = [mark.extra or {} for mark in marks if isinstance(mark, msgspec.Meta)]
    return next((extra["tried"] for extra in extras if "tried" in extra), ())


def _need_block(name: str, threads: int) -> None:
    if threads % _WARP or not _WARP <= threads <= _THREADS_LIMIT:
        raise ValueError(f"{name} must be a multiple of 32 from 32 to 1024, not {threads}")


def _need_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, not {value}")


def _need_slices(least: int, most: int) -> None:
    _need_range("min_slice", least, 1, _SLICE_LIMIT)
    _need_range("max_slice", most, least, _SLICE_LIMIT)

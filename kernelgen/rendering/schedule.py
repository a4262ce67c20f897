"""Launch numbers and their legality: a schedule that exists can be compiled and launched."""

import msgspec

_WARP = 32
_THREADS_LIMIT = 1024
_ITEMS_LIMIT = 32
_VECTOR = 4
_SLICE_LIMIT = 1 << 30


class CudaSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """How segments are spread over blocks and threads.

    Attributes:
        threads: of a block that works on one slice of a long segment.
        items: values a thread holds in registers at once; 4 of them are one load.
        row_threads: most threads of a block that holds a whole segment in registers.
        rows_per_block: segments that share a block where one warp can hold a segment.
        min_slice: least elements of a slice, unless the segment has fewer.
        max_slice: most elements of a slice, unless the segment would have too many slices.
        target_blocks: slices shrink towards min_slice until there are about so many blocks.
        max_slices: most slices of a segment.
    """

    threads: int = 512
    items: int = 16
    row_threads: int = 1024
    rows_per_block: int = 8
    min_slice: int = 4096
    max_slice: int = 65536
    target_blocks: int = 4096
    max_slices: int = 1024

    def __post_init__(self) -> None:
        _need_block("threads", self.threads)
        _need_block("row_threads", self.row_threads)
        if self.items % _VECTOR or not _VECTOR <= self.items <= _ITEMS_LIMIT:
            raise ValueError(f"items must be a multiple of 4 from 4 to 32, not {self.items}")
        _need_range("rows_per_block", self.rows_per_block, 1, self.row_threads // _WARP)
        _need_slices(self.min_slice, self.max_slice)
        _need_range("target_blocks", self.target_blocks, 1, 1 << 24)
        _need_range("max_slices", self.max_slices, 1, 1 << 16)


class CppSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """How segments are spread over the threads of a CPU.

    Attributes:
        batch: values that are summed about their own mean at once; they stay in the L1 cache.
        slice: elements a thread takes at a time when there are few segments.
    """

    batch: int = 512
    slice: int = 16384

    def __post_init__(self) -> None:
        _need_range("batch", self.batch, 16, 4096)
        _need_range("slice", self.slice, self.batch, _SLICE_LIMIT)


Schedule = CudaSchedule | CppSchedule


def _need_block(name: str, threads: int) -> None:
    if threads % _WARP or not _WARP <= threads <= _THREADS_LIMIT:
        raise ValueError(f"{name} must be a multiple of 32 from 32 to 1024, not {threads}")


def _need_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, not {value}")


def _need_slices(least: int, most: int) -> None:
    _need_range("min_slice", least, 1, _SLICE_LIMIT)
    _need_range("max_slice", most, least, _SLICE_LIMIT)

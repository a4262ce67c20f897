"""Kernels of norms: (form of the main case, architecture) to kernel and schedule.

A solution holds one fast kernel, written for the main case's shape, and one general kernel, which
takes whatever else the reference takes. Everything here is arithmetic on shapes: no GPU is asked.
"""

from typing import Literal

import msgspec

from kernelgen.planning.products.choice import (
    MULTIPROCESSORS,
    Architecture,
    ProductChoice,
    architecture,
    hopper_columns,
)
from kernelgen.planning.recognition.forms import SegmentNorm
from kernelgen.problem.schedules import CPU
from kernelgen.rendering.schedule import (
    CacheSchedule,
    ChainSchedule,
    ColumnsSchedule,
    CppProductSchedule,
    GeneralSchedule,
    RegistersSchedule,
    RingSchedule,
    Schedule,
)

NormKernel = Literal["rings", "columns", "registers", "cache", "none"]

_VECTOR = 4
_REGISTERS_LENGTH = 10240  # a block of 640 threads holds 16 values in each
_CACHE_LENGTH = 32768  # a block reads it, and most of it again, from its L1 cache
_RING_WEIGHTS = 2 << 20  # more would have left the L2 cache when the next segment needs them
_COLUMNS_OF_BLOCK = 18 * 448 * 4  # whose weights its threads hold in registers, 72 each
_RING_BLOCKS = 100  # of whose slots a segment may take all


class NormChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The fast kernel of a norm, and the shape that it is written for.

    Attributes:
        length: elements of a segment.
        inner: elements of a channel in a segment, if the affine map is by channel; else 0.
        channels: of a segment, likewise.
        groups: segments of a sample, likewise.
    """

    kernel: NormKernel
    length: int
    inner: int = 0
    channels: int = 0
    groups: int = 0


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The fast kernel of a CUDA solution, and its schedule."""

    norm: NormChoice
    schedule: Schedule


def choose(form: SegmentNorm, arch: Architecture) -> Choice:
    """Return the kernel for what a template computes in the main case, and its schedule."""
    elementwise = form.affine == "element"
    chosen = choose_norm(form.segments, form.length, elementwise=elementwise, arch=arch)
    norm = msgspec.structs.replace(
        chosen,
        kernel="none" if form.inner % _VECTOR else chosen.kernel,
        inner=form.inner,
        channels=form.channels,
        groups=form.groups,
    )
    return Choice(norm=norm, schedule=_norm_schedule(norm, arch))


def choose_norm(segments: int, length: int, *, elementwise: bool, arch: Architecture) -> NormChoice:
    """Return the kernel for segments of that length; `elementwise` ones have a weight an element.

    A segment goes into the registers of a block, or its L1 cache, or the shared memory of all
    blocks together: rings of slots, or fixed columns where the weights are too many for the cache.
    """
    kernel: NormKernel = "none"
    whole = length > 0 and length % _VECTOR == 0
    resident = arch != "sm_80" and segments * length % _VECTOR == 0
    slots = RingSchedule().slots * _RING_BLOCKS
    slot = RingSchedule().slot_length
    most_columns = MULTIPROCESSORS[arch] * _COLUMNS_OF_BLOCK
    if whole and length <= _REGISTERS_LENGTH:
        kernel = "registers"
    elif whole and length <= _CACHE_LENGTH:
        kernel = "cache"
    elif resident and elementwise and whole and _RING_WEIGHTS < length <= most_columns:
        kernel = "columns"
    elif (
        resident
        and length > _REGISTERS_LENGTH
        and length <= slots * slot
        and not (elementwise and (length > _RING_WEIGHTS or not whole))
    ):
        kernel = "rings"
    return NormChoice(kernel=kernel, length=length)


def _norm_schedule(norm: NormChoice, arch: Architecture) -> Schedule:
    match norm.kernel:
        case "rings":
            slices = -(-norm.length // RingSchedule().slot_length)
            is_long = 3 * slices > RingSchedule().slots * MULTIPROCESSORS[arch]
            return RingSchedule(ahead=2) if is_long else RingSchedule()
        case "columns":
            return ColumnsSchedule()
        case "registers":
            return RegistersSchedule()
        case "cache":
            return CacheSchedule()
        case "none":
            return GeneralSchedule()


def product_schedule(product: ProductChoice, arch: str) -> Schedule:
    """Return the schedule of a product's fast kernel, or of its C++."""
    if arch == CPU:
        return CppProductSchedule()
    if product.kernel == "hopper":
        return ChainSchedule(tile_columns=hopper_columns(product, architecture(arch)))
    return GeneralSchedule()


def written_for(choice: Choice, arch: str) -> str:
    """Return, as a sentence, what is fixed in a solution's fast kernel."""
    if choice.norm.kernel == "none":
        return "One kernel takes every input"
    size = f"segments of {choice.norm.length} elements, any number of them"
    return f"Written for {size}, on {arch}; other inputs take the general kernel"

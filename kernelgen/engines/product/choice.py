"""The choice of a product's kernel: shapes and an architecture to a kernel, without a GPU asked."""

import math
from itertools import pairwise
from typing import Literal

import msgspec

from kernelgen.engines.architectures import MULTIPROCESSORS, SIMPLE, Architecture
from kernelgen.engines.operators import NARROW
from kernelgen.graph.graph import MATRIX, TensorType

ProductKernel = Literal["hopper", "narrow", "skinny", "shallow", "vector", "none"]
Adjacent = Literal["depth", "rows", "neither"]

_VECTOR = 4  # of 16 bytes; 8 of 16-bit values
_NARROW_COLUMNS = 64  # up to which splitting both operands first takes longer, whatever the rows
_FEW_ROWS = 512  # from which on that pays
_LEAST_RATIO = 4  # of the rows of the two operands
_SKINNY_TILE = 128  # of the fewer rows, whose sums a warpgroup's registers hold
_SHALLOW_DEPTH = 64  # up to which writing the product is most of the work
_TILE_ROWS = 128  # of a block; two of them, one below the other, are a cluster on Hopper
# Columns -> time for each; the wider ones are faster where they fill the device as well.
_TILES = {"hopper": {168: 1.0, 128: 1.0}, "narrow": {256: 1.0, 128: 1.15}}
_LEAST_FILLED = 0.7  # of the device by tiles of 16-bit products; torch cuts up the depth of others
_STAGE_DEPTH = 64
_SHARE_STAGES = 8  # of a share of the depth, for which another block is worth it
_SHORT_DEPTH = 512
_LONG_DEPTH = 4096
_HELD_DEPTH = 16384  # that a block's registers, or a cluster's shared memory, hold of a row


class ProductChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The fast kernel of out = a @ b.T, and the shape that it is written for.

    Attributes:
        batches: of the main case; any number of them, and of rows, is as fast.
        rows: of a and of out.
        columns: of out; rows of b.
        depth: what is summed over.
        runs: equal ones of the whole depth, each of them a batch; their products are added up.
        a_adjacent, b_adjacent: along what an operand's neighbours in memory lie.
        a_vectors, b_vectors: whether four of them, eight of 16 bits, are always an aligned
            vector.
        promoted: how much of the depth tensor cores sum before their sum is rounded to fp32.
        splits: shares of the depth, each summed by another block, where there are few results.
        cut: whether the last two bits of lo are left out, which saves power in long sums.
        streamed: the operand that a skinny product reads once and splits on its way; the other
            has few rows.
        tile: rows of that other one that are multiplied at once.
        cluster: blocks that share them.
    """

    kernel: ProductKernel
    batches: int
    rows: int
    columns: int
    depth: int
    a_adjacent: Adjacent
    b_adjacent: Adjacent
    a_vectors: bool
    b_vectors: bool
    runs: int = 1
    promoted: int = 64
    splits: int = 1
    cut: bool = False
    streamed: Literal["a", "b"] = "a"
    tile: int = 0
    cluster: int = 1


def choose_product(
    a: TensorType, b: TensorType, arch: Architecture, *, adds_up: bool = False
) -> ProductChoice:
    """Return the kernel for a of shape (..., rows, depth) by b of shape (..., columns, depth).

    `adds_up` says that what calls it adds up the products of several runs of the depth.
    """
    rows, depth = a.shape[-2:]
    columns = b.shape[-2]
    batches = max(math.prod(a.shape[:-2]), math.prod(b.shape[:-2]))
    if len(b.shape) == MATRIX:  # one, by all rows of a
        rows, batches = rows * batches, 1
    narrow = a.dtype in NARROW
    vector = 2 * _VECTOR if narrow else _VECTOR
    a_adjacent, b_adjacent = _adjacent(a), _adjacent(b)
    if narrow:  # what a view cannot flatten is copied, in order
        whole = _flat(a, -1 if len(b.shape) == MATRIX else -2), _flat(b, -2)
        a_adjacent, b_adjacent = (
            one if flat else "depth"
            for one, flat in zip((a_adjacent, b_adjacent), whole, strict=True)
        )
    chosen = ProductChoice(
        kernel="none",
        batches=batches,
        rows=rows,
        columns=columns,
        depth=depth,
        a_adjacent=a_adjacent,
        b_adjacent=b_adjacent,
        a_vectors=(depth if a_adjacent == "depth" else rows) % vector == 0,
        b_vectors=(depth if b_adjacent == "depth" else columns) % vector == 0,
    )
    kernel = _narrow_kernel(chosen, arch) if narrow else _product_kernel(chosen, arch)
    if kernel == "none" and not narrow and adds_up and batches == 1:
        runs = _runs(depth)
        cut = msgspec.structs.replace(chosen, batches=runs, runs=runs, depth=depth // runs)
        kernel = _product_kernel(cut, arch)
        chosen = cut if kernel == "hopper" else chosen
    chosen = msgspec.structs.replace(chosen, kernel=kernel)
    if kernel == "skinny":
        return _skinny(chosen, arch)
    return _with_sums(chosen, arch) if kernel == "hopper" else chosen


def _runs(depth: int) -> int:
    """Return the fewest runs of whole stages that are held; 1 where a few more do not do."""
    least = max(1, -(-depth // _HELD_DEPTH))
    fit = (n for n in range(least, 2 * least) if depth % (n * _STAGE_DEPTH) == 0)
    return 1 if least == 1 else next(fit, 1)


def _adjacent(operand: TensorType) -> Adjacent:
    row_stride, depth_stride = operand.strides[-2:]
    if depth_stride == 1 or operand.shape[-1] == 1:
        return "depth"
    return "rows" if row_stride == 1 else "neither"


def _product_kernel(p: ProductChoice, arch: Architecture) -> ProductKernel:
    """Return the fast kernel of a product, `none` where the general one has to do."""
    if arch == SIMPLE:
        return "none"
    if p.columns == 1 and p.a_adjacent == "depth" and p.a_vectors:
        return "vector"
    if arch == "sm_90a" and _is_skinny(p):
        return "skinny"
    if "neither" in {p.a_adjacent, p.b_adjacent} or p.columns <= _NARROW_COLUMNS:
        return "none"
    if p.depth <= _SHALLOW_DEPTH:
        return "shallow" if p.columns % _VECTOR == 0 else "none"
    return "hopper" if arch == "sm_90a" and p.depth <= _HELD_DEPTH else "none"


def _narrow_kernel(p: ProductChoice, arch: Architecture) -> ProductKernel:
    """Return the kernel of 16-bit values, `none` where torch's is as fast."""
    own = msgspec.structs.replace(p, kernel="narrow")
    if arch != "sm_90a" or p.depth > _HELD_DEPTH or not (p.a_vectors and p.b_vectors):
        return "none"
    if "neither" in {p.a_adjacent, p.b_adjacent}:
        return "none"
    columns = tile_columns(own, arch)
    taken = _shared(own, columns, arch)[1] * MULTIPROCESSORS[arch] * _TILE_ROWS
    filled = p.batches * p.rows * p.columns * -(-p.depth // _STAGE_DEPTH) / taken
    return "narrow" if filled >= _LEAST_FILLED else "none"


def _flat(operand: TensorType, end: int) -> bool:
    """Whether the dimensions up to the end are one in memory."""
    sizes = zip(operand.shape[:end], operand.strides[:end], strict=True)
    return all(
        stride == other * count
        for (_, stride), (count, other) in pairwise(one for one in sizes if one[0] > 1)
    )


def _is_skinny(p: ProductChoice) -> bool:
    """Whether one operand has so few rows that the other is best split on its way."""
    few, many = sorted((p.rows, p.columns))
    adjacent, vectors = (
        (p.a_adjacent, p.a_vectors) if p.rows > p.columns else (p.b_adjacent, p.b_vectors)
    )
    is_few = few < _FEW_ROWS and few * _LEAST_RATIO <= many and p.depth > _SHALLOW_DEPTH
    return adjacent != "neither" and vectors and (is_few or p.columns <= _NARROW_COLUMNS)


def _shared(p: ProductChoice, tile_columns: int, arch: Architecture) -> tuple[int, int]:
    """Return in how many shares of the depth a device's clusters compute a product, at what cost.

    Each has a tile at a time. The cost is the columns of the tiles that one computes one after the
    other, times their stages.
    """
    clusters = MULTIPROCESSORS[arch] // 2
    tiles = p.batches * -(-p.rows // (2 * _TILE_ROWS)) * -(-p.columns // tile_columns)
    stages = -(-p.depth // _STAGE_DEPTH)
    apart = tiles > 0 and p.kernel != "narrow"
    shares = max(1, min(clusters // tiles, stages // _SHARE_STAGES)) if apart else 1
    share = -(-stages // shares)
    splits = -(-stages // share)
    return splits, -(-tiles * splits // clusters) * share * tile_columns


def tile_columns(p: ProductChoice, arch: Architecture) -> int:
    """Return the columns of the tiles with which a device is done sooner."""
    tiles = _TILES[p.kernel]
    return min(tiles, key=lambda columns: _shared(p, columns, arch)[1] * tiles[columns])


def _with_sums(p: ProductChoice, arch: Architecture) -> ProductChoice:
    """Return the choice with how its sums are formed.

    Tensor cores truncate their sums. Short sums have no other error to hide theirs; long ones are
    limited by power, and rounded less often.
    """
    splits, _ = _shared(p, tile_columns(p, arch), arch)
    is_long = p.depth >= _LONG_DEPTH and splits == 1
    promoted = 32 if p.depth <= _SHORT_DEPTH else 128 if is_long else 64
    return msgspec.structs.replace(p, promoted=promoted, splits=splits, cut=is_long)


def _skinny(p: ProductChoice, arch: Architecture) -> ProductChoice:
    """Return a skinny product with its tiles, and the shares of the depth that keep blocks busy."""
    few, many = sorted((p.rows, p.columns))
    tile = min(_SKINNY_TILE, -(-few // 16) * 16)
    cluster = 2 if many > _TILE_ROWS else 1
    tiles = p.batches * -(-many // (cluster * _TILE_ROWS)) * -(-few // tile)
    stages = -(-p.depth // _STAGE_DEPTH)
    blocks = MULTIPROCESSORS[arch] // cluster

    def cost(splits: int) -> int:
        return -(-tiles * splits // blocks) * (-(-stages // splits) + 2)

    splits = min(range(1, max(2, stages // _SHARE_STAGES)), key=cost)
    return msgspec.structs.replace(
        p,
        streamed="a" if p.rows > p.columns else "b",
        tile=tile,
        cluster=cluster,
        splits=-(-stages // -(-stages // splits)),
        promoted=32 if p.depth <= _SHORT_DEPTH else 64,
    )

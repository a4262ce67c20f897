"""Tables of a convolution on tensor cores: which taps read where, and in which order."""

from itertools import pairwise, product
from math import gcd, prod
from typing import NamedTuple

from kernelgen.engines.convolution.record import Geometry, Three

STAGE_DEPTH = 32  # of K, after which sums of halves' products are promoted
_LONG_STAGE = 64  # of values that are multiplied as they are
_MOST_DEPTH = 1 << 14  # that tensor cores sum, of which they cut off little beside a rounding
_CHUNK = 8  # channels of a tap that are neighbours along K
_ROWS = 128  # of a tile, or half of them
_POSITIONS = 128  # of a stage, which its pixels and their shifts read
_HALO = 8  # of these, at most, that only shifts read
_MOST_SHIFTS = 3  # whose filters have room in a stage
_FILLING = 0.5  # of the time of a stage's products, what filling it takes
_MOST_BYTES = 226 << 10  # of shared memory
_MULTIPROCESSORS = 132  # of an H100
_BYTES_OF_PIXEL = 512  # of results that two warpgroups write
_MOST_STAGES = 4
_MOST_WIDE = 4096  # warps' pixels that are computed again one by one
_MOST_PLACES = 32  # of taps in a dimension: bits of a mask
_MOST_TABLE = 60 << 10  # bytes of constant memory
_MOST_DIRECT_TAPS = 49  # a thread holds them
_MOST_READS = 128  # of a thread, unrolled
# Of a multiprocessor of an H200: 32 of K of a row, times 128 pixels, at 2,048 products a cycle;
# results are written at 20 bytes a cycle. Stages and tiles wait for each other.
_ROW_CYCLES = 2
_PRODUCTS_OF_HALVES = 3
RESULT_CYCLES = 0.2
_WAITING = 1.4
_CYCLES_PER_SECOND = 1.75e9
_LAUNCHES = 2.5e-5  # seconds of the kernels before and after, and of the host


class Reach(NamedTuple):
    """A distance from a pixel at which taps read, -1 for a neighbour of out without."""

    distance: int
    taps: tuple[int, ...]


class Tap(NamedTuple):
    """A row of the kernel's table of taps, of which some shifts along the width are one.

    Attributes:
        offset: from a pixel to what the first shift reads.
        d, h, w: numbers of the distances.
        weights: for each shift, that of each neighbour of out.
    """

    offset: int
    d: int
    h: int
    w: int
    weights: tuple[int, ...]


class Phase(NamedTuple):
    """A row of the kernel's table of phases."""

    first_tap: int
    taps: int
    blocks: int
    first_block: int
    d: int
    h: int
    w: int


class Tiling(NamedTuple):
    """Constants of the kernel.

    Attributes:
        rows: of a tile: filters, each with its residues.
        residues: neighbouring results that a filter has rows for, 1, 2, 4 or 8: those of a stride
            of two of a transposed convolution along the width, the height and the depth.
        columns: of a tile: pixels.
        chunk: channels that are neighbours along K.
        shifts, step: taps along the width that read the same values, so many pixels apart.
        padded: whether taps can read outside of the input.
        lattice: pixels of an image: results, or those of a phase, and what shifts reach beyond.
        width: of the lattice without that.
        distances: of a dimension's taps from a pixel, by number.
        at_once: tiles of pixels that go through all phases before the next do, so many as blocks
            compute at once: phases write parts of the same sectors, and read the same input. Of
            values that are multiplied as they are, pairs of tiles.
        blocks: stages of K of all phases.
        whole: whether each phase fills its stages.
        plane: elements of a channel of the input.
        stages: that a ring holds.
        some: pixels of a tile that are written at once.
        pad: pixels between their lines in shared memory.
        pairs: whether neighbours along the width are written together.
        depth: of a stage.
        parts: of a value in shared memory: hi and lo, or the value itself. Of the latter, a stage
            has the pixels of two tiles, for which filters are read once.
        repairs: whether some results are computed again: of what the halves do not hold, or of
            products of inf with a tap that some neighbours of out lack.
        workspace: bytes.
    """

    rows: int
    residues: int
    columns: int
    chunk: int
    shifts: int
    step: int
    padded: bool
    lattice: tuple[int, int, int]
    width: int
    distances: tuple[tuple[int, ...], ...]
    taps: tuple[Tap, ...]
    phases: tuple[Phase, ...]
    filter_tiles: int
    at_once: int
    blocks: int
    whole: bool
    plane: int
    stages: int
    some: int
    pad: int
    pairs: bool
    most_wide: int
    depth: int
    parts: int
    repairs: bool
    workspace: int

    @property
    def image_pixels(self) -> int:
        """Pixels of an image, and those that only shifts read."""
        return prod(self.lattice)

    @property
    def partials(self) -> int:
        """Lines of the same pixels that are gathered each for itself, of a group of filters."""
        return len(self.phases) * self.filter_tiles * self.rows // min(self.residues, 2)

    @property
    def cycles(self) -> float:
        """Cycles of a multiprocessor for products of a tile's pixels, of all filters of a group."""
        products = _PRODUCTS_OF_HALVES if self.parts > 1 else 1
        depth = self.blocks * self.depth // STAGE_DEPTH
        return depth * self.filter_tiles * self.shifts * self.rows * _ROW_CYCLES * products

    def pixel_tiles(self, images: int) -> int:
        """Return the tiles of so many images' pixels, for all filters of a group."""
        return -(-images * prod(self.lattice) // self.columns) * self.filter_tiles

    def seconds(self, images: int, groups: int) -> float:
        """Return about how long an H200 takes, of whose multiprocessors some may have no tile."""
        items = groups * self.pixel_tiles(images) * len(self.phases)
        at_once = _ROWS // self.rows if self.parts > 1 else 2  # of a multiprocessor
        turns = -(-items // (_MULTIPROCESSORS * at_once))
        own = self.cycles / (self.filter_tiles * len(self.phases))
        own += self.columns * self.rows * RESULT_CYCLES
        return _LAUNCHES + turns * at_once * own * _WAITING / _CYCLES_PER_SECOND


def tiling_of(
    g: Geometry, window: Three = (1, 1, 1), *, all_filters: bool = False, stored: bool = True
) -> Tiling | None:
    """Return the constants for a convolution; None if its tables or indexes are too large.

    A line of pixels, or a tile's neighbours of out, have whole windows, a tile all filters where
    these have to be together. Results that are not stored take no shared memory.
    """
    steps = g.stride if g.transposed else (1, 1, 1)
    all_neighbours = max(steps) > 1 and prod(window) > 1
    places = [-(-size // step) for size, step in zip(g.output, steps, strict=True)]
    residues = 1
    for step in reversed(steps):
        beyond = 2 * residues * g.filters > _ROWS and not all_neighbours
        if step != 2 or (beyond and (residues > 1 or all_filters)):  # noqa: PLR2004
            break
        residues *= 2
    beside = residues.bit_length() - 1  # dimensions with neighbours in a tile
    by_dim = [phases_of(g, dim, together=dim >= 3 - beside) for dim in range(3)]
    shifts, step = _shifts(g, by_dim[2])
    groups = [_groups(phase, shifts) for phase in by_dim[2]]
    firsts = [[group[0] for group in found] for found in groups]
    distances = tuple(
        tuple(sorted({one.distance for phase in phases for one in phase}))
        for phases in (by_dim[0], by_dim[1], firsts)
    )
    needed = g.filters * residues
    rows = _ROWS if 2 * needed > _ROWS else _ROWS // 2
    chunk = _CHUNK if g.channels % _CHUNK == 0 else 1
    taps: list[Tap] = []
    phases: list[Phase] = []
    blocks = 0
    depths, heights = ([len(one) for one in of] for of in by_dim[:2])  # of taps
    counts = product(depths, heights, [len(one) for one in groups])
    depth = _stage_depth(g, rows, [*map(prod, counts)])
    for z, y, x in product(*map(range, map(len, by_dim))):
        reaches = product(by_dim[0][z], by_dim[1][y], groups[x])
        found = [_tap(g, distances, *three) for three in reaches]
        own = -(-g.channels * len(found) // depth)
        phases.append(Phase(len(taps), len(found), own, blocks, z, y, x))
        taps += found
        blocks += own
    parts = 1 if g.is_narrow else 2
    repairs = not g.is_narrow or any(-1 in tap.weights for tap in taps)
    filter_tiles = -(-needed // rows)
    tiles = g.groups * filter_tiles
    part = rows * depth * 2  # bytes of hi or lo
    workspace = tiles * blocks * shifts * parts * part
    workspace += tiles * len(phases) * rows * 4 if parts > 1 else 0
    workspace += 4 + 4 * _MOST_WIDE if repairs else 0
    stage_bytes = parts * shifts * part + 2 * _POSITIONS * depth * 2
    columns = _POSITIONS - (_HALO if shifts > 1 else 0)
    rings = 1 if g.is_narrow else _ROWS // rows
    stages, some = _memory(rings * stage_bytes, columns if stored else 0)
    pairs = g.output[2] % 2 == 0 and (residues > 1 or steps[2] == 1)
    line = places[2] + (shifts - 1) * step
    whole = max(window[2], 1 + pairs) if residues == 1 else 1
    lattice = (places[0], places[1], line + -line % whole)
    spanned = 2 + _POSITIONS // prod(lattice)
    if (
        len(taps) * 4 * (4 + shifts * residues) > _MOST_TABLE
        or max(map(len, distances)) > _MOST_PLACES
        or g.groups * g.filters * prod(g.output) * spanned >= 1 << 31
        or g.groups * g.channels * prod(g.input) >= 1 << 31
        or (g.is_narrow and g.channels * prod(g.kernel) > _MOST_DEPTH)
    ):
        return None
    return Tiling(
        rows=rows,
        residues=residues,
        columns=columns,
        chunk=chunk,
        shifts=shifts,
        step=step,
        padded=is_padded(g, lattice, distances),
        lattice=lattice,
        width=places[2],
        distances=distances,
        taps=tuple(taps),
        phases=tuple(sorted(phases, key=lambda phase: -phase.blocks)),  # the longest first
        filter_tiles=filter_tiles,
        at_once=max(1, _MULTIPROCESSORS * rings // (tiles * len(phases))),
        blocks=blocks,
        whole=all(g.channels * one.taps % depth == 0 for one in phases),
        plane=prod(g.input),
        stages=stages,
        some=some,
        pad=_pad(some),
        pairs=pairs,
        most_wide=_MOST_WIDE,
        depth=depth,
        parts=parts,
        repairs=repairs,
        workspace=workspace,
    )


def _stage_depth(g: Geometry, rows: int, taps: list[int]) -> int:
    """Return the depth of a stage, of phases with so many taps.

    Of few rows, stages of values that are multiplied as they are take longer to read than to
    multiply, so that threads hold as many of the next stage as they can.
    """

    def filled(depth: int) -> int:
        return sum(-(-g.channels * one // depth) * depth for one in taps)

    long = g.is_narrow and rows < _ROWS and filled(_LONG_STAGE) <= filled(STAGE_DEPTH)
    return _LONG_STAGE if long else STAGE_DEPTH


def _memory(stage_bytes: int, columns: int) -> tuple[int, int]:
    """Return how many stages a block holds, and how many pixels of a tile it writes at once."""
    for some in (columns, min(columns, _POSITIONS // 2)):
        stages = (_MOST_BYTES - (some + _pad(some)) * _BYTES_OF_PIXEL) // stage_bytes
        if stages > 1:
            break
    return min(stages, _MOST_STAGES), some


def _pad(some: int) -> int:
    """Return how many pixels keep eight lines, beside each other, off the same banks."""
    return 0 if some % 16 or not some else 8


def phases_of(g: Geometry, dim: int, *, together: bool) -> list[list[Reach]]:
    """Return, for each result of a stride or for all together, where taps of a dimension read."""
    taps = range(g.kernel[dim])
    padding, dilation, stride = g.padding[dim], g.dilation[dim], g.stride[dim]
    if not g.transposed:
        return [[Reach(tap * dilation - padding, (tap,)) for tap in taps]]
    found: list[dict[int, int]] = []
    for result in range(stride):
        at = [(result + padding - tap * dilation, tap) for tap in taps]
        found.append({far // stride: tap for far, tap in at if far % stride == 0})
    if not together:
        return [[Reach(far, (tap,)) for far, tap in sorted(phase.items())] for phase in found]
    both = sorted(set().union(*found))
    return [[Reach(far, tuple(phase.get(far, -1) for phase in found)) for far in both]]


def _shifts(g: Geometry, phases: list[list[Reach]]) -> tuple[int, int]:
    """Return how many taps along the width read the same values, and how far apart they are.

    A stage for several is filled once, and as many products are made of it for each of its taps,
    of which the last ones may be missing.
    """
    gaps = {after.distance - before.distance for one in phases for before, after in pairwise(one)}
    is_dense = g.transposed or g.stride[2] == 1
    if len(gaps) != 1 or not is_dense:
        return 1, 1
    (step,) = gaps
    possible = [n for n in range(1, _MOST_SHIFTS + 1) if (n - 1) * step <= _HALO]

    def cost(shifts: int) -> float:
        groups = sum(-(-len(phase) // shifts) for phase in phases)
        return groups * (shifts + _FILLING)

    return min(reversed(possible), key=cost), step


def _groups(phase: list[Reach], shifts: int) -> list[list[Reach]]:
    """Return taps along the width in groups of as many, of which the last may have missing ones."""
    groups = [phase[first : first + shifts] for first in range(0, len(phase), shifts)]
    return [
        [*group, *[Reach(0, (-1,) * len(group[0].taps))] * (shifts - len(group))]
        for group in groups
    ]


def _tap(
    g: Geometry, distances: tuple[tuple[int, ...], ...], d: Reach, h: Reach, group: list[Reach]
) -> Tap:
    near = (d.distance, h.distance, group[0].distance)
    places = [of.index(one) for of, one in zip(distances, near, strict=True)]
    _, height, width = g.kernel
    weights = [
        -1 if min(taps) < 0 else (taps[0] * height + taps[1]) * width + taps[2]
        for w in group
        for taps in product(d.taps, h.taps, w.taps)
    ]
    offset = (near[0] * g.input[1] + near[1]) * g.input[2] + near[2]
    return Tap(offset, places[0], places[1], places[2], tuple(weights))


def is_padded(
    g: Geometry, lattice: tuple[int, ...], distances: tuple[tuple[int, ...], ...]
) -> bool:
    """Whether some tap of some pixel reads outside of the input."""
    steps = (1, 1, 1) if g.transposed else g.stride
    return any(
        found and (found[0] < 0 or (pixels - 1) * step + found[-1] >= size)
        for found, pixels, step, size in zip(distances, lattice, steps, g.input, strict=True)
    )


class Strips(NamedTuple):
    """Constants of the kernel for filters of one channel.

    Attributes:
        strip: results of a thread, neighbours along the height.
        lines: of the input that these read, `pitch` apart.
    """

    strip: int
    lines: int
    pitch: int


def strips_of(g: Geometry) -> Strips | None:
    """Return the constants for filters of one channel; None where they would not suit."""
    taps = prod(g.kernel)
    if g.transposed or g.channels > 1 or g.input[0] * g.kernel[0] > 1 or taps > _MOST_DIRECT_TAPS:
        return None
    pitch = gcd(g.stride[1], g.dilation[1])
    for strip in (8, 4, 2, 1):
        lines = ((strip - 1) * g.stride[1] + (g.kernel[1] - 1) * g.dilation[1]) // pitch + 1
        if strip <= g.output[1] and (lines * g.kernel[2] <= _MOST_READS or strip == 1):
            return Strips(strip, lines, pitch)
    return None

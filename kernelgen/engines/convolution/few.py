"""Tables of a convolution of few channels to few filters, whose sums a thread holds."""

from itertools import product
from math import prod
from typing import NamedTuple

from kernelgen.engines.convolution.record import Geometry, Three
from kernelgen.engines.convolution.tiling import Reach, is_padded, phases_of

_WARP = 32
_THREADS = 128
_FOUR = 4  # filters, whose weights are read at once
_MOST_CHANNELS = 4
_MOST_FILTERS = 24
_MOST_SUMS = 128  # of a thread, where it has one pixel
_SUMS = 96  # of a thread, where it has several pixels
_MOST_PIXELS = 4
_MOST_DEPTH = 256  # channels' taps, which are summed up in fp32
_MOST_COPIED = 12  # values, by a thread at once
_LEAST_SHARE = 0.9  # of threads that have pixels
_MOST_PLACES = 10  # of taps in a dimension: bits of a mask


class Neighbour(NamedTuple):
    """A value of a channel that a pixel's sums read.

    Attributes:
        offset: from the pixel.
        needs: bits of the places that have to exist.
        sums: residues of the results that it goes to, each with its tap.
    """

    offset: int
    needs: int
    sums: tuple[tuple[int, int], ...]


class Few(NamedTuple):
    """Constants of the kernel.

    Attributes:
        pixels: of a thread.
        filters: whole fours.
        steps: results of a pixel along each dimension, which are a transposed one's residues.
        lattice: pixels of an image.
        distances: of a dimension's taps from a pixel.
        padded: whether taps can read outside of the input.
        staged: whether a block copies what its pixels read. Where a value is for many neighbours of
            out, that takes longer than to read it.
        reach, span: elements of a plane that a pixel reads of, and a block's pixels.
        first: offset of the first that is read.
        neighbours: what a pixel of several results reads.
    """

    pixels: int
    filters: int
    steps: Three
    lattice: tuple[int, ...]
    distances: tuple[tuple[int, ...], ...]
    padded: bool
    staged: bool
    reach: int
    span: int
    first: int
    neighbours: tuple[Neighbour, ...]

    @property
    def image_pixels(self) -> int:
        """Pixels of an image's blocks."""
        return -(-prod(self.lattice) // self.block) * self.block

    @property
    def block(self) -> int:
        """Pixels of a block."""
        return _THREADS * self.pixels

    @property
    def columns(self) -> int:
        """Pixels of a warp."""
        return _WARP * self.pixels

    @property
    def partials(self) -> int:
        """Lines of the same pixels that are gathered each for itself."""
        return self.filters

    @property
    def residues(self) -> int:
        """Results of a pixel and a filter."""
        return prod(self.steps)


def few_of(g: Geometry) -> Few | None:
    """Return the constants for a convolution; None if a thread can't hold all sums of a pixel."""
    steps = g.stride if g.transposed else (1, 1, 1)
    filters = -(-g.filters // _FOUR) * _FOUR
    sums = filters * prod(steps)
    few = g.groups == 1 and g.channels <= _MOST_CHANNELS and filters <= _MOST_FILTERS
    if not few or sums > _MOST_SUMS or g.channels * prod(g.kernel) > _MOST_DEPTH:
        return None
    if max(filters * prod(g.output), g.channels * prod(g.input)) >= 1 << 31:
        return None
    reaches = [phases_of(g, dim, together=True)[0] for dim in range(3)]
    distances = tuple(tuple(one.distance for one in of) for of in reaches)
    lattice = tuple(-(-size // step) for size, step in zip(g.output, steps, strict=True))
    if max(map(len, distances)) > _MOST_PLACES:
        return None
    pixels = _pixels_of(prod(lattice), min(_MOST_PIXELS, max(1, _SUMS // sums)))
    rows, columns = g.input[1:]
    places = [h * columns + w for h, w in product(*distances[1:])]
    reach = max(places) - min(places) + 1
    between = _between(g, lattice, _THREADS * pixels)
    return Few(
        pixels=pixels,
        filters=filters,
        steps=steps,
        lattice=lattice,
        distances=distances,
        padded=is_padded(g, lattice, distances),
        staged=prod(steps) == 1 and 0 <= between <= _MOST_COPIED * _THREADS - reach,
        reach=reach,
        span=between + reach,
        first=distances[0][0] * rows * columns + min(places),
        neighbours=tuple(_neighbour(g, steps, one) for one in product(*map(enumerate, reaches))),
    )


def _pixels_of(image: int, most: int) -> int:
    """Return how many pixels a thread has: the most that leave few threads without any."""

    def share(pixels: int) -> float:
        block = _THREADS * pixels
        return image / (-(-image // block) * block)

    counts = range(1, most + 1)
    return max((n for n in counts if share(n) > _LEAST_SHARE), default=max(counts, key=share))


def _between(g: Geometry, lattice: tuple[int, ...], block: int) -> int:
    """Return how far the last pixel of a block is from its first one, in the input.

    It is -1 where a pixel that comes later is not always further on.
    """
    steps = (1, 1, 1) if g.transposed else g.stride
    depth, height, width = (steps[dim] * prod(g.input[dim + 1 :]) for dim in range(3))

    def start(pixel: int) -> int:
        line, x = divmod(pixel, lattice[2])
        z, y = divmod(line, lattice[1])
        return z * depth + y * height + x * width

    image, line = prod(lattice), lattice[2]
    plane = lattice[1] * line
    if (line < plane and start(line - 1) >= height) or (
        plane < image and start(plane - 1) >= depth
    ):
        return -1
    return max(start(min(at + block, image) - 1) - start(at) for at in range(0, image, block))


def _neighbour(g: Geometry, steps: Three, three: tuple[tuple[int, Reach], ...]) -> Neighbour:
    _, height, width = g.kernel
    d, h, w = (reach.distance for _, reach in three)
    taps = product(*(enumerate(reach.taps) for _, reach in three))
    return Neighbour(
        offset=(d * g.input[1] + h) * g.input[2] + w,
        needs=sum(1 << (dim * _MOST_PLACES + at) for dim, (at, _) in enumerate(three)),
        sums=tuple(
            ((z * steps[1] + y) * steps[2] + x, (of_d * height + of_h) * width + of_w)
            for (z, of_d), (y, of_h), (x, of_w) in taps
            if min(of_d, of_h, of_w) >= 0
        ),
    )

"""Tables of a convolution of few channels to few filters, whose sums a thread holds."""

from itertools import product
from math import prod
from typing import NamedTuple

from kernelgen.engines.convolution.record import Geometry, Three
from kernelgen.engines.convolution.tiling import Reach, is_padded, phases_of

_WARP = 32
_FOUR = 4  # filters, whose weights are read at once
_MOST_CHANNELS = 4
_MOST_FILTERS = 24
_MOST_SUMS = 128  # of a thread, where it has one pixel
_SUMS = 64  # of a thread, where it has several
_MOST_DEPTH = 256  # channels' taps, which are summed up in fp32
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
    """

    pixels: int
    filters: int
    steps: Three
    lattice: tuple[int, ...]
    distances: tuple[tuple[int, ...], ...]
    padded: bool
    neighbours: tuple[Neighbour, ...]

    @property
    def image_pixels(self) -> int:
        """Pixels of an image."""
        return prod(self.lattice)

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
    return Few(
        pixels=max(1, _SUMS // sums),
        filters=filters,
        steps=steps,
        lattice=lattice,
        distances=distances,
        padded=is_padded(g, lattice, distances),
        neighbours=tuple(
            _neighbour(g, steps, three) for three in product(*map(enumerate, reaches))
        ),
    )


def _neighbour(g: Geometry, steps: Three, three: tuple[tuple[int, Reach], ...]) -> Neighbour:
    (_, height, width), (_, rows, columns) = g.kernel, g.input
    d, h, w = (reach.distance for _, reach in three)
    taps = product(*(enumerate(reach.taps) for _, reach in three))
    return Neighbour(
        offset=(d * rows + h) * columns + w,
        needs=sum(1 << (dim * _MOST_PLACES + at) for dim, (at, _) in enumerate(three)),
        sums=tuple(
            ((z * steps[1] + y) * steps[2] + x, (of_d * height + of_h) * width + of_w)
            for (z, of_d), (y, of_h), (x, of_w) in taps
            if min(of_d, of_h, of_w) >= 0
        ),
    )

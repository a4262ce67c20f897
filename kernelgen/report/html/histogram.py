"""A subject's raw times as a histogram."""

import math
from collections.abc import Sequence

import msgspec
from markupsafe import Markup

from kernelgen.report.html.numbers import plain
from kernelgen.report.html.svg import Scale, drawing, horizontal, label, rect, vertical

_FEWEST_BINS, _MOST_BINS = 6, 24
_TOP, _BASE, _HEIGHT = 18, 78, 96
# Times further out than this many distances between the quartiles are counted and not drawn: one
# stray time would press all others into one bar.
_FENCE = 4.0
# Times that differ by less, relative to them, are one.
_EQUAL = 1e-12


class Bins(msgspec.Struct, frozen=True, kw_only=True):
    """Times counted.

    Attributes:
        low, width: of the first bin, in ms.
        counts: of each bin.
        below, above: how many times lie beyond the bins.
    """

    low: float
    width: float
    counts: tuple[int, ...]
    below: int
    above: int

    @property
    def high(self) -> float:
        """The end of the last bin, in ms."""
        return self.low + self.width * len(self.counts)


def bins_of(samples_ms: Sequence[float], quartiles_ms: tuple[float, float]) -> Bins:
    """Count times in bins of one width.

    The width is Freedman's and Diaconis' (On the histogram as a density estimator, 1981): twice the
    distance between the quartiles over the cube root of the number of samples.
    """
    first, third = quartiles_ms
    spread = third - first
    fence = _FENCE * spread
    near = [value for value in samples_ms if first - fence <= value <= third + fence]
    near = near or list(samples_ms)
    low, high = min(near), max(near)
    if high - low <= _EQUAL * abs(high):
        width = max(abs(low), 1e-9) * 1e-3
        return _counted(samples_ms, low - width / 2, width, 1)
    wanted = (high - low) * len(near) ** (1 / 3) / (2 * spread) if spread else _MOST_BINS
    number = min(max(math.ceil(wanted), _FEWEST_BINS), _MOST_BINS)
    return _counted(samples_ms, low, (high - low) / number, number)


def histogram(subject: str, bins: Bins, median_ms: float, tone: str) -> Markup:
    """Draw the bins, with the median as a line.

    Args:
        subject: whose times they are.
        bins: the counts.
        median_ms: of the samples.
        tone: class of the bars' colour.
    """
    scale = Scale(low=bins.low, high=bins.high)
    tallest = max(bins.counts)
    bars = [
        rect(
            scale.at(bins.low + index * bins.width),
            scale.at(bins.low + (index + 1) * bins.width) - 0.3,
            _BASE - (_BASE - _TOP) * number / tallest,
            (_BASE - _TOP) * number / tallest,
            tone,
        )
        for index, number in enumerate(bins.counts)
        if number
    ]
    total = sum(bins.counts) + bins.below + bins.above
    words = (
        f"{subject}: histogram of {total} times, most of them from {plain(bins.low)} to "
        f"{plain(bins.high)} ms, median {plain(median_ms)} ms, tallest bar {tallest}"
    )
    middle = scale.at(median_ms)
    return drawing(
        _HEIGHT,
        words,
        *bars,
        horizontal(scale.at(bins.low), scale.at(bins.high), _BASE, "rule"),
        vertical(middle, _TOP - 2, _BASE + 3, "median"),
        label(min(max(middle, 12.0), 88.0), _TOP - 5, f"median {plain(median_ms)}"),
        label(scale.at(bins.low), _HEIGHT - 4, plain(bins.low), "start"),
        label(scale.at(bins.high), _HEIGHT - 4, f"{plain(bins.high)} ms", "end"),
        class_="plot histogram",
    )


def _counted(samples_ms: Sequence[float], low: float, width: float, number: int) -> Bins:
    counts = [0] * number
    below = above = 0
    high = low + width * number
    for value in samples_ms:
        if value < low:
            below += 1
        elif value > high * (1 + _EQUAL):
            above += 1
        else:
            # The largest time belongs to the last bin, whatever rounding makes of its place.
            counts[min(int((value - low) / width), number - 1)] += 1
    return Bins(low=low, width=width, counts=tuple(counts), below=below, above=above)

"""How the lines of a plot are told apart: by their marks first, and by their colours as well.

Ten marks and seven colours: lines of the same mark have other colours, up to seventy of them, and a
line whose colour was used before is dashed. The colours differ in lightness where common colour
blindness takes their hues for one, and each has a contrast of at least 4.5 to its background.
"""

from collections.abc import Sequence

from markupsafe import Markup

from kernelgen.report.html.svg import tag

# The outline of each around 0, 0; the hollow ones are filled with the background.
_MARKS = (
    ("M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0Z", "mark"),
    ("M-4 -4H4V4H-4Z", "mark"),
    ("M0 -5.5L5.5 4.5H-5.5Z", "mark"),
    ("M0 -6L6 0L0 6L-6 0Z", "mark"),
    ("M0 5.5L5.5 -4.5H-5.5Z", "mark"),
    ("M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0Z", "hollow"),
    ("M-4 -4H4V4H-4Z", "hollow"),
    ("M-4.5 -5.5H4.5L-4.5 5.5H4.5Z", "mark"),
    ("M0 -6L6 0L0 6L-6 0Z", "hollow"),
    ("M-5 -5L5 5M-5 5L5 -5", "hollow"),
)
_LIGHT = ("#0067a3", "#b8430a", "#00735a", "#8a3a86", "#735400", "#33404c", "#c0206a")
_DARK = ("#5cb3ec", "#f0a04b", "#3fc79a", "#d79ad7", "#d9c34a", "#b9c1c9", "#ff8fb3")
_PAPER, _INK, _GRID = ("#ffffff", "#15181b"), ("#1b1e22", "#e3e6e9"), ("#d8dce0", "#343a40")


def _rules(dark: int) -> str:
    colours = _DARK if dark else _LIGHT
    return "".join(
        (
            f".paper,.hollow{{fill:{_PAPER[dark]}}}",
            f"text{{fill:{_INK[dark]}}}",
            f".grid{{stroke:{_GRID[dark]}}}.whole,.tick{{stroke:{_INK[dark]}}}",
            *(f".c{index}{{color:{colour}}}" for index, colour in enumerate(colours)),
        )
    )


STYLE = (
    "text{font:13px system-ui,sans-serif}.head{font-weight:600}"
    ".whole{stroke-dasharray:5 4}"
    ".line{fill:none;stroke:currentColor;stroke-width:1.6}.again{stroke-dasharray:7 3}"
    ".mark{fill:currentColor}.mark,.hollow{stroke:currentColor;stroke-width:1.4}"
    f"{_rules(0)}@media (prefers-color-scheme:dark){{{_rules(1)}}}"
)
"""What the drawing's classes look like, in light and in dark."""


def line_of(index: int, places: Sequence[tuple[float, float]]) -> Markup:
    """Draw a line through places."""
    joined = " ".join(f"{x:.2f},{y:.2f}" for x, y in places)
    again = " again" if index // len(_LIGHT) % 2 else ""
    return tag("polyline", points=joined, class_=f"line{again} {_colour(index)}")


def mark_of(index: int, x: float, y: float, words: str = "") -> Markup:
    """Draw a line's mark at a place, with words that a browser shows beside the pointer."""
    outline, class_ = _MARKS[index % len(_MARKS)]
    told = (tag("title", words),) if words else ()
    place = f"translate({x:.2f} {y:.2f})"
    return tag("path", *told, d=outline, transform=place, class_=f"{class_} {_colour(index)}")


def _colour(index: int) -> str:
    return f"c{index % len(_LIGHT)}"

"""What the templates show: text, tables and drawings, with every number already written out."""

from typing import NewType

import msgspec
from markupsafe import Markup

Anchor = NewType("Anchor", str)
"""An element's id: ASCII letters, digits and `-`, so that it can stand in a URL as it is."""

Cell = str | Markup
"""Text, which is escaped, or markup made here, which is not."""


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """What stands above a column.

    Attributes:
        text: of the heading, with the unit of what stands below.
        number: right-aligned, in digits of one width.
        sort: what a click on it sorts by; "" if the column cannot be sorted.
    """

    text: str
    number: bool = False
    sort: str = ""


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """A table. The first cell of each row is its heading."""

    caption: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A name and what is to be said about it."""

    name: str
    value: Cell


class Fold(msgspec.Struct, frozen=True, kw_only=True):
    """Text that is shown on demand.

    Attributes:
        title: what it is, and how long.
        text: lines.
        unfolded: shown from the start.
    """

    title: str
    text: Cell
    unfolded: bool = False


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A drawing, its title, and the numbers in it."""

    title: str
    note: str
    drawing: Markup
    numbers: Grid | None = None


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One subject of a solution's section: sentences, facts, tables, drawings, in this order.

    A part that is not `wide` shares its line with another where the page is wide enough.
    """

    title: str
    wide: bool = True
    notes: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    grids: tuple[Grid, ...] = ()
    figures: tuple[Figure, ...] = ()
    folds: tuple[Fold, ...] = ()


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a chart that is a list: whose it is, its drawing, and what it says in words.

    Attributes:
        label, where: which solution; `where` tells equal names apart.
        anchor: of the solution's section.
        drawing: of the value.
        value: in digits.
        words: what follows from it.
    """

    label: Markup
    where: str
    anchor: Anchor
    drawing: Markup
    value: str
    words: str


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """Bars over one axis.

    Attributes:
        title, note: what is drawn, and what it is measured against; a note may be "".
        axis: the drawing of the axis, "" if no row has a bar.
        bars: rows.
    """

    title: str
    note: str
    axis: Markup
    bars: tuple[Bar, ...]


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A status with its sign.

    Attributes:
        sign: one character that says it without colour.
        text: the status.
        tone: class of its colour: `good`, `bad` or `unsure`.
    """

    sign: str
    text: str
    tone: str

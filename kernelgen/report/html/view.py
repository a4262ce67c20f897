"""What the templates show: text, tables and drawings, with every number already written out."""

from typing import NewType

import msgspec
from markupsafe import Markup

Anchor = NewType("Anchor", str)
"""An element's id: ASCII letters, digits and `-`, so that it can stand in a URL as it is."""

Cell = str | Markup
"""Text, which is escaped, or markup made here, which is not."""


class Heading(msgspec.Struct, frozen=True):
    """What stands above a column.

    Attributes:
        text: of the heading, with the unit of what stands below.
        number: right-aligned, in digits of one width.
    """

    text: str
    number: bool = False


def number(text: str) -> Heading:
    """Return the heading of a column of numbers."""
    return Heading(text, number=True)


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """A table. The first cell of each row is its heading."""

    caption: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]


class Fact(msgspec.Struct, frozen=True):
    """A name and what is to be said about it."""

    name: str
    value: str


class Fold(msgspec.Struct, frozen=True, kw_only=True):
    """Text that is shown on demand, or from the start if it is `unfolded`."""

    title: str
    text: str
    unfolded: bool = False


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One subject of a solution's section: sentences, facts, tables, texts, in this order.

    A part that is not `wide` shares its line with another where the page is wide enough.
    """

    title: str
    wide: bool = True
    notes: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    grids: tuple[Grid, ...] = ()
    folds: tuple[Fold, ...] = ()


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

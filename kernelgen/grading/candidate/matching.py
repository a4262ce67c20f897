"""Which tensor of a candidate stands for which of the reference's.

Equal names decide, then equal initial values, then names as far as they say anything, shapes where
they fit, the order of definition last. Names, shapes and digests of values are all that counts. A
tensor of the reference may go to several of the candidate's, which keeps a tied weight twice, and
several to the parts of one, which keeps them joined.
"""

from __future__ import annotations

import collections
import enum
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import torch

from kernelgen.grading.candidate.likeness import Likeness, likeness
from kernelgen.grading.wire.module_state import Initial

Shape = tuple[int, ...]


class Fit(enum.IntEnum):
    """How one tensor's values become another's."""

    SAME = 0
    TRANSPOSED = 1
    REGROUPED = 2


def fit(given: Shape, taken: Shape) -> Fit | None:
    """Say how a tensor of one shape can be given to one of another, or None if it cannot.

    Two dimensions that are swapped mean a transposed copy. Dimensions of 1 that come or go, and
    neighbours that are merged or one that is split, leave the elements' order as it is. Any other
    change of shape could mean several things.
    """
    if given == taken:
        return Fit.SAME
    if len(given) == len(taken) == 2 and given == taken[::-1] and 1 not in given:  # noqa: PLR2004
        return Fit.TRANSPOSED
    ours, theirs = _thick(given), _thick(taken)
    if 0 not in given and (_merges_into(ours, theirs) or _merges_into(theirs, ours)):
        return Fit.REGROUPED
    return None


def _thick(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)


def _merges_into(fine: Shape, coarse: Shape) -> bool:
    """Whether merging neighbours of `fine` gives `coarse`; no size is 1."""
    sizes = list(fine)
    for wanted in coarse:
        merged = 1
        while merged < wanted and sizes:
            merged *= sizes.pop(0)
        if merged != wanted:
            return False
    return not sizes


# A name of this likeness outweighs the shape: what is called so and is transposed is still meant.
_TELLING = (Likeness.SAME, Likeness.SPELLING, Likeness.MEANING, Likeness.END)
_VAGUE = (Likeness.LAST, Likeness.ROLE, Likeness.NONE)
_ROUNDS = [(like, how) for like in _TELLING for how in Fit]
_ROUNDS += [(like, how) for how in Fit for like in _VAGUE]
_ROUND = {one: number for number, one in enumerate(_ROUNDS)}


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter, a buffer, or a tensor that is a plain attribute.

    Attributes:
        name: with the path of its module.
        rank: its place in the order of definition.
        by_name: it takes part by its whole name, or its initial values, alone.
        initial: digests of the values that its constructor drew.
    """

    name: str
    shape: Shape
    floating: bool
    rank: int
    by_name: bool = False
    initial: Initial = Initial()

    def __str__(self) -> str:
        return f"{self.name} {self.shape}"


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor of the reference, the candidate's that gets its values, and how.

    Attributes:
        rows: first row and end of the part that gets them; None for the whole.
    """

    wanted: Slot
    own: Slot
    how: Fit
    like: Likeness
    rows: tuple[int, int] | None = None

    def part(self, own: torch.Tensor) -> torch.Tensor:
        """Return the view of the candidate's tensor that has the reference's order of elements."""
        part = own if self.rows is None else own[slice(*self.rows)]
        return part.t() if self.how is Fit.TRANSPOSED else part

    def __str__(self) -> str:
        how = ", transposed" if self.how is Fit.TRANSPOSED else ""
        rows = "" if self.rows is None else "[{}:{}]".format(*self.rows)
        return f"{self.own.name}{rows} <- {self.wanted.name}{how}"


class Matching(msgspec.Struct, frozen=True, kw_only=True):
    """Pairs of names; `missing` of the reference's found no place, `alone` got no value."""

    pairs: tuple[Pair, ...]
    missing: tuple[Slot, ...]
    alone: tuple[Slot, ...]

    def in_doubt(self) -> Iterator[Pair]:
        """Yield the pairs that names do not settle: another tensor would have fitted as well."""
        open_pairs = [pair for pair in self.pairs if pair.like > Likeness.VALUES]
        for pair in open_pairs:
            swapped = any(
                _likeness(pair.wanted, other.own) + _likeness(other.wanted, pair.own)
                <= pair.like + other.like
                for other in open_pairs
                if other is not pair
                and _can(pair.wanted, other.own)
                and _can(other.wanted, pair.own)
            )
            instead = [(wanted, pair.own) for wanted in self.missing]
            instead += [(pair.wanted, own) for own in self.alone]
            if swapped or any(_can(*one) and _likeness(*one) <= pair.like for one in instead):
                yield pair

    def misfits(self) -> Iterator[tuple[Slot, Slot]]:
        """Yield what was missed, and what has as many elements and a shape that says too little."""
        for wanted in self.missing:
            for own in self.alone:
                same_count = math.prod(wanted.shape) == math.prod(own.shape)
                if same_count and wanted.floating == own.floating and not _can(wanted, own):
                    yield wanted, own


def match(
    wanted: tuple[Slot, ...], own: tuple[Slot, ...], tied: Mapping[str, str] | None = None
) -> Matching:
    """Match the reference's tensors to a candidate's.

    Equal names decide, then equal initial values, then names as far as they tell anything. What is
    alike in name and shape goes by order: the candidate's order of definition, and of the reference
    either the order of definition or the one in which torch lists it, whichever keeps more of all
    pairs, those with telling names included, in order. `tied` are other names of the reference's
    tensors, with the first.
    """
    ours = sorted(own, key=lambda slot: slot.rank)
    orders = [sorted(wanted, key=lambda slot: slot.rank), list(wanted)]
    matchings = [_in_order(order, ours, tied or {}) for order in orders]
    _, pairs = min(zip(orders, matchings, strict=True), key=lambda one: _inversions(one[1], one[0]))
    missing, alone = _left(wanted, own, pairs)
    return Matching(
        pairs=tuple(pairs),
        missing=tuple(missing),
        alone=tuple(slot for slot in alone if not slot.by_name),
    )


def _in_order(wanted: list[Slot], own: list[Slot], tied: Mapping[str, str]) -> list[Pair]:
    """Give every tensor its turn in one round before any has one in the next.

    So none takes the place of another that fits it better.
    """
    by_name = {slot.name: slot for slot in wanted}
    by_name |= {name: by_name[first] for name, first in tied.items()}
    pairs = [
        Pair(wanted=by_name[slot.name], own=slot, how=Fit.SAME, like=Likeness.SAME)
        for slot in own
        if slot.name in by_name and _fits(by_name[slot.name], slot) is Fit.SAME
    ]
    missing, free = _left(wanted, own, pairs)
    pairs += _by_values(wanted, free, missing)
    rest, free = _left(wanted, own, pairs)
    for mine in free:
        pairs += _joined(rest, mine)
        rest, _ = _left(rest, own, pairs)
    rest, free = _left(rest, own, pairs)
    # Once and not in each round: a large model has thousands of tensors.
    possible = [
        Pair(wanted=slot, own=mine, how=how, like=_likeness(slot, mine))
        for slot in rest
        for mine in free
        if (how := _fits(slot, mine)) is not None and (not mine.by_name or slot.name == mine.name)
    ]
    possible.sort(key=lambda pair: _ROUND[pair.like, pair.how])
    return [*pairs, *_first_come(possible)]


def _left(
    wanted: Sequence[Slot], own: Sequence[Slot], pairs: list[Pair]
) -> tuple[list[Slot], list[Slot]]:
    placed = {pair.wanted.name for pair in pairs}
    filled = {pair.own.name for pair in pairs}
    return (
        [slot for slot in wanted if slot.name not in placed],
        [slot for slot in own if slot.name not in filled],
    )


def _by_values(wanted: list[Slot], own: list[Slot], missing: list[Slot]) -> Iterator[Pair]:
    """Pair what began with equal values, where no second tensor of the reference did too.

    Of a plain attribute that is a copy of what is placed already, nobody keeps account.
    """
    holders: dict[str, list[tuple[Slot, Fit]]] = {}
    # A parameter before a plain attribute, which may be a view or a copy of it.
    for slot in sorted(own, key=lambda slot: slot.by_name):
        holders.setdefault(slot.initial.plain, []).append((slot, Fit.SAME))
        if slot.initial.turned != slot.initial.plain:
            holders.setdefault(slot.initial.turned, []).append((slot, Fit.TRANSPOSED))
    drawn = collections.Counter(slot.initial.plain for slot in wanted)
    for slot in wanted:
        found = holders.get(slot.initial.plain, [])
        if not slot.initial.plain or not found or drawn[slot.initial.plain] > 1:
            continue
        registered = [one for one in found if not one[0].by_name]
        alone = found if len(found) == 1 and slot in missing else []
        for mine, turned in registered or alone:
            regrouped = turned is Fit.SAME and slot.shape != mine.shape
            how = Fit.REGROUPED if regrouped else turned
            yield Pair(wanted=slot, own=mine, how=how, like=Likeness.VALUES)


def _joined(wanted: list[Slot], own: Slot) -> list[Pair]:
    """Pair tensors that follow each other with the parts of one, which nothing alone fits.

    Their sizes along dimension 0 must add up in one way; where they are stacked, each has size 1.
    """
    if own.by_name or not (own.floating and own.shape) or any(_can(one, own) for one in wanted):
        return []
    for lead in ((), (1,)):
        shapes = [(one, lead + one.shape) for one in wanted if one.floating]
        parts = [(one, shape[0]) for one, shape in shapes if shape and shape[1:] == own.shape[1:]]
        ends = list(itertools.accumulate((size for _, size in parts), initial=0))
        spans = itertools.combinations(range(len(ends)), 2)
        found = [(first, end) for first, end in spans if ends[end] - ends[first] == own.shape[0]]
        if len(found) == 1:
            first, end = found[0]
            rows = [(ends[n] - ends[first], ends[n + 1] - ends[first]) for n in range(first, end)]
            return [
                Pair(wanted=slot, own=own, how=Fit.SAME, like=Likeness.NONE, rows=part)
                for (slot, _), part in zip(parts[first:end], rows, strict=True)
            ]
    return []


def _first_come(pairs: Iterable[Pair]) -> Iterator[Pair]:
    placed: set[str] = set()
    filled: set[str] = set()
    for pair in pairs:
        if pair.wanted.name not in placed and pair.own.name not in filled:
            placed.add(pair.wanted.name)
            filled.add(pair.own.name)
            yield pair


def _inversions(pairs: list[Pair], order: list[Slot]) -> int:
    """Count the pairs of pairs whose order differs between the two sides."""
    places = {slot.name: place for place, slot in enumerate(order)}
    listed = [places[pair.wanted.name] for pair in sorted(pairs, key=lambda pair: pair.own.rank)]
    return sum(later < place for n, place in enumerate(listed) for later in listed[n + 1 :])


def _fits(wanted: Slot, own: Slot) -> Fit | None:
    return fit(wanted.shape, own.shape) if wanted.floating == own.floating else None


def _can(wanted: Slot, own: Slot) -> bool:
    return _fits(wanted, own) is not None


def _likeness(wanted: Slot, own: Slot) -> Likeness:
    return likeness(wanted.name, own.name)

"""Which of a candidate's tensors stands for which of the reference's: by name, shape and order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

from kernelgen.grading.candidate.parameter_names import Fit, Likeness, Shape, fit, likeness

# A name of this likeness outweighs the shape: what is called so and is transposed is still meant.
_TELLING = (Likeness.SAME, Likeness.SPELLING, Likeness.MEANING, Likeness.END)
_VAGUE = (Likeness.LAST, Likeness.ROLE, Likeness.NONE)
_ROUNDS = (
    *((like, how) for like in _TELLING for how in Fit),
    *((like, how) for how in Fit for like in _VAGUE),
)


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter, a buffer, or a tensor that is a plain attribute.

    Attributes:
        name: with the path of its module.
        shape: sizes.
        floating: whether its dtype is one of floats.
        rank: its place in the order of definition.
        by_name: it takes part by its whole name alone.
    """

    name: str
    shape: Shape
    floating: bool
    rank: int
    by_name: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.shape}"


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor of the reference, the candidate's that gets its values, and how."""

    wanted: Slot
    own: Slot
    how: Fit
    like: Likeness

    def __str__(self) -> str:
        how = ", transposed" if self.how is Fit.TRANSPOSED else ""
        return f"{self.own.name} <- {self.wanted.name}{how}"


class Matching(msgspec.Struct, frozen=True, kw_only=True):
    """What stands for what.

    Attributes:
        pairs: each tensor at most once on its side.
        missing: the reference's that found no place.
        alone: the candidate's that get nothing.
    """

    pairs: tuple[Pair, ...]
    missing: tuple[Slot, ...]
    alone: tuple[Slot, ...]

    def in_doubt(self) -> Iterator[Pair]:
        """Yield the pairs that names do not settle: another tensor would have fitted as well."""
        open_pairs = [pair for pair in self.pairs if pair.like is not Likeness.SAME]
        for pair in open_pairs:
            others = [(other.wanted, other.own, other.like) for other in open_pairs]
            instead = [
                _likeness(pair.wanted, own) + _likeness(wanted, pair.own) <= pair.like + like
                for wanted, own, like in others
                if own is not pair.own and _can(pair.wanted, own) and _can(wanted, pair.own)
            ]
            instead += [
                _likeness(wanted, pair.own) <= pair.like
                for wanted in self.missing
                if _can(wanted, pair.own)
            ]
            instead += [
                _likeness(pair.wanted, own) <= pair.like
                for own in self.alone
                if _can(pair.wanted, own)
            ]
            if any(instead):
                yield pair

    def misfits(self) -> Iterator[tuple[Slot, Slot]]:
        """Yield what was missed, and what has as many elements and a shape that says too little."""
        for wanted in self.missing:
            for own in self.alone:
                same_count = math.prod(wanted.shape) == math.prod(own.shape)
                if same_count and wanted.floating == own.floating and not _can(wanted, own):
                    yield wanted, own


def match(wanted: tuple[Slot, ...], own: tuple[Slot, ...]) -> Matching:
    """Match the reference's tensors to a candidate's.

    Names decide as far as they tell anything. What is alike in name and shape goes by order: the
    candidate's order of definition, and of the reference either the order of definition or the one
    in which torch lists it, whichever keeps more of all pairs, those with telling names included,
    in order.

    Args:
        wanted: of the reference, as torch lists them.
        own: of the candidate.
    """
    ours = sorted(own, key=lambda slot: slot.rank)
    orders = [sorted(wanted, key=lambda slot: slot.rank), list(wanted)]
    matchings = [_in_order(order, ours) for order in orders]
    _, pairs = min(zip(orders, matchings, strict=True), key=lambda one: _inversions(one[1], one[0]))
    placed = {pair.wanted.name for pair in pairs}
    filled = {pair.own.name for pair in pairs}
    return Matching(
        pairs=tuple(pairs),
        missing=tuple(slot for slot in wanted if slot.name not in placed),
        alone=tuple(slot for slot in own if slot.name not in filled and not slot.by_name),
    )


def _in_order(wanted: list[Slot], own: list[Slot]) -> list[Pair]:
    """Give every tensor its turn in one round before any has one in the next.

    So none takes the place of another that fits it better.
    """
    by_name = {slot.name: slot for slot in own}
    pairs = [
        Pair(wanted=slot, own=by_name[slot.name], how=Fit.SAME, like=Likeness.SAME)
        for slot in wanted
        if slot.name in by_name and _fits(slot, by_name[slot.name]) is Fit.SAME
    ]
    named = {pair.own.name for pair in pairs}
    rest = [slot for slot in wanted if slot.name not in named]
    free = [slot for slot in own if slot.name not in named]
    # Once and not in each round: a large model has thousands of tensors.
    possible: dict[tuple[Likeness, Fit], list[Pair]] = {one: [] for one in _ROUNDS}
    for slot in rest:
        for mine in free:
            how = _fits(slot, mine)
            if how is not None and (not mine.by_name or slot.name == mine.name):
                like = _likeness(slot, mine)
                possible[like, how].append(Pair(wanted=slot, own=mine, how=how, like=like))
    return [*pairs, *_first_come(pair for one in _ROUNDS for pair in possible[one])]


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

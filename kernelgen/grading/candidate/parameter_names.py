"""What two parameters' names and shapes say about whether one stands for the other."""

from __future__ import annotations

import enum
import re

Shape = tuple[int, ...]


class Likeness(enum.IntEnum):
    """How much two names have in common; less is more."""

    SAME = 0
    SPELLING = 1
    """`linear.bias` and `linear_bias` or `linearBias`."""
    MEANING = 2
    """`linear.bias` and `linear_b`."""
    END = 3
    """`linear.bias` and `bias`."""
    LAST = 4
    """`linear.bias` and `lin_bias`."""
    ROLE = 5
    """`norm.bias` and `beta`."""
    NONE = 6


class Fit(enum.IntEnum):
    """How one tensor's values become another's."""

    SAME = 0
    TRANSPOSED = 1
    REGROUPED = 2


_ROLES = {
    "weight": ("weight", "weights", "w", "gamma", "g", "scale"),
    "bias": ("bias", "biases", "b", "beta", "shift", "offset"),
}
_ROLE_OF = {word: role for role, words in _ROLES.items() for word in words}


def likeness(one: str, other: str) -> Likeness:
    """Compare two names, which are not empty."""
    if one == other:
        return Likeness.SAME
    ours, theirs = _words(one), _words(other)
    shorter = min(len(ours), len(theirs))
    role = _role(ours)
    shared = {
        Likeness.SPELLING: "".join(ours) == "".join(theirs),
        Likeness.MEANING: "".join(_meant(ours)) == "".join(_meant(theirs)),
        Likeness.END: ours[-shorter:] == theirs[-shorter:],
        Likeness.LAST: ours[-1] == theirs[-1],
        Likeness.ROLE: role is not None and role == _role(theirs),
    }
    return next((like for like, holds in shared.items() if holds), Likeness.NONE)


def _role(words: list[str]) -> str | None:
    return _ROLE_OF.get(words[-1].rstrip("0123456789"))


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[._]", name.lower()) if word] or [name]


def _meant(words: list[str]) -> list[str]:
    # A single word has no place that would tell it from others of its role.
    return words if len(words) == 1 else [*words[:-1], _ROLE_OF.get(words[-1], words[-1])]


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

"""How much two names of tensors have in common."""

from __future__ import annotations

import enum
import re


class Likeness(enum.IntEnum):
    """How much two names have in common; less is more."""

    SAME = 0
    VALUES = 1  # whatever the names: constructed under one seed, both began with equal values
    SPELLING = 2  # `linear.bias` and `linear_bias` or `linearBias`
    MEANING = 3  # `linear.bias` and `linear_b`
    END = 4  # `linear.bias` and `bias`
    LAST = 5  # `linear.bias` and `lin_bias`
    ROLE = 6  # `norm.bias` and `beta`
    NONE = 7


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

"""Names for kernels and for what stands in them."""

import re
from collections.abc import Iterable

from kernelgen.planning.operators import OPERATORS
from kernelgen.planning.plan import Step

_LONGEST = 40
_LONGEST_LOCAL = 12
# What kernels and their templates call things beside an operand and a step.
_TAKEN = frozenset(
    """
    a alignas all and arguments at auto begin block blocks bool break case char class const continue
    count default delete do double else end enum explicit extern false first float for i if index
    inline inner int int64_t j k kept lane length long main namespace new not operator or out outer
    partials piece pooled private protected public register return row rows scanned shape short
    signed size sizeof sizes slice slices start state states static std stream struct switch
    template tensors this thread threads tile tiles torch true typedef union unsigned using v values
    virtual void volatile while workspace xor
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
_FUNCTIONS = {
    name
    for operator in OPERATORS
    for text in (operator.cuda, operator.cpp)
    for name in re.findall(r"(\w+)\(", text)
}


class Names:
    """Names that are given once."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def local(self, wish: str) -> str:
        """Return a C++ name like a wish, for an operand or a step."""
        name = re.sub(r"\W", "_", wish.removeprefix("p_").removeprefix("b_"))
        name = re.sub(r"_\d+$", "", name)
        if len(name) > _LONGEST_LOCAL:
            name = name.rpartition("_")[2]
        taken = name in _TAKEN or name in _FUNCTIONS
        return self._once(f"{name}_" if taken else name)

    def kernel(self, parts: Iterable[Step | str], fallback: str) -> str:
        """Return a kernel's name, made of those of its operators."""
        words = [part if isinstance(part, str) else part.operator for part in parts]
        kept = [word for word, before in zip(words, ["", *words], strict=False) if word != before]
        name = ""
        for word in kept:
            longer = f"{name}_{word}" if name else word
            if len(longer) > _LONGEST:
                break
            name = longer
        return self._once(name or fallback)

    def _once(self, name: str) -> str:
        found, number = name, 1
        while found in self._given:
            number += 1
            found = f"{name}_{number}"
        self._given.add(found)
        return found


def without_overload(aten: str) -> str:
    """Return `conv2d` for `conv2d.default`."""
    return aten.split(".", maxsplit=1)[0]

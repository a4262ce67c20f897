"""Names for kernels and for what stands in them."""

import re
from collections.abc import Iterable

from kernelgen.planning.operators import OPERATORS
from kernelgen.planning.plan import Step

SUMS = "s"  # what a segment's kernels call their sums
_LONGEST = 40
_LONGEST_LOCAL = 12
# What kernels and their templates call things beside an operand and a step.
_TAKEN = frozenset(
    """
    a across_block across_lanes add address after alignas aligned all and any arguments around
    as_int asm at auto base before begin best better block blocks bool break c carry case char
    class column columns combine combined computed const continue copysign correction count
    count_d count_h count_w counts covered cudaGetLastError d default delete depth distance
    divisor do double else end enum exists explicit extern false finish first first_d first_h
    first_of first_out first_plane first_row first_slice float for four four_at four_of fours
    from front gather gather_columns gather_rows gathered grid group h half height high i if
    inclusive index inline inner inside int int64_t is_aligned is_beyond is_for_lines is_for_vectors
    is_inside is_main is_of is_read j joined k kept kernel lane lanes larger left len length
    line load long low main map_elements map_held map_segments map_vectors mapped merge merged
    mine most namespace new next not nothing num_threads number o of_lane of_row of_rows of_warp
    of_warps offset offset_of one operator or other others out outcome outer outputs own padding
    partials piece place places plane planes pool_rows pooled position prepared private product
    protected public raise_to range read reduction register reinterpret_cast repeated return
    round rounds row row_d row_h rows same scan_columns scan_rows scanned schedule segment
    segments shape shares shift short signed size sizeof sizes slice slices smaller some some_at
    span start state states static static_assert static_cast std step store stream strip strips
    struct switch t tap template tensors this thread threads tile tiles to top torch true turn
    typedef union unsigned upto using v value value_at values virtual void volatile w warp while
    width windows wins workspace xor zip
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

    def __init__(self, *given: str) -> None:
        """Begin with names that are given already."""
        self._given = set(given)

    def local(self, wish: str) -> str:
        """Return a C++ name like a wish, for an operand or a step."""
        name = re.sub(r"\W", "_", wish.removeprefix("p_").removeprefix("b_"))
        name = re.sub(r"_\d+$", "", name)
        if len(name) > _LONGEST_LOCAL:
            name = name.rpartition("_")[2]
        taken = name in _TAKEN or name in _FUNCTIONS or re.match(r"k[A-Z]", name)
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

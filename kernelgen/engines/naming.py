"""Names for kernels and for what stands in them."""

import keyword
import re
from collections.abc import Iterable
from itertools import accumulate, groupby

from kernelgen.engines.operators import OPERATORS, is_cast
from kernelgen.engines.stage import Step

SUMS = "s"  # what a segment's kernels call their sums
_LONGEST = 40
_LONGEST_LOCAL = 12
# C++'s words that Python leaves free, and macros of compilers and headers in small letters.
CPP_WORDS = frozenset(
    """
    alignas alignof and_eq asm auto bitand bitor bool case catch char char8_t char16_t char32_t
    co_await co_return co_yield compl concept const const_cast consteval constexpr constinit
    decltype default delete do double dynamic_cast enum errno explicit export extern false float
    friend goto inline int linux long math_errhandling mutable namespace new noexcept not_eq nullptr
    operator or_eq private protected public register reinterpret_cast requires short signed sizeof
    static static_assert static_cast struct switch template this thread_local throw true typedef
    typeid typename union unix unsigned using virtual void volatile wchar_t xor xor_eq
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
# Names in kernels and their templates beside those of operands and steps.
_TAKEN = CPP_WORDS | frozenset(
    """
    a across_block across_lanes add address after aligned all and any arguments around as_int at
    base before begin best better bit block blocks break c carry channels class column columns
    combine combined computed continue copysign correction count count_d count_h count_w counts
    covered cudaGetLastError d depth distance divisor else end exact exists fast_exp filters finish
    first first_d first_h first_of first_out first_plane first_row first_slice for found four
    four_at four_of fours from front gather gather_columns gather_rows gathered given grid group
    groups h half height held high i if inclusive index inner inside int64_t is_aligned is_beyond
    is_for_lines is_for_vectors is_inside is_main is_of is_read j joined k kept kernel lane lanes
    larger lead left len length line load low main map_elements map_held map_segments map_vectors
    mapped memcpy merge merged mine most next next_run not nothing num_threads number o of_lane
    of_row of_rows of_warp of_warps offset offset_of one or other others out outcome outer outputs
    own padding partials piece pieces place places plane planes pool_rows pooled position prepared
    product raise_to range read reduction repeated repeats rest rest_of return round rounds row
    row_d row_h rows run run_of runs same scan_columns scan_rows scanned schedule segment segments
    shape shares shift size sizes slice slices smaller some some_at span start state state_of states
    std step steps stop store stream strip strips T t tap tensors thread threads tile tiles to top
    torch turn upto v value value_at value_of values w warp while whole width windows wins words
    workspace zip
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
        self._forms = set().union(*map(_forms_of, given))

    def local(self, wish: str) -> str:
        """Return a C++ name like a wish, for an operand or a step: in ASCII, and no word of C++'s.

        A name that begins with a capital and goes on may be a macro, a type or a constant's.
        """
        name = re.sub(r"\W", "_", wish.removeprefix("p_").removeprefix("b_"), flags=re.ASCII)
        name = re.sub(r"_\d+$", "", name.lstrip("_"))
        if len(name) > _LONGEST_LOCAL:
            name = name.rstrip("_").rpartition("_")[2]
        if not name.isidentifier():
            name = "operand"
        taken = name in _TAKEN or name in _FUNCTIONS or re.match(r"k?[A-Z]\w", name)
        return self.once(f"{name}_" if taken or keyword.iskeyword(name) else name)

    def kernel(self, parts: Iterable[Step | str], fallback: str) -> str:
        """Return a kernel's name, made of those of its operators."""
        words = [part if isinstance(part, str) else part.operator for part in parts]
        words = [word for word in words if not is_cast(word)]
        names = accumulate((word for word, _ in groupby(words)), "{}_{}".format)
        short = [name for name in names if len(name) <= _LONGEST]
        return self.once(short[-1] if short else fallback)

    def once(self, name: str) -> str:
        """Return a name, with a number where it is given already or like one that is."""
        found, number = name, 1
        while not (self._given | self._forms).isdisjoint({found, *_forms_of(found)}):
            number += 1
            found = f"{name.rstrip('_')}_{number}"
        self._given.add(found)
        self._forms |= _forms_of(found)
        return found


def _forms_of(name: str) -> set[str]:
    """Return what kernels and the functions around them call parts and sizes of an operand."""
    ends = ("at", "i", "inner", "out", "repeats", "size")
    starts = ("d", "has", "o", "s")
    whole = {f"{name}_{end}" for end in ends} | {f"{start}_{name}" for start in starts}
    return {*whole, *constants_of(name)}


def constants_of(name: str) -> tuple[str, str]:
    """Return what kernels call an operand's numbers of neighbours at the main shape."""
    camel = "".join(part.capitalize() for part in name.split("_"))
    return f"k{camel}Inner", f"k{camel}Size"


def called(path: str) -> str:
    """Return what a parameter or buffer is called in its layer, `scales` for `net.scales.0`."""
    return next((part for part in reversed(path.split(".")) if not part.isdecimal()), "")


def without_overload(aten: str) -> str:
    """Return `conv2d` for `conv2d.default`."""
    return aten.split(".", maxsplit=1)[0]

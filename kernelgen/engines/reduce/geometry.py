"""Elements that a result of a reduction gathers, and where they lie.

A shape is alternating runs of reduced (R) and kept (K) dimensions. Results that read neighbours
(K R, R, R K R, K R K R) are rows; those whose elements lie side by side (K R K, R K) are columns.
Operands of any other shape are permuted to K R first.
"""

from itertools import groupby
from math import prod

import msgspec

from kernelgen.engines.reduce.record import Reduce

_PIECES = {"R", "KR", "RKR", "KRKR"}
_COLUMNS = {"KRK", "RK"}


class Geometry:
    """Elements that a result gathers, at the main shape and as Python of any shape."""

    def __init__(self, stage: Reduce) -> None:
        shape, dims = stage.shape, set(stage.dims)
        rank = len(shape)
        self.whole = len(dims) == rank
        runs = [(reduced, [*some]) for reduced, some in groupby(range(rank), dims.__contains__)]
        pattern = "".join("R" if reduced else "K" for reduced, _ in runs) or "R"
        self.order: tuple[int, ...] = ()
        self.shape, self.operands = shape, stage.operands
        if pattern not in _PIECES | _COLUMNS:
            kept = [d for d in range(rank) if d not in dims]
            self.order = (*kept, *stage.dims)
            self.shape = tuple(shape[d] for d in self.order)
            self.operands = tuple(
                o if o.is_number else msgspec.structs.replace(o, pattern="each", span=(0, 0))
                for o in stage.operands
            )
            runs, pattern = [(False, kept), (True, [*stage.dims])], "KR"
        self.columns = pattern in _COLUMNS
        self.length = prod(shape[d] for d in dims)
        inner = [d for n, (reduced, some) in enumerate(runs) for d in some if not reduced and n > 0]
        last = runs[-1][1] if runs else []
        self.inner = prod(shape[d] for d in inner)
        self.outer = prod(shape[d] for d in range(rank) if d not in dims) // max(self.inner, 1)
        self.neighbours = prod(shape[d] for d in last)
        places = {d: n for n, d in enumerate(self.order or range(rank))}
        self.inner_text = ""
        self._inner_only = "1"
        if "K" in pattern[1:]:
            self._inner_only = _product(inner)
            piece = "1" if self.columns else _product(last)
            self.inner_text = f"{self._inner_only}, {piece}"
        self.length_text = _product([places[d] for d in stage.dims])
        self.rows_text = _product([places[d] for d in range(rank) if d not in dims])
        sizes = [
            "1" if d in dims else f"shape[{places[d]}]"
            for d in range(rank)
            if stage.keepdim or d not in dims
        ]
        self.kept = f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

    def tiles(self, columns: int) -> str:
        """Return the blocks that a grid without slices has, as Python."""
        if not self.columns:
            return "rows"
        return f"(rows // ({self._inner_only}) * -(-{self._inner_only} // {columns}))"


def _product(dims: list[int]) -> str:
    """Return the number of elements along dimensions, as Python: for a few, a product is fast."""
    if len(dims) > 2 and dims == list(range(dims[0], dims[-1] + 1)):  # noqa: PLR2004 - a few
        return f"shape[{dims[0]}:{dims[-1] + 1}].numel()"
    return " * ".join(f"shape[{d}]" for d in dims) or "1"

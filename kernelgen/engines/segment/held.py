"""Segments that rows of threads hold in registers."""

from functools import partial
from typing import Literal

import msgspec

from kernelgen.engines.operators import BY_NAME, NARROW
from kernelgen.engines.segment.outcome import Precise, segment_names
from kernelgen.engines.segment.record import Segment
from kernelgen.engines.stage import Accumulator, StepValue, read_by
from kernelgen.engines.text.names import element_names, text_of
from kernelgen.engines.text.reading import VECTOR, Reading, power_of_two, reading_of
from kernelgen.engines.text.stage_text import StageText, body_of
from kernelgen.problem.record import Backend

_LANES = 256  # threads of a row, at most
_PIECE = 4  # times 16 bytes in a row, that memory moves well
_WARP = 32
_HELD = 4  # loads of a thread, if there are enough threads
_IN_A_WARP = 8  # loads of a thread, rather than more than a warp for a row
_THREADS = 128


class Sum(msgspec.Struct, frozen=True, kw_only=True):
    """A variable of what is gathered over a segment.

    Attributes:
        name: of the variable.
        value: C expression of an element's.
        kind: a sum in double; the largest or smallest, in float.
    """

    name: str
    value: str
    kind: Literal["sum", "larger", "smaller"]

    @property
    def c_type(self) -> str:
        """Its C type."""
        return "double" if self.kind == "sum" else "float"

    @property
    def start(self) -> str:
        """Its value before the first element."""
        return {"sum": "0.0", "larger": "-INFINITY", "smaller": "INFINITY"}[self.kind]

    def added(self, mine: str) -> str:
        """Return the C statement that takes in an element."""
        if self.kind == "sum":
            return f"{mine} += {self.value}"
        return f"{mine} = {self.joined(mine, self.value)}"

    def joined(self, mine: str, other: str) -> str:
        """Return the C expression of two variables together."""
        return f"{mine} + {other}" if self.kind == "sum" else f"{self.kind}({mine}, {other})"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How threads hold a segment of the main shape: value k of lane l has index k * lanes + l.

    Attributes:
        lanes: threads of a segment, a power of two.
        threads: of a block.
        width: neighbours in memory that are one load.
        held: loads of a thread.
    """

    length: int
    inner: int
    lanes: int
    threads: int
    width: int
    held: int

    @property
    def whole(self) -> bool:
        """Whether every thread holds as much."""
        return self.lanes * self.width * self.held == self.length


def shape_of(length: int, inner: int, vector: int = VECTOR) -> Shape:
    """Return how segments are held; neighbours of one are `inner` apart in memory.

    Of neighbours, 16 bytes are `vector`.
    """
    if inner > 1:
        return Shape(length=length, inner=inner, lanes=1, threads=_THREADS, width=1, held=length)
    width = next(n for n in (vector, VECTOR, 1) if length % n == 0)
    loads = length // width
    # A few loads at once for each thread, but neighbours that fill a piece of memory.
    piece = _PIECE * vector // width
    lanes = max(power_of_two(-(-loads // _HELD)), min(piece, power_of_two(loads)))
    if lanes > _WARP:
        lanes = _WARP if loads <= _WARP * _IN_A_WARP else min(_LANES, lanes)
    return Shape(
        length=length,
        inner=1,
        lanes=lanes,
        threads=max(lanes, _THREADS),
        width=width,
        held=-(-loads // lanes),
    )


def held_text(stage: Segment, backend: Backend) -> StageText:
    """Return a segment as text whose kernel holds it in the registers of a row of threads."""
    of = "a." if backend == "cuda" else ""
    narrow = any(o.type.dtype in NARROW for o in stage.mapped_again)
    shape = shape_of(stage.length, stage.inner, 2 * VECTOR if narrow else VECTOR)
    readings = partial(reading_of, in_32_bits=True, width=max(shape.width, VECTOR))
    operands = [_placed(readings(o, stage.shape, of), shape) for o in stage.operands]
    names = element_names(operands, backend)
    precise = Precise(stage, inverses=False) if backend == "cpp" else None
    parts = _Parts(stage, backend, names, precise)
    steps = stage.after if precise is None else precise.steps
    after = body_of(steps, [stage.result.of], backend, names)
    gathered, mapped = _gathered(stage) + read_by(stage.steps), read_by(stage.after)
    gathering = [o for o in operands if o.name in gathered]
    mapping = [o for o in operands if o.name in (stage.result.of, *mapped)]
    given = segment_names(stage, backend, operands) | {
        "held_step": stage.held,
        "kept": [operand for operand in operands if operand.name in stage.kept],
        "gathering": gathering,
        "addressed": any(o.name not in stage.kept and o.at not in {"", "k"} for o in gathering),
        "mapping": mapping,
        "mapped": after.values[0],
        "before": parts.lines,
        "sums": list(parts.sums.values()),
        "centres": [(name, text) for text, name in parts.centres.items()],
        "distances": list(parts.distances.values()),
        "outcome": parts.outcome,
        "after": after.lines,
        "shape": shape,
    }
    return text_of(stage, backend, f"{given['formula']}; what memory holds is read once", given)


def _placed(o: Reading, shape: Shape) -> Reading:
    """Return an operand whose index is that in a segment where it is, and a thread holds all."""
    own = o.pattern == "along" and (o.inner, o.size) == (shape.inner, shape.length)
    return msgspec.structs.replace(o, at="k") if own and shape.inner > 1 else o


class _Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers that a map reads: lines that compute them from sums and distances, and values."""

    lines: tuple[str, ...]
    values: dict[str, str]


class _Parts:
    """Variables of a segment: sums, largest and smallest, then what is measured from these."""

    def __init__(
        self, stage: Segment, backend: Backend, names: dict[str, str], precise: Precise | None
    ) -> None:
        self._backend = backend
        self._float = "float" if precise is None else "double"
        self.sums: dict[tuple[str, str], Sum] = {}
        self.distances: dict[tuple[str, str], Sum] = {}
        self.centres: dict[str, str] = {}  # C expression of each -> name
        self._taken = {o.name for o in stage.operands} | {s.name for s in stage.steps}
        body = body_of(stage.steps, _gathered(stage), backend, names)
        values = dict.fromkeys(value for value in body.values if not value.isidentifier())
        local = {v: f"value_{n + 1}" if n else "value" for n, v in enumerate(values)}
        if stage.held:
            local = dict.fromkeys(values, stage.held)
        self.lines = [*body.lines, *(f"const float {n} = {v};" for v, n in local.items())]
        known: dict[str, str] = {}
        for accumulator, value in zip(stage.accumulators, body.values, strict=True):
            known[accumulator.name] = self._found(accumulator, local.get(value, value))
        wanted = list(stage.outcome.values())
        after = body_of(stage.epilogue, wanted, backend, known, double=precise is not None)
        found = dict(zip(stage.outcome, after.values, strict=True))
        more = {} if precise is None else precise.made
        rests = {name: text.format(found[of]) for name, (of, text) in more.items()}
        self.outcome = _Outcome(lines=after.lines, values=found | rests)

    def _found(self, accumulator: Accumulator, value: str) -> str:
        """Return the C expression of an accumulator's outcome, from what is gathered for it."""
        match accumulator.kind:
            case "sum":
                found = f"{self._float}({self._sum('sum', value)})"
            case "mean":
                found = f"{self._float}({self._sum('sum', value)} / length)"
            case "max":
                found = self._sum("larger", value)
            case "min":
                found = self._sum("smaller", value)
            case "variance":
                mean = self._centre("mean", f"float({self._sum('sum', value)} / length)")
                text = f"double({value} - {mean}) * ({value} - {mean})"
                count = "length"
                if accumulator.correction:
                    count = f"(length - {accumulator.correction:g})"
                found = f"{self._float}({self._distance('squares', value, text)} / {count})"
            case "sumexp":
                largest = self._centre("largest", self._sum("larger", value))
                text = BY_NAME["exp"].expression(self._backend, {"self": f"{value} - {largest}"})
                found = f"{self._float}({self._distance('exponentials', value, text)})"
            case _:
                raise AssertionError(accumulator.kind)
        return found

    def _sum(self, kind: Literal["sum", "larger", "smaller"], value: str) -> str:
        wish = {"sum": "sum", "larger": "largest", "smaller": "smallest"}[kind]
        made = Sum(name=_numbered(wish, self.sums), value=value, kind=kind)
        return self._variable("s", self.sums.setdefault((kind, value), made))

    def _distance(self, wish: str, value: str, text: str) -> str:
        made = Sum(name=_numbered(wish, self.distances), value=text, kind="sum")
        return self._variable("d", self.distances.setdefault((wish, value), made))

    def _variable(self, of: str, sum_: Sum) -> str:
        # In C++ there is one for each of the segments that are gathered side by side.
        return f"{of}.{sum_.name}" if self._backend == "cuda" else f"{of}_{sum_.name}[j]"

    def _centre(self, wish: str, text: str) -> str:
        if text in self.centres:
            return self.centres[text]
        name, number = wish, len(self.centres)
        while name in self._taken or (self.centres and name == wish):
            number += 1
            name = f"{wish}_{number}"
        self._taken.add(name)
        return self.centres.setdefault(text, name)


def _gathered(stage: Segment) -> list[StepValue]:
    return [accumulator.of for accumulator in stage.accumulators]


def _numbered(wish: str, known: dict[tuple[str, str], Sum]) -> str:
    return f"{wish}_{len(known) + 1}" if any(sum_.name == wish for sum_ in known.values()) else wish

"""A reduction: elements gathered along dimensions."""

import textwrap
from math import prod

import msgspec

from kernelgen.engines.engine import Engine, Target
from kernelgen.engines.reduce.geometry import Geometry
from kernelgen.engines.reduce.record import Reduce
from kernelgen.engines.stage import Accumulator, StepValue
from kernelgen.engines.text.names import named_results, names_of, text_of
from kernelgen.engines.text.reading import VECTOR, Reading, index_of, power_of_two, reading_of
from kernelgen.engines.text.stage_text import (
    StageText,
    body_of,
    filled,
    gathered_in_words,
    in_words,
)
from kernelgen.problem.record import Backend

_BLOCKS = 2112  # that keep a large GPU busy
_THREADS = 256
_MOST_THREADS = 1024
_WARP = 32
_FILLED = 16  # neighbours that threads of a row read together, at least: two sectors
_BUSY = 1 << 17  # threads that keep a large GPU busy
_LONG_COLUMN = 512
_SHORT_COLUMN = 64
_SHARED_WORDS = 6144  # doubles of shared memory that a block has without asking for more


class _State(msgspec.Struct, frozen=True, kw_only=True):
    """State that gathers a kind of accumulator.

    Attributes:
        kind: the name of its struct.
        words: its size in doubles.
        name: as a member of the struct that a row keeps.
        field: the value that it gathers.
    """

    kind: str
    start: str
    words: int
    outcome: str
    name: str = ""
    field: str = ""


_SPREAD = "{isfinite}({first}) ? {first} : 0.0f, 0.0, 0.0"
_STATES = {
    "sum": _State(kind="Sum", start="0.0", words=1, outcome="{s}.total"),
    "mean": _State(kind="Sum", start="0.0", words=1, outcome="{s}.total / a.length"),
    "prod": _State(kind="Product", start="1.0", words=1, outcome="{s}.total"),
    "max": _State(kind="Largest", start="-INFINITY", words=1, outcome="{s}.best"),
    "min": _State(kind="Smallest", start="INFINITY", words=1, outcome="{s}.best"),
    "argmax": _State(kind="LargestAt", start="-INFINITY, -1", words=2, outcome="{s}.at"),
    "argmin": _State(kind="SmallestAt", start="INFINITY, -1", words=2, outcome="{s}.at"),
    "sumexp": _State(kind="SumExp", start="-INFINITY, 0.0", words=2, outcome="{s}.sum()"),
    "variance": _State(
        kind="Spread", start=_SPREAD, words=3, outcome="{s}.variance(a.length, {correction})"
    ),
}
# A kind of which another state of the same values knows the outcome as well.
_KNOWN_BY = {
    ("max", "sumexp"): "{s}.most",
    ("max", "argmax"): "{s}.best",
    ("min", "argmin"): "{s}.best",
    ("mean", "variance"): "{s}.mean(a.length)",
}


class ReduceEngine(Engine[Reduce]):
    """Reductions, which wait until one of their values is needed in memory."""

    record = Reduce

    def words(self, stage: Reduce) -> str:
        """Return a reduction as a formula for each result."""
        return "; ".join(_formulas(stage))

    def text(self, stage: Reduce, target: Target) -> StageText:
        """Return a reduction as text."""
        return _text(stage, target.backend)


def _text(stage: Reduce, backend: Backend) -> StageText:
    plan = Geometry(stage)
    operands = [reading_of(o, plan.shape, in_32_bits=True) for o in plan.operands]
    result_shape = stage.results[0].type.shape
    beside = [reading_of(o, result_shape) for o in stage.beside]
    given = names_of(stage, backend, operands, beside)
    wanted = list(dict.fromkeys(a.of for a in stage.accumulators))
    body = body_of(stage.steps, wanted, backend)
    fields = [of if isinstance(of, str) else f"number_{n}" for n, of in enumerate(wanted)]
    field_of = dict(zip(wanted, fields, strict=True))
    states, outcomes = _states(
        stage.accumulators, field_of, "isfinite" if backend == "cuda" else "std::isfinite"
    )
    after = body_of(stage.epilogue, [r.of for r in stage.results], backend)
    results = named_results(stage, after.values)
    spread_operands = [o for o in operands if o.repeats]
    cuda = backend == "cuda"
    neighbours = plan.inner if plan.columns else plan.neighbours
    vectors = cuda and neighbours % VECTOR == 0 and any(o.reading == "vector" for o in operands)
    width = VECTOR if vectors and all(o.reading != "none" for o in operands) else 1
    words = sum(s.words for s in states)
    whole = sum(operand.reading == "vector" for operand in operands) or 1
    ahead = max(2, (VECTOR if width == VECTOR else 8) // whole)
    threads, group = _threads(plan, width, ahead)
    if group > _THREADS:
        width = 1  # so little that it is not worth a kernel of its own
    column_count = _columns(plan, _THREADS // 4)
    if plan.length <= _SHORT_COLUMN and plan.outer * plan.inner >= _BLOCKS * _THREADS:
        column_count = _columns(plan, _THREADS * width)  # of threads that share them with nobody
    if plan.columns:
        tiles, least = -(-plan.inner // column_count) * plan.outer, threads
    else:
        tiles, least = prod(result_shape), threads * 16
    few = tiles < _BLOCKS // 4 and (plan.columns or group >= _WARP * 8)
    # Values that are only picked are not gathered.
    sliced = cuda and few and plan.length > 4 * least and bool(states)
    long = plan.columns and not sliced and plan.length >= _LONG_COLUMN
    if long and words * _MOST_THREADS <= _SHARED_WORDS:
        # Large blocks: those that run at once read fewer places, so that memory keeps pages open.
        threads, column_count = _MOST_THREADS, _columns(plan, _MOST_THREADS // 8)
    across = max(1, column_count // width)
    # Reads under way together: as many as have a column's lanes wait the fewest times.
    reads = -(-plan.length * across // threads) if plan.columns else ahead
    ahead = min(range(ahead, 1, -1), key=lambda ahead: reads // ahead + reads % ahead)
    has_main = width == VECTOR or (cuda and bool(spread_operands))
    by_elements = width == 1 and (cuda or not (plan.inner_text or spread_operands))
    # Of C++, measured with cold caches: longer chunks slow sums down, and speed these two up.
    slow = any(s.kind in {"Spread", "SumExp"} for s in states)
    chunk = 64 if plan.columns else 1024 if slow else 256
    over = "all dimensions" if plan.whole else f"dimensions {stage.dims}".replace(",)", ")")
    formula = ", ".join(f"{text} over {over}" for text in _formulas(stage))
    arguments = [
        *((f"const {o.c_type}*", o.name) for o in (*operands, *beside) if not o.is_number),
        *((f"{r['c_type']}*", r["name"]) for r in results),
        *([("void*", "partials")] if sliced else []),
        *(("float", o.name) for o in given["numbers"]),
        *(("int64_t", name) for name in ("rows", "length")),
        *(("int64_t", name) for name in ("inner", "piece") if plan.inner_text),
        *([("int64_t", "slices")] if sliced else []),
        *(("int64_t", f"{o.name}_{size}") for o in given["spread"] for size in ("inner", "size")),
    ]
    picks = [
        {
            "name": a.name,
            "field": field_of[a.of],
            "at": a.at,
            "offset": f"offset_of(a, {a.at})" if plan.inner_text else a.at,
        }
        for a in stage.accumulators
        if a.kind == "pick"
    ]
    specialised = has_main and bool(spread_operands)
    given |= {
        "description": f"{formula}.",
        "docstring": textwrap.fill(
            f'"""Return {formula}."""',
            initial_indent="    ",
            subsequent_indent="    ",
            width=100,
            break_long_words=False,
        ),
        "device": "__device__ " if cuda else "",
        "some": "float" if cuda else "double",
        "operands": [_with_places(o) for o in operands],
        "beside": beside,
        "results": results,
        "fields": fields,
        "lines": body.lines,
        "values": body.values,
        "states": states,
        "outcomes": outcomes,
        "plain": not stage.steps and len(operands) == 1,
        "value": "Values" if len(fields) > 1 else "float",
        "parameters": ", ".join(f"{kind} {name}" for kind, name in arguments),
        "fields_given": ", ".join(name for _, name in arguments),
        "first": "first_of(a, row)" if plan.inner_text else "row * a.length",
        "bare": len(states) == len(fields) == 1,
        "picks": picks,
        "after_lines": after.lines,
        "shifts": any(s.kind == "Spread" for s in states),
        "needs_value": by_elements or any(s.kind == "Spread" for s in states) or picks,
        "constants": specialised,
        "has_main": has_main,
        "general": "<false>" if specialised else "",
        "main": "<kMain>" if specialised else "",
        "is_main": _is_main(operands, plan, width),
        "columns": plan.columns,
        "across": across,
        "threads": threads,
        "group": group,
        "width": width,
        "ahead": ahead,
        "chunk": (8 if plan.columns else width) if cuda else chunk,
        "sliced": sliced,
        "slices": _BLOCKS,
        "tiles": plan.tiles(column_count),
        "least": least,
        "words": words,
        "inner": plan.inner_text,
        "order": plan.order,
        "whole": plan.whole,
        "kept": plan.kept,
        "rows": plan.rows_text,
        "length": plan.length_text,
    }
    kinds = tuple(dict.fromkeys(s.kind for s in states))
    return msgspec.structs.replace(text_of(stage, backend, formula, given), accumulators=kinds)


def _states(
    accumulators: tuple[Accumulator, ...], field_of: dict[StepValue, str], isfinite: str
) -> tuple[list[_State], list[dict[str, str]]]:
    """Return the states that are kept, each once, and what each accumulator's outcome is."""
    gathering = [a for a in accumulators if a.kind != "pick"]
    states: dict[tuple[str, str], _State] = {}
    outcomes = []
    for one in gathering:
        first = "first" if len(field_of) == 1 else f"first.{field_of[one.of]}"
        field, kind, text = field_of[one.of], one.kind, _STATES[one.kind].outcome
        for other in gathering:
            if other.of == one.of and (one.kind, other.kind) in _KNOWN_BY:
                kind, text = other.kind, _KNOWN_BY[one.kind, other.kind]
        state = _STATES[kind]
        made = states.setdefault(
            (state.kind, field),
            msgspec.structs.replace(
                state,
                name=f"{field}_{state.kind.lower()}",
                field=field,
                start=state.start.format(first=first, isfinite=isfinite),
            ),
        )
        kept = f"state.{made.name}"
        text = text.format(s=kept, correction=one.correction)
        c_type = "int64_t" if one.kind.startswith("arg") else "float"
        text = text if c_type == "int64_t" else f"static_cast<float>({text})"
        outcomes.append({"name": one.name, "c_type": c_type, "text": text})
    if len(states) == len(field_of) == 1:
        (only,) = states.values()
        for outcome in outcomes:
            outcome["text"] = outcome["text"].replace(f"state.{only.name}", "state")
    return list(states.values()), outcomes


def _with_places(o: Reading) -> dict[str, object]:
    """Return an operand with its index, and itself, where sizes are constants."""
    at = index_of(o.pattern, str(o.inner), str(o.size), o.index_type)
    element = o.element if o.is_number else f"a.{o.name}[{at}]"
    places = {"at_main": at, "element_main": element, "element_in_run": o.element_in_run}
    return {**msgspec.structs.asdict(o), **places, "value_type": o.value_type}


def _is_main(operands: list[Reading], plan: Geometry, width: int) -> str:
    """Return the C condition under which the kernel for the main shape is right."""
    parts = []
    spread = [o for o in operands if o.repeats]
    if width == VECTOR:
        parts = [f"is_aligned({o.name})" for o in operands if o.reading == "vector"]
        # An operand that is the same for four neighbours, or is read with them.
        neighbours = "inner" if plan.columns else "piece" if plan.inner_text else "length"
        parts += [f"{neighbours} % {VECTOR} == 0"]
    for o in spread:
        parts += [f"{o.name}_inner == {o.inner}", f"{o.name}_size == {o.size}"]
    if spread and spread[0].index_type == "unsigned":
        parts += ["rows * length <= UINT32_MAX"]
    return " && ".join(parts)


def _threads(plan: Geometry, width: int, ahead: int) -> tuple[int, int]:
    """Return the threads of a block and of a row.

    Threads of a short row are so few that each reads `ahead` times at once, where that many are
    enough for the device and their first reads fill what memory gives at least.
    """
    rows = plan.inner * plan.outer
    if plan.columns:
        return _THREADS, 1
    if plan.length <= 4 * _THREADS or (plan.length <= 32 * _THREADS and rows >= 64 * _THREADS):
        group = 1
        while group < _WARP and 2 * group * width <= plan.length:
            enough = group * width >= _FILLED and rows * group >= _BUSY
            if enough and 2 * group * width * ahead > plan.length:
                break
            group *= 2
        return _THREADS, group
    if rows * 64 < _BLOCKS and plan.length <= _THREADS * _THREADS:
        return _MOST_THREADS, _MOST_THREADS
    return _THREADS, _THREADS


def _columns(plan: Geometry, most: int) -> int:
    """Return how many columns a block reads: a power of two."""
    return max(4, power_of_two(min(plan.inner, most)))


def _formulas(stage: Reduce) -> list[str]:
    """Return each result as a formula, for a reader."""
    gathered = gathered_in_words(stage)
    return [filled(in_words(stage.epilogue, result.of), gathered) for result in stage.results]

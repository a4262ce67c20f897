"""A segment that a chip reads from memory once, whatever its length."""

import msgspec

from kernelgen.engines.schedule import Schedule
from kernelgen.engines.segment.outcome import Precise, segment_names
from kernelgen.engines.segment.record import Segment
from kernelgen.engines.segment.ways import elementwise, statistics_of, vector_of
from kernelgen.engines.text.names import element_names, text_of
from kernelgen.engines.text.reading import VECTOR, reading_of
from kernelgen.engines.text.stage_text import C_TYPES, StageText, body_of
from kernelgen.problem.record import Backend

_IN_CACHES = "a processor's caches hold a segment, which is read once where it fits them"
_HOW = {
    "registers": "the registers of a block hold a segment, which is read once",
    "cache": "a block's cache holds a segment, which is read from memory once",
    "rings": "the shared memory of all blocks holds segments, which are read once",
    "columns": "the shared memory of all blocks holds segments, which are read once, and registers "
    "hold a weight",
    "slices": "blocks sum slices of the segments, then map them",
}
# Operators that are as fast in double; what becomes of elements by others is gathered in float.
_IN_DOUBLE = frozenset(("abs", "add", "mul", "neg", "pow_2", "square", "sub"))
# Statistics -> each accumulator's outcome, in double. A distance is from `first`.
_OUTCOMES = {
    "moments": {
        "mean": "{first} + s.sum / length",
        "sum": "{first} * length + s.sum",
        "variance": "variance_of(s, length)",
    },
    "total": {"sum": "s.total", "mean": "s.total / length"},
    "softmax": {"max": "s.max", "sumexp": "s.total"},
}
_IN_PIECES = {"mean": "s.mean", "sum": "s.mean * length", "variance": "s.m2 / length"}  # in C++


def one_pass_text(stage: Segment, backend: Backend, arch: str, schedule: Schedule) -> StageText:
    """Return a segment as CUDA for an architecture, or as C++."""
    is_cuda = backend == "cuda"
    statistics = statistics_of(stage)
    assert statistics is not None
    (x,) = stage.kept
    after = Precise(stage, inverses=is_cuda)
    vector = vector_of(stage) or VECTOR
    operands = [reading_of(o, stage.shape, in_32_bits=True, width=vector) for o in stage.operands]
    others = [o for o in operands if o.name != x and not o.is_number]
    weights = {o.name for o in elementwise(stage)}
    (value,) = {a.of for a in stage.accumulators}
    as_fast = all(step.operator in _IN_DOUBLE for step in stage.steps)
    in_double = is_cuda and statistics == "total" and as_fast
    before = body_of(stage.steps, [value], backend, double=in_double)
    gathers = before.values[0] != x
    first = "gathered(first)" if gathers else "first"
    lines = []
    outcomes = _OUTCOMES[statistics] if is_cuda or statistics != "moments" else _IN_PIECES
    for one in stage.accumulators:
        found = outcomes[one.kind].format(first=first)
        if one.correction:
            found += f" * (length / (length - {one.correction:g}))"
        lines.append(f"const double {one.name} = {found};")
    epilogue = body_of(stage.epilogue, list(stage.outcome.values()), backend, double=True)
    known = dict(zip(stage.outcome, epilogue.values, strict=True))
    steps = (*stage.steps, *after.steps) if stage.held else after.steps
    body = body_of(steps, [after.result], backend, element_names(operands, backend))
    given = segment_names(stage, backend, operands, has_workspace=is_cuda) | {
        "statistics": statistics,
        "way": stage.way,
        "arch": arch,
        "schedule": schedule,
        "length": stage.length,
        "x": x,
        "x_type": C_TYPES[stage.mapped_again[0].type.dtype],
        "vector": vector,
        "others": others,
        "by_element": [o for o in others if o.name in weights],
        "before": before.lines,
        "gathers": gathers,
        "gathered_type": "double" if in_double else "float",
        "gathered_value": before.values[0],
        "outcome_lines": (*lines, *epilogue.lines),
        "outcome": {name: f"float({text})" for name, text in known.items()}
        | {name: text.format(known[of]) for name, (of, text) in after.made.items()},
        "after": body.lines,
        "mapped": body.values[0],
    }
    idea = f"{given['formula']}; {_HOW[stage.way] if is_cuda else _IN_CACHES}"
    made = text_of(stage, backend, idea, given, "one_pass")
    return msgspec.structs.replace(made, features="tuned" if is_cuda else "")

"""A segment that a GPU reads from memory once, whatever its length."""

from kernelgen.planning.norms.ways import elementwise, statistics_of
from kernelgen.planning.plan import Segment
from kernelgen.rendering.environment import checked_source, cpp_environment, python_environment
from kernelgen.rendering.schedule import Schedule
from kernelgen.rendering.stages.gathering import names_of
from kernelgen.rendering.stages.outcome import Precise, extent_names, formula_of
from kernelgen.rendering.stages.reading import reading_of
from kernelgen.rendering.stages.stage_text import StageText, body_of, call_of

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
# What is gathered -> each accumulator's outcome, in double. A distance is from `first`.
_OUTCOMES = {
    "moments": {
        "mean": "{first} + s.sum / length",
        "sum": "{first} * length + s.sum",
        "variance": "variance_of(s, length)",
    },
    "total": {"sum": "s.total", "mean": "s.total / length"},
    "softmax": {"max": "s.max", "sumexp": "s.total"},
}


def render_one_pass(stage: Segment, arch: str, schedule: Schedule) -> StageText:
    """Return a segment as CUDA for an architecture."""
    statistics = statistics_of(stage)
    assert statistics is not None
    (x,) = stage.kept
    after = Precise(stage, inverses=True)
    readings = [reading_of(o, stage.shape, in_32_bits=True) for o in stage.operands if o.name != x]
    weights = {o.name for o in elementwise(stage)}
    others = [o for o in readings if not o.is_number]
    operands = [reading_of(o, stage.shape, in_32_bits=True) for o in stage.operands]
    (value,) = {a.of for a in stage.accumulators}
    in_double = statistics == "total" and all(s.operator in _IN_DOUBLE for s in stage.steps)
    before = body_of(stage.steps, [value], "cuda", double=in_double)
    gathers = before.values[0] != x
    first = "gathered(first)" if gathers else "first"
    lines = []
    for one in stage.accumulators:
        found = _OUTCOMES[statistics][one.kind].format(first=first)
        if one.correction:
            found += f" * (length / (length - {one.correction:g}))"
        lines.append(f"const double {one.name} = {found};")
    epilogue = body_of(stage.epilogue, list(stage.outcome.values()), "cuda", double=True)
    known = dict(zip(stage.outcome, epilogue.values, strict=True))
    body = body_of(after.steps, [after.result], "cuda")
    formula = formula_of(stage)
    names = (
        names_of(stage, "cuda", operands)
        | extent_names(stage)
        | {
            "formula": formula,
            "has_workspace": True,
            "statistics": statistics,
            "way": stage.way,
            "arch": arch,
            "schedule": schedule,
            "length": stage.length,
            "x": x,
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
            "signature": [
                *(f"const float* {o.name}" for o in operands if not o.is_number),
                "float* out, void* workspace",
                *(f"float {o.name}" for o in operands if o.is_number),
            ],
        }
    )
    template = "cuda/segment/one_pass.cu.jinja"
    steps = (*stage.steps, *stage.epilogue, *stage.after)
    return StageText(
        kind="one_pass",
        idea=f"{formula}; {_HOW[stage.way]}",
        kernel=checked_source(cpp_environment().get_template(template).render(names), template),
        function=python_environment().get_template("stages/segment.py.jinja").render(names),
        call=call_of(stage.name, stage),
        operators=tuple(dict.fromkeys(step.operator for step in steps)),
    )

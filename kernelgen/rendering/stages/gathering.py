"""Names that the templates of all kinds of stages are given: operands, results, steps."""

from collections.abc import Sequence
from typing import Any

from kernelgen.planning.plan import (
    Kernel,
    Map,
    Pool,
    Reduce,
    Scan,
    Segment,
    StepValue,
    results_of,
)
from kernelgen.planning.rewrites.builder import broadcast
from kernelgen.problem.record import Backend
from kernelgen.rendering.environment import cpp_environment, python_environment
from kernelgen.rendering.stages.reading import VECTOR, Reading, reading_of
from kernelgen.rendering.stages.stage_text import (
    C_TYPES,
    StageText,
    body_of,
    call_of,
    definition_of,
    in_words,
)


def names_of(
    stage: Kernel, backend: Backend, operands: Sequence[Reading], beside: Sequence[Reading] = ()
) -> dict[str, Any]:
    """Return a template's names for what a stage reads, also beside what it gathers."""
    read, results = (*operands, *beside), results_of(stage)
    return {
        "name": stage.name,
        "definition": definition_of(stage),
        "operands": operands,
        "tensors": [o for o in operands if not o.is_number],
        "beside_tensors": [o for o in beside if not o.is_number],
        "numbers": [o for o in read if o.is_number],
        "spread": [o for o in read if o.repeats],
        "out_type": C_TYPES[results[0].type.dtype],
        "out_dtype": results[0].type.dtype,
        "rank": len(stage.shape),
        "backend": backend,
        "parts": _parts(stage),
    }


def _parts(stage: Kernel) -> list[tuple[str, ...]]:
    """Return sets of tensors that have the stage's shape alone, where others are read beside them.

    Something that is written or gathered is computed from each. Where an input has one element
    along some dimension, and the others have more, that has another shape, or is gathered of fewer
    elements, than the stage: a file has to refuse such inputs.
    """
    match stage:
        case Map():
            wanted = [result.of for result in stage.results]
        case Reduce():
            wanted = [accumulator.of for accumulator in stage.accumulators]
        case Segment():
            wanted = [*(accumulator.of for accumulator in stage.accumulators), stage.result.of]
        case _:
            return []
    shapes = {o.name: o.type.shape for o in stage.operands if not o.is_number}
    behind = {name: {name} for name in shapes}
    for step in (*stage.steps, *(stage.after if isinstance(stage, Segment) else ())):
        read = (behind.get(str(value), set()) for value in step.arguments.values())
        behind[step.name] = set().union(*read)
    sets = dict.fromkeys(tuple(n for n in shapes if n in behind.get(str(of), ())) for of in wanted)
    return [
        names
        for names in sets
        if 0 < len(names) < len(shapes) and broadcast(*(shapes[n] for n in names)) == stage.shape
    ]


def element_names(operands: Sequence[Reading], backend: Backend) -> dict[str, str]:
    """Return what an element of a tensor is called where the tensor has its name: in C++."""
    return {o.name: f"{o.name}_i" for o in operands if backend == "cpp" and not o.is_number}


def gathered_names(
    stage: Map | Scan | Pool, backend: Backend, wanted: Sequence[StepValue]
) -> dict[str, Any]:
    """Return a template's names for what a stage computes of its operands: the wanted values.

    `vectors` says whether rows of whole vectors have a kernel: of operands that repeat, it knows
    the main shape. `by_line` says whether a pool has one that reads those once a line.
    """
    of = "a." if backend == "cuda" else ""
    narrow = isinstance(stage, Map)
    operands = [reading_of(o, stage.shape, of, in_32_bits=narrow) for o in stage.operands]
    after = [(o, stage.result.type.shape) for o in stage.beside] if isinstance(stage, Pool) else []
    beside = [reading_of(o, shape, of) for o, shape in after]
    body = body_of(stage.steps, wanted, backend, element_names(operands, backend))
    spread = [operand for operand in operands if operand.repeats]
    whole = not spread or stage.shape[-1] % VECTOR == 0
    vectors = whole and all(operand.reading != "none" for operand in operands)
    by_line = backend == "cuda" and isinstance(stage, Pool) and bool(spread) and not vectors
    by_line = by_line and all(
        o.inner % stage.shape[-1] == 0 or (o.pattern, o.size) == ("along", 1) for o in spread
    )
    return names_of(stage, backend, operands, beside) | {
        "beside": beside,
        "spread_before": spread,
        "formula": ", ".join(in_words(stage.steps, of) for of in wanted),
        "lines": body.lines,
        "values": body.values,
        "value": body.values[0],
        "vectors": vectors,
        "by_line": by_line,
        "main": "kMain" if by_line else "kVectors",
    }


def named_results(stage: Map | Reduce, values: Sequence[str]) -> list[dict[str, str]]:
    """Return a template's names for results, whose values are C expressions."""
    outs = [f"out_{n + 1}" for n in range(len(values))] if values[1:] else ["out"]
    return [
        {"name": out, "c_type": C_TYPES[r.type.dtype], "dtype": r.type.dtype, "value": value}
        for out, r, value in zip(outs, stage.results, values, strict=True)
    ]


def text_of(
    stage: Kernel,
    backend: Backend,
    idea: str,
    given: dict[str, Any],
    accumulators: tuple[str, ...] = (),
) -> StageText:
    """Return a stage as text, by the templates of its kind, which are given names."""
    kind = str(stage.__struct_config__.tag)
    template = f"{backend}/stages/{kind}.{'cu' if backend == 'cuda' else 'cpp'}.jinja"
    steps = (*stage.steps, *getattr(stage, "epilogue", ()), *getattr(stage, "after", ()))
    operators = [step.operator for step in steps]
    operators += ["exp" for a in getattr(stage, "accumulators", ()) if a.kind == "sumexp"]
    return StageText(
        kind=kind,
        idea=idea,
        kernel=cpp_environment().get_template(template).render(given),
        function=python_environment().get_template(f"stages/{kind}.py.jinja").render(given),
        call=call_of(stage.name, stage),
        operators=tuple(dict.fromkeys(operators)),
        accumulators=accumulators,
    )

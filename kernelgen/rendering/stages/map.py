"""A map: results computed element by element."""

from kernelgen.planning.plan import Map
from kernelgen.problem.record import Backend
from kernelgen.rendering.environment import cpp_environment, python_environment
from kernelgen.rendering.stages.reading import VECTOR, count_of, reading_of
from kernelgen.rendering.stages.stage_text import (
    C_TYPES,
    StageText,
    body_of,
    call_of,
    definition_of,
    in_words,
    operators_of,
)


def render_map(stage: Map, backend: Backend) -> StageText:
    """Return a map as text."""
    of = "a." if backend == "cuda" else ""
    operands = [reading_of(operand, stage.shape, of) for operand in stage.operands]
    # In C++ a tensor has its name, and an element of it another one.
    names = {o.name: f"{o.name}_i" for o in operands if backend == "cpp" and o.pattern != "number"}
    body = body_of(stage.steps, [result.of for result in stage.results], backend, names)
    outs = (
        ["out"] if len(stage.results) == 1 else [f"out_{n + 1}" for n in range(len(stage.results))]
    )
    results = [
        {
            "name": name,
            "c_type": C_TYPES[result.type.dtype],
            "dtype": result.type.dtype,
            "value": value,
        }
        for name, result, value in zip(outs, stage.results, body.values, strict=True)
    ]
    formula = ", ".join(in_words(stage.steps, result.of) for result in stage.results)
    whole = count_of(stage.shape) % VECTOR == 0
    vectors = sum(operand.reading == "vector" for operand in operands)
    given = {
        "name": stage.name,
        "definition": definition_of(stage.name, stage.operands, len(results)),
        "formula": formula,
        "operands": operands,
        "tensors": [operand for operand in operands if operand.pattern != "number"],
        "numbers": [operand for operand in operands if operand.pattern == "number"],
        "spread": [operand for operand in operands if operand.pattern in {"along", "across"}],
        "results": results,
        "lines": body.lines,
        "fast": whole and vectors > 0 and all(operand.reading != "none" for operand in operands),
        "vectors": 4 if vectors == 1 else 2,
        "backend": backend,
    }
    folder, suffix = ("cuda", "cu") if backend == "cuda" else ("cpp", "cpp")
    return StageText(
        kind="map",
        idea=f"{formula}, element by element",
        kernel=cpp_environment().get_template(f"{folder}/stages/map.{suffix}.jinja").render(given),
        function=python_environment().get_template("stages/map.py.jinja").render(given),
        call=call_of(stage.name, stage.operands),
        operators=operators_of(stage.steps),
    )


def c_name(value: str) -> str:
    """Return a value's name as C and Python have it: a part of several has a dot in the plan."""
    return value.replace(".", "_")

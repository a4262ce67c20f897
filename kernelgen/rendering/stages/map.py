"""A map: results computed element by element."""

from kernelgen.planning.plan import Map
from kernelgen.problem.record import Backend
from kernelgen.rendering.environment import cpp_environment, python_environment
from kernelgen.rendering.stages.gathering import gathered_names
from kernelgen.rendering.stages.reading import VECTOR, count_of
from kernelgen.rendering.stages.stage_text import (
    C_TYPES,
    StageText,
    call_of,
    operators_of,
)


def render_map(stage: Map, backend: Backend) -> StageText:
    """Return a map as text."""
    given = gathered_names(stage, backend, [result.of for result in stage.results])
    several = len(stage.results) > 1
    vectors = any(operand.reading == "vector" for operand in given["operands"])
    can = all(operand.reading != "none" for operand in given["operands"])
    given |= {
        "results": [
            {
                "name": f"out_{number}" if several else "out",
                "c_type": C_TYPES[result.type.dtype],
                "dtype": result.type.dtype,
                "value": value,
            }
            for number, (result, value) in enumerate(
                zip(stage.results, given["values"], strict=True), 1
            )
        ],
        "fast": can and vectors and count_of(stage.shape) % VECTOR == 0,
    }
    folder, suffix = ("cuda", "cu") if backend == "cuda" else ("cpp", "cpp")
    return StageText(
        kind="map",
        idea=f"{given['formula']}, element by element",
        kernel=cpp_environment().get_template(f"{folder}/stages/map.{suffix}.jinja").render(given),
        function=python_environment().get_template("stages/map.py.jinja").render(given),
        call=call_of(stage.name, stage.operands),
        operators=operators_of(stage.steps),
    )


def c_name(value: str) -> str:
    """Return a value's name as C and Python have it: a part of several has a dot in the plan."""
    return value.replace(".", "_")

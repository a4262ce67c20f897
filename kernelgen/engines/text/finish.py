"""The epilogue of an element as the function `finish` of products and convolutions."""

from collections.abc import Callable, Collection
from typing import Any

from kernelgen.engines.rows import FLOATS
from kernelgen.engines.stage import Kernel
from kernelgen.engines.text.names import names_of
from kernelgen.engines.text.reading import Reading, index_of, reading_of
from kernelgen.engines.text.stage_text import body_of
from kernelgen.problem.record import Backend

OF = "a.beside."
"""Where kernels have what the epilogue reads: in a namespace of its own."""


def finish_names(
    stage: Kernel,
    made: str,
    backend: Backend,
    along: Callable[[Reading], str],
    late: Collection[str] = (),
) -> dict[str, Any]:
    """Return a template's names for the epilogue of what a kernel has `made` of an element.

    `along` gives the C expression for the index of an operand that repeats along some dimensions.
    `late` are read for an element of the result, and not of the stage's shape.
    """
    shapes = dict.fromkeys(late, stage.result.type.shape)
    # Late ones last, as in Python.
    read = sorted(stage.beside, key=lambda o: o.name in shapes)
    beside = [reading_of(o, shapes.get(o.name, stage.shape), OF) for o in read]
    names = {made: made} | {o.name: _element(o, backend, along) for o in beside}
    after = body_of(stage.epilogue, [stage.mapped], backend, names)
    return names_of(stage, backend, (), beside) | {
        "made": made,
        "elements": names,
        "beside": beside,
        "lines": after.lines,
        "value": after.values[0],
    }


def _element(operand: Reading, backend: Backend, along: Callable[[Reading], str]) -> str:
    """Return the C expression that reads an operand for element `at`, of a column."""
    if operand.is_number:
        return operand.element
    name = f"{OF}{operand.name}"
    at = index_of(operand.pattern, f"{name}_inner", f"{name}_size", i="at")
    if backend == "cpp":
        narrow = operand.value_type != operand.c_type
        return f"float({name}[{at}])" if narrow else f"{name}[{at}]"
    if operand.pattern == "along":
        at = along(operand)
    # Others than floats have no load by the read-only path.
    return f"__ldg({name} + {at})" if operand.dtype in FLOATS else f"{name}[{at}]"

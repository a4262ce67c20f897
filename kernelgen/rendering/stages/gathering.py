"""What maps, scans and pools have in common: operands, read by fours, and steps over them."""

from collections.abc import Sequence
from typing import Any

from kernelgen.planning.plan import Map, Pool, Scan, StepValue
from kernelgen.problem.record import Backend
from kernelgen.rendering.stages.reading import VECTOR, reading_of
from kernelgen.rendering.stages.stage_text import body_of, definition_of, in_words


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
    tensors = [operand for operand in operands if operand.pattern != "number"]
    # In C++ a tensor has its name, and an element of it another one.
    names = {o.name: f"{o.name}_i" for o in tensors if backend == "cpp"}
    body = body_of(stage.steps, wanted, backend, names)
    spread = [operand for operand in operands if operand.pattern in {"along", "across"}]
    whole = not spread or stage.shape[-1] % VECTOR == 0
    vectors = whole and all(operand.reading != "none" for operand in operands)
    by_line = backend == "cuda" and isinstance(stage, Pool) and bool(spread) and not vectors
    by_line = by_line and all(
        o.inner % stage.shape[-1] == 0 or (o.pattern, o.size) == ("along", 1) for o in spread
    )
    return {
        "name": stage.name,
        "definition": definition_of(stage.name, stage.operands, len(wanted)),
        "operands": operands,
        "tensors": tensors,
        "numbers": [operand for operand in operands if operand.pattern == "number"],
        "spread": spread,
        "formula": ", ".join(in_words(stage.steps, of) for of in wanted),
        "lines": body.lines,
        "values": body.values,
        "value": body.values[0],
        "vectors": vectors,
        "by_line": by_line,
        "main": "kMain" if by_line else "kVectors",
        "backend": backend,
    }

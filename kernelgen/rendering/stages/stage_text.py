"""What a stage contributes to a solution, and what all kinds of stages share."""

import re
from collections.abc import Iterable, Mapping

import msgspec

from kernelgen.planning.operators import BY_NAME, literal
from kernelgen.planning.plan import Operand, Reduce, Segment, Step, StepValue
from kernelgen.problem.record import Backend

C_TYPES = {"float32": "float", "bool": "bool", "int64": "int64_t", "float64": "float"}
COLUMNS = 100
_MOST_WORDS = 400  # characters of a formula
_LONGEST = 76  # characters of an expression that stands within another


class StageText(msgspec.Struct, frozen=True, kw_only=True):
    """A stage as text.

    Attributes:
        idea: one sentence for a reader.
        kind: of the stage, which names its templates; "" if it has none.
        kernel: source of its kernels, "" if it has none.
        function: source of the Python function that queues them, "" if it has none.
        call: an expression that makes the stage's results, for forward; a value of the plan
            stands in it as `{value}`.
        operators: names of those whose helpers the kernels call.
        accumulators: structs of accumulators that the kernels keep.
    """

    idea: str
    call: str
    operators: tuple[str, ...] = ()
    accumulators: tuple[str, ...] = ()
    kind: str = ""
    kernel: str = ""
    function: str = ""


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """Steps as C.

    Attributes:
        lines: declarations, in order.
        values: the expression of each value that was asked for.
    """

    lines: tuple[str, ...]
    values: tuple[str, ...]


def definition_of(name: str, operands: Iterable[Operand], results: int = 1) -> str:
    """Return the first line, or lines, of a stage's Python function."""
    kinds = {True: "float", False: "torch.Tensor"}
    given = ", ".join(f"{operand.name}: {kinds[operand.is_number]}" for operand in operands)
    returned = kinds[False] if results == 1 else "tuple[torch.Tensor, ...]"
    line = f"def _{name}({given}) -> {returned}:"
    return line if len(line) <= COLUMNS else f"def _{name}(\n    {given},\n) -> {returned}:"


def call_of(name: str, operands: Iterable[Operand]) -> str:
    """Return the call of a stage's Python function."""
    return f"_{name}({', '.join('{' + operand.value + '}' for operand in operands)})"


def body_of(
    steps: Iterable[Step],
    wanted: Iterable[StepValue],
    backend: Backend,
    names: Mapping[str, str] | None = None,
) -> Body:
    """Return steps as C, each read once in the expression that reads it, where that stays short.

    The body has an expression for each wanted value. `names` are C expressions of operands and
    accumulators whose names are not their own.
    """
    rows = list(steps)
    wanted = list(wanted)
    reads = [value for step in rows for value in step.arguments.values()] + wanted
    known: dict[StepValue, str] = dict((names or {}).items())
    lines: list[str] = []
    for step in rows:
        operator = BY_NAME[step.operator]
        arguments = {
            name: known.get(value, value) if isinstance(value, str) else value
            for name, value in step.arguments.items()
        }
        text = operator.expression(backend, arguments)
        uses = sum(value == step.name for value in reads)
        if uses == 1 and len(text) <= _LONGEST:
            known[step.name] = text
        else:
            lines.append(f"const {C_TYPES[step.dtype]} {step.name} = {text};")
            known[step.name] = step.name
    values = (known.get(v, v) if isinstance(v, str) else literal(v) for v in wanted)
    return Body(lines=tuple(lines), values=tuple(values))


def in_words(steps: Iterable[Step], value: StepValue) -> str:
    """Return a value as a formula of the table's operators, for a reader; `...` if it is long."""
    known: dict[StepValue, str] = {}

    def words(of: StepValue) -> str:
        return known.get(of, f"{of:g}" if isinstance(of, float) else str(of))

    for step in steps:
        made = f"{step.operator}({', '.join(map(words, step.arguments.values()))})"
        known[step.name] = made if len(made) <= _MOST_WORDS else f"{step.operator}(...)"
    return words(value)


def filled(formula: str, known: Mapping[str, str]) -> str:
    """Return a formula with others in place of their names."""
    return re.sub(r"\w+", lambda match: known.get(match[0], match[0]), formula)


def gathered_in_words(stage: Reduce | Segment) -> dict[str, str]:
    """Return what each accumulator gathers as a formula, by its name."""
    return {a.name: f"{a.kind}({in_words(stage.steps, a.of)})" for a in stage.accumulators}

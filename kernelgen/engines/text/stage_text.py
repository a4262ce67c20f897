"""The text that a stage contributes to a solution, and parts that all kinds of stages share."""

import re
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from kernelgen.engines.operators import BY_NAME, NARROW, is_cast, literal
from kernelgen.engines.stage import Kernel, Step, StepValue, operands_of, read_by
from kernelgen.problem.record import Backend

# Of an element in a register, and in memory.
VALUE_TYPES = {"bool": "bool", "int64": "int64_t"}
VALUE_TYPES |= dict.fromkeys(("float32", "float64", *NARROW), "float")
C_TYPES = VALUE_TYPES | {name: name for name in NARROW}
COLUMNS = 100
_MOST_WORDS = 400  # characters of a formula
_LONGEST = 76  # characters of an expression that stands within another


class StageText(msgspec.Struct, frozen=True, kw_only=True):
    """A stage as text.

    Attributes:
        idea: one sentence for a reader.
        templates: of its kernels, then of its function.
        features: of the architecture that it is for: "tuned", others run it as well; "own", it has
            instructions that a plain target lacks; "" if it is for any.
        kernel: source of its kernels, "" if it has none.
        shared: source before it, in sections; a file has one that several stages have once.
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
    templates: tuple[str, ...] = ()
    features: Literal["", "tuned", "own"] = ""
    kernel: str = ""
    shared: tuple[str, ...] = ()
    function: str = ""


class Expressions(msgspec.Struct, frozen=True, kw_only=True):
    """Steps as C.

    Attributes:
        lines: declarations, in order.
        values: the expression of each value that was asked for.
    """

    lines: tuple[str, ...]
    values: tuple[str, ...]


def definition_of(stage: Kernel) -> str:
    """Return the first line, or lines, of a stage's Python function."""
    kinds = {True: "float", False: "torch.Tensor"}
    found = [f"{o.name}: {kinds[o.is_number]}" for o in operands_of(stage)]
    found += stage.parameters
    given, name, results = ", ".join(found), stage.name, len(stage.results)
    returned = kinds[False] if results == 1 else "tuple[torch.Tensor, ...]"
    line = f"def _{name}({given}) -> {returned}:"
    return line if len(line) <= COLUMNS else f"def _{name}(\n    {given},\n) -> {returned}:"


def call_of(name: str, stage: Kernel) -> str:
    """Return the call of a stage's Python function of that name."""
    given = ["{" + operand.value + "}" for operand in operands_of(stage)]
    return f"_{name}({', '.join([*given, *stage.parameters.values()])})"


def body_of(
    steps: Iterable[Step],
    wanted: Iterable[StepValue],
    backend: Backend,
    names: Mapping[str, str] | None = None,
    *,
    double: bool = False,
) -> Expressions:
    """Return steps as C, each read once in the expression that reads it, where that stays short.

    The body has an expression for each wanted value. `names` are C expressions of operands and
    accumulators whose names are not their own. With `double`, floats are computed as doubles.
    """
    rows = list(steps)
    wanted = list(wanted)
    reads = read_by(rows) + wanted
    known: dict[StepValue, str] = dict((names or {}).items())
    lines: list[str] = []
    for step in rows:
        operator = BY_NAME[step.operator]
        arguments = {
            name: known.get(value, value) if isinstance(value, str) else value
            for name, value in step.arguments.items()
        }
        text = operator.expression(backend, arguments, double=double)
        if reads.count(step.name) == 1 and len(text) <= _LONGEST:
            known[step.name] = text
        else:
            c_type = VALUE_TYPES[step.dtype]
            c_type = "double" if double and c_type == "float" else c_type
            lines.append(f"const {c_type} {step.name} = {text};")
            known[step.name] = step.name
    values = (known.get(v, v) if isinstance(v, str) else literal(v) for v in wanted)
    return Expressions(lines=tuple(lines), values=tuple(values))


def in_words(steps: Iterable[Step], value: StepValue) -> str:
    """Return a value as a formula of the table's operators, for a reader; `...` if it is long."""
    known: dict[StepValue, str] = {}

    def words(of: StepValue) -> str:
        return known.get(of, f"{of:g}" if isinstance(of, float) else str(of))

    for step in steps:
        read = ", ".join(map(words, step.arguments.values()))
        made = read if is_cast(step.operator) else f"{step.operator}({read})"
        known[step.name] = made if len(made) <= _MOST_WORDS else f"{step.operator}(...)"
    return words(value)


def filled(formula: str, known: Mapping[str, str]) -> str:
    """Return a formula with others in place of their names."""
    return re.sub(r"\w+", lambda match: known.get(match[0], match[0]), formula)


def gathered_in_words(stage: Kernel) -> dict[str, str]:
    """Return what each accumulator gathers as a formula, by its name."""
    return {a.name: f"{a.kind}({in_words(stage.steps, a.of)})" for a in stage.accumulators}

"""Names that the templates of all kinds of stages are given: operands, results, steps."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kernelgen.engines.environment import cpp_environment, python_environment
from kernelgen.engines.stage import Kernel, StepValue
from kernelgen.engines.text.reading import VECTOR, Reading, reading_of
from kernelgen.engines.text.stage_text import (
    C_TYPES,
    StageText,
    body_of,
    call_of,
    definition_of,
    in_words,
)
from kernelgen.graph.graph import broadcast
from kernelgen.problem.record import Backend

_OF_ANY = frozenset(("max", "min", "argmax", "argmin", "pick"))


def names_of(
    stage: Kernel, backend: Backend, operands: Sequence[Reading], beside: Sequence[Reading] = ()
) -> dict[str, Any]:
    """Return a template's names for what a stage reads, also beside what it gathers."""
    read, results = (*operands, *beside), stage.results
    tensors = [o for o in operands if not o.is_number]

    def memory(dtype: str, shape: str = "") -> str:
        """Return Python for memory of a shape, or the stage's; torch takes short calls faster."""
        like = next((o for o in tensors if o.pattern == "each" and not shape), tensors[0])
        new = "torch.empty_like({})" if like.pattern == "each" and not shape else "{}.new_empty({})"
        end = "" if like.dtype == dtype else f", dtype=torch.{dtype}"
        return new.format(like.name, shape or "shape").replace(")", f"{end})")

    return {
        "operands": operands,
        "tensors": tensors,
        "memory": memory,
        "beside_tensors": [o for o in beside if not o.is_number],
        "numbers": [o for o in read if o.is_number],
        "spread": [o for o in read if o.repeats],
        "more_sizes": ", *repeats" * any(o.repeats for o in operands)
        + ", *beside_repeats" * any(o.repeats for o in beside),
        "out_type": C_TYPES[results[0].type.dtype],
        "out_dtype": results[0].type.dtype,
        "rank": len(stage.shape),
        "backend": backend,
        "parts": parts_of(stage),
        "fewest": _fewest(stage),
    }


def _fewest(stage: Kernel) -> int:
    """Return how many elements there must be to gather: the largest of a softmax may be of none."""
    summed = {a.of for a in stage.accumulators if a.kind == "sumexp"}
    kinds = {a.kind for a in stage.accumulators if a.kind != "max" or a.of not in summed}
    return max(int(not kinds.isdisjoint(_OF_ANY)), *(a.fewest for a in stage.accumulators), 0)


Tensors = tuple[str, ...]


def parts_of(stage: Kernel) -> list[tuple[Tensors, Tensors]]:
    """Return sets of tensors that have the shape of a larger set, where others are beside them.

    Something that is written or gathered, or changed in place, is computed from each. Where an
    input has one element along some dimension, and the others have more, that has another shape, or
    is gathered of fewer elements, than the stage: a file has to refuse such inputs.
    """
    shapes = {o.name: o.type.shape for o in stage.operands if not o.is_number}
    behind = {name: {name} for name in shapes}
    for step in stage.all_steps:
        read = (behind.get(str(value), set()) for value in step.arguments.values())
        behind[step.name] = set().union(*read)
    pairs = [(of, {*shapes}) for of in stage.roots]
    pairs += [(s.arguments[name], behind[s.name]) for s in stage.all_steps for name in s.whole]
    found: dict[tuple[Tensors, Tensors], bool] = {}
    for of, among in pairs:
        both = behind.get(str(of), set()), among
        few, many = (tuple(name for name in shapes if name in one) for one in both)
        own, whole = (broadcast(*(shapes[name] for name in names)) for names in (few, many))
        found[few, many] = 0 < len(few) < len(many) and own == whole
    return [pair for pair, are_parts in found.items() if are_parts]


def element_names(operands: Sequence[Reading], backend: Backend) -> dict[str, str]:
    """Return what an element of a tensor is called where the tensor has its name: in C++."""
    return {o.name: f"{o.name}_i" for o in operands if backend == "cpp" and not o.is_number}


def gathered_names(
    stage: Kernel, backend: Backend, wanted: Sequence[StepValue], *, in_32_bits: bool = False
) -> dict[str, Any]:
    """Return a template's names for what a stage computes of its operands: the wanted values.

    `vectors` says whether rows of whole vectors have a kernel: of operands that repeat, it knows
    the main shape.
    """
    of = "a." if backend == "cuda" else ""
    operands = [reading_of(o, stage.shape, of, in_32_bits=in_32_bits) for o in stage.operands]
    beside = [reading_of(o, stage.result.type.shape, of) for o in stage.beside]
    body = body_of(stage.steps, wanted, backend, element_names(operands, backend))
    spread = [operand for operand in operands if operand.repeats]
    whole = not spread or stage.shape[-1] % VECTOR == 0
    vectors = whole and all(operand.reading != "none" for operand in operands)
    return names_of(stage, backend, operands, beside) | {
        "beside": beside,
        "spread_before": spread,
        "formula": ", ".join(in_words(stage.steps, of) for of in wanted),
        "lines": body.lines,
        "values": body.values,
        "value": body.values[0],
        "vectors": vectors,
        "by_line": False,
        "columns": False,
        "at_plane": {},
        "main": "kVectors",
    }


def named_results(stage: Kernel, values: Sequence[str]) -> list[dict[str, str]]:
    """Return a template's names for results, whose values are C expressions."""
    outs = [f"out_{n + 1}" for n in range(len(values))] if values[1:] else ["out"]
    return [
        {
            "name": out,
            "c_type": C_TYPES[r.type.dtype],
            "dtype": r.type.dtype,
            "value": value,
            "into": r.into,
        }
        for out, r, value in zip(outs, stage.results, values, strict=True)
    ]


def text_of(
    stage: Kernel, backend: Backend, idea: str, given: dict[str, Any], way: str = ""
) -> StageText:
    """Return a stage as text, by the templates of its kind, which are given names beside its own.

    `way` is another template for its kernels.
    """
    kind = str(stage.__struct_config__.tag)
    template = f"{kind}/{way or kind}.{'cu' if backend == 'cuda' else 'cpp'}.jinja"
    function = f"{kind}/{kind}.py.jinja"
    operators = [step.operator for step in stage.all_steps]
    operators += ["exp" for a in stage.accumulators if a.kind == "sumexp"]
    shared: list[str] = []

    def once(caller: Callable[[], str]) -> str:
        shared.append(caller())
        return ""

    names = {**msgspec.structs.asdict(stage), "definition": definition_of(stage), **given}
    kernel = cpp_environment().get_template(template).render(names, once=once)
    return StageText(
        templates=(template, function),
        idea=idea,
        kernel=kernel,
        shared=tuple(shared),
        function=python_environment().get_template(function).render(names),
        call=call_of(stage.name, stage),
        operators=tuple(dict.fromkeys(operators)),
    )

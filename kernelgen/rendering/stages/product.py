"""A product of matrices, and what its epilogue makes of each element."""

from textwrap import wrap

from kernelgen.planning.plan import MULTIPLIED, Product, operands_of
from kernelgen.problem.record import Backend
from kernelgen.rendering.environment import checked_source, cpp_environment, python_environment
from kernelgen.rendering.schedule import Schedule
from kernelgen.rendering.stages.reading import Reading, index_of, reading_of
from kernelgen.rendering.stages.stage_text import (
    StageText,
    body_of,
    definition_of,
    filled,
    in_words,
)

_OF = "a.beside."  # where kernels have what the epilogue reads: in a namespace of its own
_HOW = {
    "hopper": "tensor cores multiply halves of both operands' values, as accurately as fp32",
    "shallow": "tensor cores multiply halves of both operands' values, as accurately as fp32",
    "narrow": "tensor cores multiply three parts of each value, as accurately as fp32",
    "vector": "the matrix is read once, and multiplied in fp32",
    "none": "pieces of both operands that fit a processor's caches are multiplied in fp32",
}


def render_product(stage: Product, backend: Backend, arch: str, schedule: Schedule) -> StageText:
    """Return a product as text; its fast kernel is for an architecture."""
    fast, given = stage.fast, operands_of(stage)
    beside = [reading_of(operand, stage.shape, _OF) for operand in stage.beside]
    names = {MULTIPLIED: MULTIPLIED} | {o.name: _element(o, backend) for o in beside}
    after = body_of(stage.epilogue, [stage.result.of], backend, names)
    text = in_words(stage.epilogue, stage.result.of)
    summary = filled(
        text, {MULTIPLIED: f"{stage.aten}({', '.join(o.name for o in stage.operands)})"}
    )
    what = "Element (r, c) is the product of row r of a and column c of b"
    what += ", plus bias[c]" if len(stage.operands) > len("ab") else ""
    what += f"; it becomes {filled(text, {MULTIPLIED: 'that'})}." if stage.epilogue else "."
    names_in_templates = {
        "name": stage.name,
        "definition": definition_of(stage),
        "summary": summary,
        "what": "\n// ".join(wrap(what, 97, break_long_words=False)),
        "backend": backend,
        "arch": arch,
        "fast": fast,
        "schedule": schedule,
        "has_bias": len(stage.operands) > len("ab"),
        "turned": stage.turned,
        "beside": beside,
        "beside_tensors": [o for o in beside if not o.is_number],
        "numbers": [o for o in beside if o.is_number],
        "spread": [o for o in beside if o.repeats],
        "lines": after.lines,
        "value": after.values[0],
    }
    template = f"{backend}/product/product.{'cu' if backend == 'cuda' else 'cpp'}.jinja"
    kernel = cpp_environment().get_template(template).render(names_in_templates)
    runs = f", in {fast.runs} runs of the depth, whose products are added up" * (fast.runs > 1)
    python = python_environment().get_template("stages/product.py.jinja")
    call = ", ".join("{" + operand.value + "}" for operand in given)
    return StageText(
        kind="product",
        idea=f"{summary}: {_HOW[fast.kernel]}{runs}",
        kernel=checked_source(kernel, template),
        function=python.render(names_in_templates),
        call=f"_{stage.name}({call})",
        operators=tuple(dict.fromkeys(step.operator for step in stage.epilogue)),
    )


def _element(operand: Reading, backend: Backend) -> str:
    """Return the C expression that reads an operand for element `at`, of a column."""
    if operand.is_number:
        return operand.element
    name = f"{_OF}{operand.name}"
    at = index_of(operand.pattern, f"{name}_inner", f"{name}_size", i="at")
    if backend == "cpp":
        return f"{name}[{at}]"
    if operand.pattern == "along":
        at = f"along(at, column, a.b.rows, {name}_inner, {name}_size)"
    # Others than floats have no load by the read-only path.
    return f"__ldg({name} + {at})" if operand.dtype == "float32" else f"{name}[{at}]"

"""Which linear layers are worth a kernel of the file's own on a GPU.

Tensor cores multiply halves of fp32 values several times as fast as torch multiplies in fp32; to
split the operands costs a little, and more the fewer rows share a weight.
"""

from math import prod

import msgspec

from kernelgen.planning.graph import TensorType, references
from kernelgen.planning.plan import Library, Plan, Stage

_LEAST_ROWS = 512
_LEAST_COLUMNS, _LEAST_DEPTH = 128, 128
_MOST_DEPTH = 16384  # that the split holds of a row
_LEAST_PRODUCTS = 1 << 31  # less is over before its kernels are launched


def with_own_products(plan: Plan) -> Plan:
    """Return a plan in which these layers are `own`."""
    weights = {source.name: source.type for source in plan.sources if source.path}
    stages = tuple(_marked(stage, weights) for stage in plan.stages)
    return msgspec.structs.replace(plan, stages=stages)


def _marked(stage: Stage, weights: dict[str, TensorType]) -> Stage:
    if not isinstance(stage, Library) or stage.aten != "linear.default":
        return stage
    (name,), (out,) = references(stage.arguments["weight"]), stage.types
    weight = weights.get(name)
    if weight is None or out is None or {weight.dtype, out.dtype} != {"float32"}:
        return stage
    columns, depth = weight.shape
    rows = prod(out.shape[:-1])
    large = rows >= _LEAST_ROWS and rows * columns * depth >= _LEAST_PRODUCTS
    held = columns >= _LEAST_COLUMNS and _LEAST_DEPTH <= depth <= _MOST_DEPTH
    return msgspec.structs.replace(stage, own=large and held)

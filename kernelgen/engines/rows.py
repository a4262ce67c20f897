"""Nodes that a row of the table of operators computes as torch does."""

from collections.abc import Mapping
from typing import cast

from kernelgen.engines.operators import NARROW, Operator, operator_for
from kernelgen.graph.graph import NUMBER, Argument, Node, Reference, TensorType, references

DTYPES = {"float": "float32", **{name: name for name in ("bool", "int64", *NARROW)}}
FLOATS = frozenset(("float32", *NARROW))
# Types that a kernel reads and writes; all others stay in torch.
_DTYPES = frozenset(DTYPES.values())
_TAKEN = {"float": ("float32", "bool"), "bool": ("bool",), "any": (*DTYPES.values(),)}


def kernel_row(
    node: Node, types: Mapping[str, TensorType]
) -> tuple[Operator, dict[str, Argument]] | None:
    """Return the row of a node that a kernel computes as torch does, and its arguments, filled in.

    None if there is none, or C would give another type than torch, or compute in another: bools
    are added as bools, whole numbers as whole numbers.
    """
    found = operator_for(node.aten, node.arguments)
    if found is None or not is_known(node):
        return None
    operator, filled = found[0], cast("dict[str, Argument]", found[1])
    made = node.type.dtype
    tensors: set[str] = set()  # the types of those that are computed with
    floats = operator.takes != "float" or not references(*filled.values())
    for name, value in filled.items():
        if isinstance(value, Reference):
            one = types[value.name]
            is_number = one == NUMBER and operator.takes != "bool"
            if not is_number and one.dtype not in _TAKEN[operator.takes]:
                return None
            if name not in {"condition", "mask"}:
                tensors.add(one.dtype)
            elif one.dtype != "bool":
                return None
        elif operator.reads(name):
            floats |= not isinstance(value, bool)
            if operator.result == "like" and made == "bool" and not isinstance(value, bool):
                return None
    if operator.result != "like":
        suits = made == DTYPES[operator.result]
    else:
        suits = made == "float32" or tensors <= {made}
    casts = operator.result == "float" and operator.takes == "any"
    suits &= "float64" not in tensors or "float32" in tensors or casts
    # C divides bools as whole numbers.
    suits &= floats or "float32" in tensors or operator.result == "like"
    return (operator, filled) if suits else None


def is_known(node: Node) -> bool:
    """Whether kernels write what it returns."""
    return all(found is not None and found.dtype in _DTYPES for found in node.results)

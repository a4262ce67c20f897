"""Matrix products, however they are written."""

import re
from typing import Literal

from kernelgen.planning.graph import MATRIX, Node, references
from kernelgen.planning.recognition.forms import MatrixProduct
from kernelgen.planning.recognition.parts import Core, Family

_PRODUCTS = ("matmul.default", "mm.default", "bmm.default", "linear.default", "einsum.default")
_TRANSPOSED: dict[tuple[bool, bool], Literal["none", "left", "right", "both"]] = {
    (False, False): "none",
    (True, False): "left",
    (False, True): "right",
    (True, True): "both",
}


class Products(Family):
    """Products of two of forward's parameters."""

    def core(self, node: Node) -> Core | None:
        """Return a product that ends with this node."""
        if node.aten not in _PRODUCTS:
            return None
        given = _einsum(node) if node.aten == "einsum.default" else _operands(node)
        if given is None or node.arguments.get("bias") is not None:
            return None
        (left, left_nodes, left_turned), (right, right_nodes, right_turned) = (
            self._factor(value, turned=turned) for value, turned in given
        )
        if not {left, right} <= self.inputs.keys():
            return None
        shapes = self.shape(left), self.shape(right)
        if min(map(len, shapes)) < MATRIX:
            return None
        # An einsum repeats a dimension of one, along which a product would sum.
        if shapes[0][-2 if left_turned else -1] != shapes[1][-1 if right_turned else -2]:
            return None
        a, b = self.types[left], self.types[right]
        form = MatrixProduct(
            inputs=self.graph.arguments,
            left=left,
            right=right,
            transposed=_TRANSPOSED[left_turned, right_turned],
            a=a.transposed() if left_turned else a,
            b=b if right_turned else b.transposed(),
        )
        nodes = (node.name, *left_nodes, *right_nodes)
        return Core(form=form, begins=(left, right), nodes=nodes)

    def _factor(self, value: str, *, turned: bool) -> tuple[str, list[str], bool]:
        """Return the value that transpositions of the last two dimensions lead to, and these."""
        found: list[str] = []
        while (node := self.nodes.get(value)) is not None and node.transposes:
            found.append(node.name)
            value, turned = node.argument("self"), not turned
        return value, found, turned


def _operands(node: Node) -> list[tuple[str, bool]]:
    """Return the factors of a product, and whether each is transposed."""
    left, right = list(node.arguments)[:2]
    return [(node.argument(left), False), (node.argument(right), node.aten == "linear.default")]


def _einsum(node: Node) -> list[tuple[str, bool]] | None:
    """Return the same of an einsum that is a product of matrices."""
    equation, tensors = node.arguments["equation"], node.arguments["tensors"]
    found = re.fullmatch(r"([a-z]+),([a-z]+)->([a-z]+)", str(equation).replace(" ", ""))
    if found is None or len(found[3]) < MATRIX:
        return None
    left, right = found[1], found[2]
    *batch, row, column = list(found[3])
    depth = "".join(sorted(set(left) - set(found[3])))
    if len(depth) != 1 or len({*batch, row, column}) != len(found[3]):
        return None
    forms = []
    for letters, first, last in ((left, row, depth), (right, depth, column)):
        *lead, one, other = list(letters.rjust(2))
        if lead not in ([], batch) or {one, other} != {first, last}:
            return None
        forms.append(one != first)
    if not {*batch} <= {*left, *right}:
        return None
    return list(zip(references(tensors), forms, strict=True))

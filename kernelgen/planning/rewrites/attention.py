"""Attention whose rows are too long for one kernel, as two products and a softmax."""

from math import prod

from kernelgen.engines.attention import MOST_WIDTH
from kernelgen.engines.product.claims import LEAST_PRODUCTS, LEAST_SIZE
from kernelgen.graph.graph import Argument, Node, Reference
from kernelgen.planning.rewrites.builder import Builder
from kernelgen.planning.rewrites.norms import shares_of


def wide_attention(node: Node, b: Builder) -> Reference | None:
    """Return attention of long keys as two products and a softmax, None of what else there is.

    Its scores take little memory beside its keys, and torch's kernel holds no such keys.
    """
    given = node.arguments
    query, key, value = (Reference(node.argument(name)) for name in ("query", "key", "value"))
    (*lead, queries, depth), (*_, keys, width) = (b.type_of(x).shape for x in (query, value))
    products = prod((*lead, queries, keys, depth + width))
    if (
        (given["attn_mask"], given["dropout_p"], given["is_causal"]) != (None, 0, False)
        or {tuple(b.type_of(x).shape[:-2]) for x in (query, key, value)} != {tuple(lead)}
        or max(depth, width) <= MOST_WIDTH
        or keys > depth
        or products < LEAST_PRODUCTS
        or b.type_of(query).dtype != "float32"  # torch's kernel does not round scores to 16 bits
        or min(queries, keys, width) < LEAST_SIZE
    ):
        return None

    def product(equation: str, left: Reference, right: Reference, columns: int) -> Reference:
        batches = "abcdefgh"[: len(lead)]
        given: dict[str, Argument] = {
            "equation": equation.format(batches),
            "tensors": (left, right),
        }
        return b.emit("einsum.default", given, (*lead, queries, columns))

    scores = product("{0}id,{0}jd->{0}ij", query, key, keys)
    scale = given["scale"] if given["scale"] is not None else depth**-0.5
    weights = shares_of(b, b.pointwise("mul.Tensor", scores, scale), -1)
    return product("{0}ij,{0}jd->{0}id", weights, value, width)

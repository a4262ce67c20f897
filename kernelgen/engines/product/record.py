"""The record of a product."""

from kernelgen.engines.product.choice import ProductChoice
from kernelgen.engines.stage import Kernel

MULTIPLIED = "multiplied"
"""The sum of an element's products in a product's epilogue; no operand and no step has the name."""


class Product(Kernel, frozen=True, kw_only=True, tag="product"):
    """Rows of one operand are multiplied by columns of another.

    The epilogue reads the sum, with its bias, as `MULTIPLIED`.

    Attributes:
        aten: what multiplies them in torch: `matmul`.
        operands: of shapes (..., rows, depth) and (..., depth, columns). A third one is a bias, of
            all columns.
        turned: whether each of the first two has its last dimensions the other way round.
        fast: the kernel for the main shape.
    """

    aten: str
    turned: tuple[bool, bool]
    fast: ProductChoice

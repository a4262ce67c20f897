"""A product of matrices, and what its epilogue makes of each element."""

from math import prod
from textwrap import wrap

import msgspec

from kernelgen.engines.architectures import Architecture, architecture
from kernelgen.engines.engine import Before, Engine, Target, Work
from kernelgen.engines.epilogue import with_epilogue
from kernelgen.engines.naming import Names
from kernelgen.engines.operators import NARROW
from kernelgen.engines.product.choice import ProductChoice, tile_columns
from kernelgen.engines.product.claims import product_of
from kernelgen.engines.product.record import MULTIPLIED, Product
from kernelgen.engines.schedule import (
    ChainSchedule,
    CppProductSchedule,
    NarrowSchedule,
    Schedule,
)
from kernelgen.engines.stage import Kernel, Library, operands_of
from kernelgen.engines.text.finish import OF, finish_names
from kernelgen.engines.text.names import text_of
from kernelgen.engines.text.reading import Reading
from kernelgen.engines.text.stage_text import C_TYPES, StageText, filled, in_words
from kernelgen.problem.schedules import CPU

# Operators of tens of instructions. Of three in a product's epilogue, one of 0.7 ms took 0.85 on an
# H200, and a pass of its own takes 0.02.
_COSTLY = frozenset(
    """
    acos asin atan atan2 celu cos cosh div_floor elu erf erfc exp exp2 expm1 floor_divide fmod gelu
    gelu_tanh hypot log log10 log1p log2 log_sigmoid logaddexp mish pow remainder selu sigmoid silu
    sin sinh softplus tan tanh
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
_HOW = {
    "narrow": "tensor cores multiply values of 16 bits as they are, and sum in fp32",
    "hopper": "tensor cores multiply halves of both operands' values, as accurately as fp32",
    "shallow": "tensor cores multiply halves of both operands' values, as accurately as fp32",
    "skinny": "tensor cores multiply halves of both operands' values, as accurately as fp32",
    "vector": "the matrix is read once, and multiplied in fp32",
    "none": "pieces of both operands that fit a processor's caches are multiplied in fp32",
}


class ProductEngine(Engine[Product]):
    """Products of matrices, in place of torch's where tensor cores or one pass are faster."""

    record = Product

    def replacement(
        self, stage: Library, before: Before, arch: Architecture | None
    ) -> tuple[Product, ...]:
        """Return a product in place of one of torch's; on a CPU, weights stay with its library."""
        found = product_of(stage, before.types, arch)
        if found is None or (
            arch is None and any(o.value in before.weights for o in operands_of(found))
        ):
            return ()
        return (found,)

    def fused(
        self, first: Kernel, second: Kernel, others: Names, arch: Architecture | None
    ) -> tuple[Kernel, ...]:
        """Return a product with a map of its result, for which tensor cores wait meanwhile."""
        del arch
        if not isinstance(first, Product):
            return ()
        costly = sum(step.operator in _COSTLY for step in second.steps)
        # With several runs, their sum would be mapped.
        floats = {"float32", first.operands[0].type.dtype}
        whole = first.fast.runs == 1 and second.result.type.dtype in floats
        return with_epilogue(first, second, others) if whole and costly <= 1 else ()

    def schedule(self, stage: Product, arch: str) -> Schedule:
        """Return the schedule of the fast kernel, or of the C++."""
        if arch == CPU:
            return CppProductSchedule()
        if stage.fast.kernel in {"hopper", "narrow"}:
            kind = ChainSchedule if stage.fast.kernel == "hopper" else NarrowSchedule
            return kind(tile_columns=tile_columns(stage.fast, architecture(arch)))
        return Schedule()

    def work(self, stage: Product) -> Work:
        """Return the multiplications and additions, and the bytes of a split ahead."""
        # A way that splits its operands ahead writes and reads their halves.
        match stage.fast:
            case ProductChoice(kernel="hopper"):
                split = stage.operands[:2]
            case ProductChoice(kernel="skinny", streamed=streamed):
                split = stage.operands[:1] if streamed == "b" else stage.operands[1:2]
            case _:
                split = ()
        return Work(
            flops=2 * prod(stage.shape) * stage.operands[0].type.shape[-1],
            split_bytes=2 * sum(operand.type.bytes for operand in split),
            halves=bool(split),
        )

    def words(self, stage: Product) -> str:
        """Return a product as a formula of the plan's values."""
        return _formula(stage, f"{stage.aten}({', '.join(o.value for o in stage.operands)})")

    def text(self, stage: Product, target: Target) -> StageText:
        """Return a product as text; its fast kernel is for an architecture."""
        fast, has_bias = stage.fast, len(stage.operands) > len("ab")
        factors = stage.operands[0].type
        summary = _formula(stage, f"{stage.aten}({', '.join(o.name for o in stage.operands)})")
        what = "Element (r, c) is the product of row r of a and column c of b"
        what += ", plus bias[c]" * has_bias
        what += f"; it becomes {_formula(stage, 'that')}." if stage.epilogue else "."
        given = finish_names(stage, MULTIPLIED, target.backend, _along) | {
            "summary": summary,
            "what": "\n// ".join(wrap(what, 97, break_long_words=False)),
            "arch": target.arch,
            "schedule": target.schedule or self.schedule(stage, target.arch),
            "has_bias": has_bias,
            "factor_type": C_TYPES[factors.dtype],
            "factor_dtype": f", torch.{factors.dtype}" * (factors.dtype in NARROW),
        }
        runs = f", in {fast.runs} runs of the depth, whose products are added up" * (fast.runs > 1)
        made = text_of(stage, target.backend, f"{summary}: {_HOW[fast.kernel]}{runs}", given)
        features = "own" if target.arch == "sm_90a" else "tuned" * (target.backend == "cuda")
        return msgspec.structs.replace(made, features=features)


def _formula(stage: Product, multiplied: str) -> str:
    """Return the result as a formula of the sum of products, which is called so."""
    return filled(in_words(stage.epilogue, stage.result.of), {MULTIPLIED: multiplied})


def _along(operand: Reading) -> str:
    """Return the C expression for an operand's index at a line and a column."""
    name = f"{OF}{operand.name}"
    return f"line.{operand.name} + ({name}_inner == 1 && {name}_size > 1 ? column : 0)"

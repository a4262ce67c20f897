"""What the templates see: names, tensors and sizes of one problem's kernels and its solution."""

import msgspec

from kernelgen.problem.record import Backend, Prepacking
from kernelgen.rendering.layers import SolutionLayers
from kernelgen.rendering.parameters import (
    STATISTICS,
    Affine,
    LinearSegmentNorm,
    MatrixProduct,
    Parameters,
    SegmentNorm,
    Statistics,
    Step,
    statistics_of,
)

_EXPONENTIAL = frozenset(("gelu", "sigmoid", "silu"))


class KernelInterface(msgspec.Struct, frozen=True, kw_only=True):
    """The C interface of a problem's kernels, the same for every backend.

    Attributes:
        idea: what is computed, in sentences.
        noun: what the result is called.
        exponential: whether the statistics or an activation need one.
        sizes: names of the 64-bit sizes.
        tensors: names of the float tensors in the order of the arguments; the last one is `out`.
    """

    idea: str
    noun: str
    statistics: Statistics
    affine: Affine
    bias: bool
    eps: bool
    steps: tuple[Step, ...]
    activations: tuple[str, ...]
    exponential: bool
    operands: tuple[str, ...]
    sizes: tuple[str, ...]
    tensors: tuple[str, ...]


class ProductInterface(msgspec.Struct, frozen=True, kw_only=True):
    """The C interface of a matrix product's CUDA kernels.

    Attributes:
        idea: what is computed, in sentences.
        prepacked: whether the second operand may be split ahead of the launch.
    """

    idea: str
    steps: tuple[Step, ...] = ()
    activations: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    prepacked: bool = False


def product_interface(
    parameters: Parameters, backend: Backend, prepacking: Prepacking
) -> ProductInterface | None:
    """Return the interface of the matrix product that a template has kernels for, if it has."""
    if isinstance(parameters, MatrixProduct):
        idea = f"Element (r, c) is the product of row r of {parameters.left}"
        if parameters.transposed in {"left", "both"}:
            idea += ", transposed,"
        line = "row" if parameters.transposed in {"right", "both"} else "column"
        idea += f" and {line} c of {parameters.right}."
        return ProductInterface(
            idea=idea + _what_follows(parameters.steps),
            steps=parameters.steps,
            activations=_activations(parameters.steps),
            operands=_operands(parameters.steps),
        )
    # On a CPU the product of a linear layer is torch's own.
    if isinstance(parameters, LinearSegmentNorm) and backend == "cuda":
        idea = "Element (r, c) is the product of row r of x and row c of the weight, plus bias[c]."
        return ProductInterface(idea=idea, prepacked=prepacking == "untimed")
    return None


def _activations(steps: tuple[Step, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(step.activation for step in steps if step.activation))


def _operands(steps: tuple[Step, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(step.operand for step in steps if step.operand))


def kernel_interface(
    parameters: SegmentNorm | LinearSegmentNorm, layers: SolutionLayers
) -> KernelInterface:
    """Return the interface of a norm's kernels."""
    statistics = statistics_of(parameters)
    kind = STATISTICS[statistics]
    affine: Affine = parameters.affine if isinstance(parameters, SegmentNorm) else "none"
    bias = affine != "none" and layers.bias
    steps = parameters.steps
    activations = _activations(steps)
    operands = _operands(steps)
    weights = () if affine == "none" else ("weight", "bias") if bias else ("weight",)
    by_channel = affine == "channel"
    return KernelInterface(
        idea=_idea(parameters, bias=bias),
        noun=kind.noun,
        statistics=statistics,
        affine=affine,
        bias=bias,
        eps=kind.row_layer != "",
        steps=steps,
        activations=activations,
        exponential=kind.exponential or not _EXPONENTIAL.isdisjoint(activations),
        operands=operands,
        sizes=("segments", "length", "inner", "groups") if by_channel else ("segments", "length"),
        tensors=("x", *weights, *operands, "out"),
    )


_SEGMENTS = {
    "groups": "The groups of channels of all samples are segments of contiguous memory.",
    "channels": "The channels of all samples are segments of contiguous memory.",
    "rows": "The trailing dimensions that the layer names make up segments of contiguous memory.",
}
_WORDS = {"+": "add", "-": "subtract", "*": "multiply by"}


def _idea(parameters: SegmentNorm | LinearSegmentNorm, *, bias: bool) -> str:
    if isinstance(parameters, LinearSegmentNorm):
        text = "Each row of x is a segment, normalised by its own mean and variance"
    elif parameters.dim is not None:
        rows = f"The rows along dimension {parameters.dim} are segments of contiguous memory."
        text = f"{rows} {STATISTICS[parameters.statistics].does}"
    else:
        text = f"{_SEGMENTS[parameters.normalises]} {STATISTICS[parameters.statistics].does}"
    if isinstance(parameters, SegmentNorm) and parameters.affine != "none":
        which, index = ("channel c", "c") if parameters.affine == "channel" else ("element i", "i")
        text += f"; then {which} is scaled by weight[{index}]"
        text += f" and shifted by bias[{index}]" if bias else ""
    return f"{text}.{_what_follows(parameters.steps)}"


def _what_follows(steps: tuple[Step, ...]) -> str:
    done = [step.activation or f"{_WORDS[step.symbol]} {step.operand}" for step in steps]
    return f" In the same pass follows, element by element: {', '.join(done)}." if done else ""

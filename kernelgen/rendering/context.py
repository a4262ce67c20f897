"""What the templates see: names, tensors and sizes of one problem's kernels and its solution."""

import msgspec

from kernelgen.planning.recognition.forms import Affine, SegmentNorm, Statistics, Step

_EXPONENTIAL = frozenset(("gelu", "sigmoid", "silu"))


class StatisticsKind(msgspec.Struct, frozen=True, kw_only=True):
    """What is taken of each segment, and what follows from that.

    Attributes:
        template: in `templates/*/statistics/`, that takes it.
        does: what becomes of a segment, the start of a sentence.
        noun: what the result is called.
        eps: whether its layer has one; a function of a dimension has none.
        exponential: whether it takes one of every element.
    """

    template: str
    does: str
    noun: str = "norm"
    eps: bool = False
    exponential: bool = False


STATISTICS: dict[Statistics, StatisticsKind] = {
    "moments": StatisticsKind(
        template="moments",
        does="Each segment is normalised by its own mean and variance",
        eps=True,
    ),
    "rms": StatisticsKind(
        template="magnitude",
        does="Each segment is divided by its own root mean square",
        eps=True,
    ),
    "l1": StatisticsKind(
        template="magnitude", does="Each segment is divided by the mean of its absolute values"
    ),
    "l2": StatisticsKind(
        template="magnitude", does="Each segment is divided by the root of the sum of its squares"
    ),
    "softmax": StatisticsKind(
        template="softmax",
        does="Each segment becomes exp(x - max), divided by their sum",
        noun="softmax",
        exponential=True,
    ),
    "log_softmax": StatisticsKind(
        template="softmax",
        does="Each segment becomes x - max, less the logarithm of the sum of exp(x - max)",
        noun="log-softmax",
        exponential=True,
    ),
}


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


def kernel_interface(form: SegmentNorm) -> KernelInterface:
    """Return the interface of a norm's kernels."""
    statistics, affine, bias = form.statistics, form.affine, form.bias
    kind = STATISTICS[statistics]
    weights = () if affine == "none" else ("weight", "bias") if bias else ("weight",)
    by_channel = affine == "channel"
    return KernelInterface(
        idea=_idea(form),
        noun=kind.noun,
        statistics=statistics,
        affine=affine,
        bias=bias,
        eps=kind.eps,
        steps=form.steps,
        activations=form.activations,
        exponential=kind.exponential or not _EXPONENTIAL.isdisjoint(form.activations),
        operands=form.operands,
        sizes=("segments", "length", "inner", "groups") if by_channel else ("segments", "length"),
        tensors=("x", *weights, *form.operands, "out"),
    )


_SEGMENTS = {
    "groups": "The groups of channels of all samples are segments of contiguous memory.",
    "channels": "The channels of all samples are segments of contiguous memory.",
    "rows": "The trailing dimensions that the layer names make up segments of contiguous memory.",
}
_WORDS = {"+": "add", "-": "subtract", "*": "multiply by"}


def _idea(form: SegmentNorm) -> str:
    does = STATISTICS[form.statistics].does
    if form.dim is not None:
        text = f"The rows along dimension {form.dim} are segments of contiguous memory. {does}"
    else:
        text = f"{_SEGMENTS[form.normalises]} {does}"
    if form.affine != "none":
        which, index = ("channel c", "c") if form.affine == "channel" else ("element i", "i")
        text += f"; then {which} is scaled by weight[{index}]"
        text += f" and shifted by bias[{index}]" if form.bias else ""
    return f"{text}.{_what_follows(form.steps)}"


def _what_follows(steps: tuple[Step, ...]) -> str:
    done = [step.activation or f"{_WORDS[step.symbol]} {step.operand}" for step in steps]
    return f" In the same pass follows, element by element: {', '.join(done)}." if done else ""

"""The templates by name, each with its typed parameters as the YAML gives them."""

from difflib import get_close_matches
from typing import Literal, get_args, get_origin, get_type_hints

import msgspec

from kernelgen.errors import ProblemError, UserError
from kernelgen.problem.record import Problem, TemplateChoice, TemplateValue

SYMBOLS = {"add": "+", "subtract": "-", "multiply": "*"}
ACTIVATIONS = ("gelu", "relu", "sigmoid", "silu", "tanh")

Statistics = Literal["moments", "rms", "l1", "l2", "softmax", "log_softmax"]
Affine = Literal["channel", "element", "none"]
Epilogue = tuple[str | dict[str, str], ...]
_AFFINE_OF: dict[str, tuple[Affine, ...]] = {
    "groups": ("channel", "none"),
    "channels": ("channel", "none"),
    "rows": ("element", "none"),
}


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of an epilogue, element by element.

    Attributes:
        symbol, operand: `value <symbol>= operand`; both are empty for an activation.
        activation: one of ACTIVATIONS, or "".
    """

    symbol: str = ""
    operand: str = ""
    activation: str = ""

    @property
    def function(self) -> str:
        """Return what an activation is called in C: `tanh` is taken, for double."""
        return "tanhf" if self.activation == "tanh" else self.activation


class StatisticsKind(msgspec.Struct, frozen=True, kw_only=True):
    """What is taken of each segment, and what follows from that.

    Attributes:
        template: in `templates/*/statistics/`, that takes it.
        does: what becomes of a segment, the start of a sentence.
        noun: what the result is called.
        row_layer: the nn.Module whose rows are normalised so; its eps comes along. "" where a
            function of a dimension does it.
        exponential: whether it takes one of every element.
    """

    template: str
    does: str
    noun: str = "norm"
    row_layer: str = ""
    exponential: bool = False


STATISTICS: dict[Statistics, StatisticsKind] = {
    "moments": StatisticsKind(
        template="moments",
        does="Each segment is normalised by its own mean and variance",
        row_layer="LayerNorm",
    ),
    "rms": StatisticsKind(
        template="magnitude",
        does="Each segment is divided by its own root mean square",
        row_layer="RMSNorm",
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


class _WithEpilogue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    epilogue: Epilogue = ()

    def __post_init__(self) -> None:
        for step in self.epilogue:
            if isinstance(step, str):
                known = step in ACTIVATIONS
            else:
                known = len(step) == 1 and set(step) <= set(SYMBOLS)
            if not known:
                raise ValueError(
                    f"each step of epilogue is one of {', '.join(SYMBOLS)} with the name of an "
                    f"input, such as `add: y`, or one of {', '.join(ACTIVATIONS)}, not {step}"
                )

    @property
    def steps(self) -> tuple[Step, ...]:
        """The epilogue's steps."""
        found: list[Step] = []
        for step in self.epilogue:
            if isinstance(step, str):
                found.append(Step(activation=step))
            else:
                found += [Step(symbol=SYMBOLS[name], operand=of) for name, of in step.items()]
        return tuple(found)


class SegmentNorm(_WithEpilogue, frozen=True, kw_only=True):
    """`segment_norm`: statistics of each segment, then a map of its elements.

    Attributes:
        normalises: what a segment is. groups: of channels of a sample, as nn.GroupNorm has them;
            channels: of a sample, as nn.InstanceNorm1d, 2d or 3d without running statistics; rows:
            the trailing dimensions of an nn.LayerNorm or nn.RMSNorm, or the one that `dim` names.
        affine: `channel` or `element` if a weight (and a bias) for each of these follows.
        statistics: moments, mean and variance; rms, the root of the mean square; l1, the mean
            absolute value; l2, the root of the sum of squares; softmax; log_softmax.
        dim: along which l1, l2, softmax and log_softmax go; the others have a layer instead.
        epilogue: steps in order: an activation, or an operation and the forward parameter, of the
            shape of the input, that it takes.
    """

    normalises: Literal["groups", "channels", "rows"]
    affine: Affine
    statistics: Statistics = "moments"
    dim: int | None = None
    epilogue: Epilogue = ()

    def __post_init__(self) -> None:
        if self.affine not in (fitting := _AFFINE_OF[self.normalises]):
            raise ValueError(f"{self.normalises} go with affine: {' or '.join(fitting)}")
        if self.normalises != "rows" and self.statistics != "moments":
            raise ValueError(f"{self.normalises} go with statistics: moments")
        if (self.dim is None) != (STATISTICS[self.statistics].row_layer != ""):
            words = "has no dim, its layer says it" if self.dim is not None else "needs a dim"
            raise ValueError(f"statistics: {self.statistics} {words}")
        if self.dim is not None and self.affine != "none":
            raise ValueError(f"statistics: {self.statistics} goes with affine: none")
        super().__post_init__()


class LinearSegmentNorm(_WithEpilogue, frozen=True, kw_only=True):
    """`linear_segment_norm`: nn.Linear, then each row normalised, then an epilogue.

    Attributes:
        epilogue: as of segment_norm.
    """

    epilogue: Epilogue


class MatrixProduct(_WithEpilogue, frozen=True, kw_only=True):
    """`matrix_product`: the product of two inputs, then an epilogue.

    Attributes:
        left, right: forward's parameters that are multiplied, as torch.matmul does those of two or
            more dimensions.
        transposed: which of them are, in their last two dimensions.
        epilogue: as of segment_norm; its inputs have the shape of the product.
    """

    left: str
    right: str
    transposed: Literal["none", "left", "right", "both"] = "none"
    epilogue: Epilogue = ()


Parameters = SegmentNorm | LinearSegmentNorm | MatrixProduct


def statistics_of(parameters: SegmentNorm | LinearSegmentNorm) -> Statistics:
    """Return what is taken of each segment."""
    return parameters.statistics if isinstance(parameters, SegmentNorm) else "moments"


_TEMPLATES: dict[str, type[Parameters]] = {
    "segment_norm": SegmentNorm,
    "linear_segment_norm": LinearSegmentNorm,
    "matrix_product": MatrixProduct,
}


_EXPECTED = {
    "dim": "a whole number",
    "left": "the name of an input of forward",
    "right": "the name of an input of forward",
}


def template_parameters(problem: Problem, choice: TemplateChoice) -> Parameters:
    """Return the parameters of a problem's template, as its file gives them.

    Raises:
        ProblemError: no such template, or parameters that it does not take.
    """
    kind = _TEMPLATES.get(choice.name)
    if kind is None:
        message = f"no template {choice.name!r}; there are {', '.join(_TEMPLATES)}"
        raise ProblemError(problem.path, None, "template.name", message)
    known = tuple(sorted(kind.__struct_fields__, key="epilogue".__eq__))  # which comes last
    for key, value in choice.parameters.items():
        if key not in known:
            takes = f"{choice.name} takes {', '.join(known)}"
            hint = did_you_mean(key, known)
            raise ProblemError(problem.path, None, f"template.parameters.{key}", takes + hint)
        if mistake := _mistake(kind, key, value):
            raise ProblemError(problem.path, None, f"template.parameters.{key}", mistake)
    try:
        return msgspec.convert(choice.parameters, kind)
    except msgspec.ValidationError as error:
        raise ProblemError(problem.path, None, "template.parameters", str(error)) from error


def override_parameters(parameters: Parameters, values: dict[str, TemplateValue]) -> Parameters:
    """Return parameters with some replaced.

    Raises:
        UserError: a value is none that the parameter takes, or goes ill with the other parameters.
    """
    kind = type(parameters)
    for key, value in values.items():
        if mistake := _mistake(kind, key, value):
            raise UserError(f"--set {key}: {mistake}")
    try:
        return msgspec.convert({**msgspec.structs.asdict(parameters), **values}, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"--set {', '.join(values)}: {error}") from error


def _mistake(kind: type[Parameters], key: str, value: TemplateValue) -> str:
    """Return what was expected of a parameter and what was found, or nothing if it fits."""
    hint = get_type_hints(kind)[key]
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError:
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        other = _EXPECTED.get(key, "a list of steps such as [relu, {add: y}]")
        expected = " or ".join(choices) or other
        return f"expected {expected}, not {value!r}"
    return ""


def did_you_mean(key: str, known: tuple[str, ...]) -> str:
    """Return `; did you mean ...?` with the names closest to a key, or nothing."""
    close = get_close_matches(key, known, n=3)
    return f"; did you mean {' or '.join(close)}?" if close else ""

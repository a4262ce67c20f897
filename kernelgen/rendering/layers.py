"""Which of a model's layers a template works with, and whether they are what it computes."""

import msgspec

from kernelgen.errors import ProblemError
from kernelgen.problem.record import Problem
from kernelgen.rendering.parameters import (
    STATISTICS,
    Affine,
    LinearSegmentNorm,
    MatrixProduct,
    Parameters,
)
from kernelgen.rendering.reference_model import Layer, ReferenceModel

_SPATIAL_NAMES = {1: "L", 2: "H, W", 3: "D, H, W"}
# C++'s words that Python leaves free.
_CPP_WORDS = frozenset(
    """
    alignas alignof and_eq asm auto bitand bitor bool case catch char char8_t char16_t char32_t
    co_await co_return co_yield compl concept const const_cast consteval constexpr constinit
    decltype default delete do double dynamic_cast enum explicit export extern false float friend
    goto inline int long mutable namespace new noexcept not_eq nullptr operator or_eq private
    protected public register reinterpret_cast requires short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true typedef typeid typename union
    unsigned using virtual void volatile wchar_t xor xor_eq
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
# What the kernels have names for beside an epilogue's inputs.
_TAKEN_IN_NORMS = _CPP_WORDS | frozenset(
    """
    a beside eps fmaf gelu i j normalised position relu s sigmoid silu start stream tanh threads
    value values within workspace x
    """.split()  # noqa: SIM905
)
# The same, and what forward assigns before it comes to these inputs.
_TAKEN_IN_PRODUCTS = _CPP_WORDS | frozenset(
    """
    Arguments Halves Operand Tile a a_batch a_depth a_row aligned arguments b b_batch b_depth b_row
    batches bias ceil_div columns cudaError_t cudaStream_t depth fast finish general halves_a
    halves_b hopper int64_t kept_b launch left multiply multiprocessors out position prepared
    product product_launch product_run ptx right rows split stream sum sums takes threads value
    workspace
    """.split()  # noqa: SIM905
)


class _Flag(msgspec.Struct, frozen=True, kw_only=True):
    """A True or False that a layer is made with.

    Attributes:
        position, keyword: of the argument.
        usual: what it is where it is not given.
    """

    position: int
    keyword: str
    usual: bool


_LINEAR_BIAS = _Flag(position=2, keyword="bias", usual=True)
_GROUP_AFFINE = _Flag(position=3, keyword="affine", usual=True)
_INSTANCE_AFFINE = _Flag(position=3, keyword="affine", usual=False)
_RUNNING_STATS = _Flag(position=4, keyword="track_running_stats", usual=False)
_ELEMENT_AFFINE = _Flag(position=2, keyword="elementwise_affine", usual=True)
_LAYER_NORM_BIAS = _Flag(position=3, keyword="bias", usual=True)


class SolutionLayers(msgspec.Struct, frozen=True, kw_only=True):
    """The layers whose parameters and attributes a solution's forward uses.

    Attributes:
        norm: attribute of the normalisation, or "" where a function does it.
        linear: attribute of the nn.Linear, or "".
        spatial_rank: of an InstanceNorm's images; 0 for the others.
        bias: whether the normalisation has one, if it has a weight.
    """

    norm: str = ""
    linear: str = ""
    spatial_rank: int = 0
    bias: bool = True

    @property
    def spatial_names(self) -> str:
        """What the dimensions of an InstanceNorm's images are called."""
        return _SPATIAL_NAMES[self.spatial_rank]


def solution_layers(
    problem: Problem, model: ReferenceModel, parameters: Parameters
) -> SolutionLayers:
    """Return the layers that a template works with, having checked that they suit it.

    Raises:
        ProblemError: the model lacks a layer, or the layer does something else.
    """
    _check_operands(problem, model, parameters)
    if isinstance(parameters, MatrixProduct):
        return SolutionLayers()
    if isinstance(parameters, LinearSegmentNorm):
        linear = _only(problem, model, "Linear")
        if not _is_set(problem, linear, _LINEAR_BIAS):
            raise _error(problem, f"linear_segment_norm needs a bias in self.{linear.attribute}")
        norm = _instance_norm(problem, model, "none")
        return SolutionLayers(norm=norm.attribute, linear=linear.attribute)
    if parameters.dim is not None:
        return SolutionLayers()
    if parameters.normalises == "rows":
        norm = _only(problem, model, STATISTICS[parameters.statistics].row_layer)
        _check_affine(problem, norm, _ELEMENT_AFFINE, parameters.affine)
        has_bias = norm.kind == "LayerNorm" and _is_set(problem, norm, _LAYER_NORM_BIAS)
        return SolutionLayers(norm=norm.attribute, bias=has_bias)
    if parameters.normalises == "groups":
        norm = _only(problem, model, "GroupNorm")
        _check_affine(problem, norm, _GROUP_AFFINE, parameters.affine)
        return SolutionLayers(norm=norm.attribute)
    norm = _instance_norm(problem, model, parameters.affine)
    return SolutionLayers(norm=norm.attribute, spatial_rank=int(norm.kind[-2]))


def _instance_norm(problem: Problem, model: ReferenceModel, affine: Affine) -> Layer:
    norm = _only(problem, model, "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d")
    if _is_set(problem, norm, _RUNNING_STATS):
        raise _error(problem, f"the template has no track_running_stats in self.{norm.attribute}")
    _check_affine(problem, norm, _INSTANCE_AFFINE, affine)
    return norm


def _check_affine(problem: Problem, norm: Layer, flag: _Flag, affine: Affine) -> None:
    """Refuse a layer that has weights where the parameters say that there are none, or none."""
    has_weights = _is_set(problem, norm, flag)
    if has_weights == (affine != "none"):
        return
    if has_weights:
        message = f"affine: none, but self.{norm.attribute} has weights ({flag.keyword})"
    else:
        message = f"affine: {affine} needs weights in self.{norm.attribute} ({flag.keyword})"
    raise _error(problem, message)


def _is_set(problem: Problem, layer: Layer, flag: _Flag) -> bool:
    """Return whether a layer is made with a flag, as far as the text tells."""
    given = layer.argument(flag.position, flag.keyword)
    if given is None:
        return flag.usual
    if given not in {"True", "False"}:
        message = f"{flag.keyword} of self.{layer.attribute} is {given}; write True or False"
        raise _error(problem, f"{message}, for the template to see")
    return given == "True"


def _check_operands(problem: Problem, model: ReferenceModel, parameters: Parameters) -> None:
    key = "template.parameters.epilogue"
    operands = [step.operand for step in parameters.steps if step.operand]
    further = _further_inputs(problem, model, parameters)
    taken = _TAKEN_IN_PRODUCTS if isinstance(parameters, MatrixProduct) else _TAKEN_IN_NORMS
    for operand in operands:
        if operand not in further:
            names = ", ".join(further) or "none"
            message = f"{operand!r} is no further input of forward; there are: {names}"
            raise ProblemError(problem.path, None, key, message)
        if operand in taken:
            message = f"the input {operand!r} is called like a name that the kernels use; rename it"
            raise ProblemError(problem.path, None, "model", message)
    if unused := [name for name in further if name not in operands]:
        message = f"the input {unused[0]!r} of forward is in no step of the epilogue"
        raise ProblemError(problem.path, None, key, message)


def _further_inputs(
    problem: Problem, model: ReferenceModel, parameters: Parameters
) -> tuple[str, ...]:
    """Return forward's parameters beside those that the template begins with."""
    if not isinstance(parameters, MatrixProduct):
        return model.inputs[1:]
    factors = {"left": parameters.left, "right": parameters.right}
    for key, name in factors.items():
        if name not in model.inputs:
            message = f"{name!r} is no input of forward; there are: {', '.join(model.inputs)}"
            raise ProblemError(problem.path, None, f"template.parameters.{key}", message)
    return tuple(name for name in model.inputs if name not in factors.values())


def _only(problem: Problem, model: ReferenceModel, *kinds: str) -> Layer:
    layer = model.layer(*kinds)
    if layer is None:
        names = " or ".join(f"nn.{kind}" for kind in kinds)
        raise _error(problem, f"the template needs one {names} made in the constructor")
    return layer


def _error(problem: Problem, message: str) -> ProblemError:
    return ProblemError(problem.path, None, "model", message)

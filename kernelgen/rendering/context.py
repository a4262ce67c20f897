"""What the templates see: names, tensors and sizes of one problem's kernels and its solution."""

from typing import Literal

import msgspec

from kernelgen.errors import ProblemError
from kernelgen.problem.record import Problem
from kernelgen.rendering.parameters import (
    LinearSegmentNorm,
    Parameters,
    SegmentNorm,
    Step,
)
from kernelgen.rendering.reference_model import Layer, ReferenceModel

Backend = Literal["cuda", "cpp"]


class KernelInterface(msgspec.Struct, frozen=True, kw_only=True):
    """The C interface of a problem's kernels, the same for every backend.

    Attributes:
        affine: a weight and a bias a channel.
        steps: the epilogue.
        operands: tensors of the epilogue, each once.
        sizes: names of the 64-bit sizes.
        tensors: names of the float tensors in the order of the arguments; the last one is `out`.
    """

    affine: bool
    steps: tuple[Step, ...]
    operands: tuple[str, ...]
    sizes: tuple[str, ...]
    tensors: tuple[str, ...]


class SolutionLayers(msgspec.Struct, frozen=True, kw_only=True):
    """The layers whose parameters and attributes a solution's forward uses.

    Attributes:
        norm: attribute of the normalisation.
        linear: attribute of the nn.Linear, or "".
        spatial_rank: of an InstanceNorm's images; 0 for the others.
    """

    norm: str
    linear: str = ""
    spatial_rank: int = 0


def kernel_interface(parameters: Parameters) -> KernelInterface:
    """Return the interface of a template's kernels."""
    affine = isinstance(parameters, SegmentNorm) and parameters.affine == "channel"
    steps = parameters.steps
    operands = tuple(dict.fromkeys(step.operand for step in steps))
    extra = ("weight", "bias") if affine else operands
    return KernelInterface(
        affine=affine,
        steps=steps,
        operands=operands,
        sizes=("segments", "length", "inner", "groups") if affine else ("segments", "length"),
        tensors=("x", *extra, "out"),
    )


def solution_layers(
    problem: Problem, model: ReferenceModel, parameters: Parameters
) -> SolutionLayers:
    """Return the layers that a template works with, having checked that they suit it.

    Raises:
        ProblemError: the model lacks a layer, or the layer does something else.
    """
    if isinstance(parameters, LinearSegmentNorm):
        linear = _only(problem, model, "Linear")
        if linear.keywords.get("bias", "True") != "True":
            raise _error(problem, f"linear_segment_norm needs a bias in self.{linear.attribute}")
        _check_operands(problem, model, parameters)
        norm = _instance_norm(problem, model)
        return SolutionLayers(norm=norm.attribute, linear=linear.attribute)
    if len(model.inputs) != 1:
        raise _error(problem, "segment_norm needs a forward with one input")
    if parameters.normalises == "groups":
        norm = _only(problem, model, "GroupNorm")
        if norm.keywords.get("affine", "True") != "True":
            raise _error(problem, f"affine: channel needs weights in self.{norm.attribute}")
        return SolutionLayers(norm=norm.attribute)
    norm = _instance_norm(problem, model)
    return SolutionLayers(norm=norm.attribute, spatial_rank=int(norm.kind[-2]))


def _instance_norm(problem: Problem, model: ReferenceModel) -> Layer:
    norm = _only(problem, model, "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d")
    for keyword in ("affine", "track_running_stats"):
        if norm.keywords.get(keyword, "False") != "False":
            raise _error(problem, f"the template has no {keyword} in self.{norm.attribute}")
    return norm


def _check_operands(problem: Problem, model: ReferenceModel, parameters: LinearSegmentNorm) -> None:
    for step in parameters.steps:
        if step.operand not in model.inputs[1:]:
            names = ", ".join(model.inputs[1:]) or "none"
            raise ProblemError(
                problem.path,
                None,
                "template.parameters.epilogue",
                f"{step.operand!r} is no further input of forward; there are: {names}",
            )


def _only(problem: Problem, model: ReferenceModel, *kinds: str) -> Layer:
    layer = model.layer(*kinds)
    if layer is None:
        names = " or ".join(f"nn.{kind}" for kind in kinds)
        raise _error(problem, f"the template needs one {names} made in the constructor")
    return layer


def _error(problem: Problem, message: str) -> ProblemError:
    return ProblemError(problem.path, None, "model", message)

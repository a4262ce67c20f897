"""A plan run in torch, stage by stage: what its kernels are to compute."""

from typing import Any

from kernelgen.engines.map import Map
from kernelgen.engines.operators import OPERATORS
from kernelgen.engines.reduce.record import Reduce
from kernelgen.engines.stage import Accumulator, Library, Operand, Step
from kernelgen.graph.graph import Argument, Reference
from kernelgen.planning.plan import Plan

_OPERATORS = {operator.name: operator for operator in OPERATORS}


def run_plan(plan: Plan, model: Any, *inputs: Any) -> tuple[Any, ...]:
    """Return what forward returns, having left in the model's buffers what it leaves there."""
    given = dict(zip(plan.graph.arguments, inputs, strict=True))
    held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    values = {s.name: held[s.path] if s.path else given[s.name] for s in plan.sources}
    for stage in plan.stages:
        match stage:
            case Library():
                values[stage.name] = _library(stage, values)
            case Map():
                known = _steps(stage.steps, _read(stage.operands, values))
                for result in stage.results:
                    found = known.get(result.of, result.of)
                    values[result.value] = found.expand(stage.shape)
            case Reduce():
                known = _steps(stage.steps, _read(stage.operands, values))
                gathered = {a.name: _gathered(a, stage, known[a.of]) for a in stage.accumulators}
                after = _steps(stage.epilogue, _read(stage.beside, values) | gathered)
                values |= {result.value: after[result.of] for result in stage.results}
            case _:
                raise AssertionError(stage)
    for path, name in plan.updates.items():
        held[path].copy_(values[name])
    return tuple(values[name] for name in plan.outputs)


def _read(operands: tuple[Operand, ...], values: dict[str, Any]) -> dict[Any, Any]:
    return {operand.name: values[operand.value] for operand in operands}


def _steps(steps: tuple[Step, ...], known: dict[Any, Any]) -> dict[Any, Any]:
    import torch

    known = dict(known)
    for step in steps:
        operator = _OPERATORS[step.operator]
        name, overload = operator.aten[0].split(".")
        arguments = {key: known.get(value, value) for key, value in step.arguments.items()}
        whole = {**operator.parameters, **operator.when, **arguments}
        known[step.name] = getattr(getattr(torch.ops.aten, name), overload)(**whole)
    return known


def _gathered(accumulator: Accumulator, stage: Reduce, of: Any) -> Any:
    import torch

    x, dims, keep = of.expand(stage.shape), stage.dims, stage.keepdim
    match accumulator.kind:
        case "variance":
            return torch.var(x, dims, correction=accumulator.correction, keepdim=keep)
        case "sumexp":
            return torch.exp(x - torch.amax(x, dims, keepdim=True)).sum(dims, keepdim=keep)
        case "max":
            return torch.amax(x, dims, keepdim=keep)
        case "min":
            return torch.amin(x, dims, keepdim=keep)
        case "sum" | "mean":
            return getattr(torch, accumulator.kind)(x, dims, keepdim=keep)
        case _:
            raise AssertionError(accumulator.kind)


def _library(stage: Library, values: dict[str, Any]) -> Any:
    import torch

    def found(argument: Argument) -> Any:
        if isinstance(argument, Reference):
            return values[argument.name]
        return [found(item) for item in argument] if isinstance(argument, tuple) else argument

    given = {key: found(argument) for key, argument in stage.arguments.items()}
    name, overload = stage.aten.split(".")
    if overload == "groups":  # a method of a tensor that the planner knows by this name
        first, *others = given.values()
        return getattr(first, name)(*others)
    return getattr(getattr(torch.ops.aten, name), overload)(**given)

"""Graphs that are exactly what a template computes, as the forms that say so."""

from typing import Any

import msgspec

from kernelgen.planning.graph import Graph, Node, Reference
from kernelgen.planning.recognition.forms import SegmentNorm, Step, Symbol
from kernelgen.planning.recognition.norms import Norms
from kernelgen.planning.recognition.parts import Core

_SYMBOLS: dict[str, Symbol] = {
    "add.Tensor": "+",
    "sub.Tensor": "-",
    "subtract.Tensor": "-",
    "mul.Tensor": "*",
    "multiply.Tensor": "*",
}
_ACTIVATIONS = {f"{name}.default": name for name in ("gelu", "relu", "sigmoid", "silu", "tanh")}


def form_of(graph: Graph) -> SegmentNorm | None:
    """Return what a template computes if that is all of a graph; None if it is not.

    A Model that is made with other words than numbers is none: they may say what is in the graph,
    and a file is for any Model that is made with other numbers.
    """
    if graph.updates or graph.fixed or graph.returns != "%s":
        return None
    if any(i.kind in {"scalar", "constant"} or i.type.dtype != "float32" for i in graph.inputs):
        return None
    found = _Recogniser(graph).form()
    return None if found is None or _is_told(found, graph.made_with) else found


def _is_told(form: SegmentNorm, made_with: dict[str, Any]) -> bool:
    """Whether arguments of Model's constructor may say what its form is, beyond the sizes."""
    if any(value is None or isinstance(value, bool | str) for value in made_with.values()):
        return True
    return form.dim is not None and form.dim in made_with.values()


class _Recogniser(Norms):
    """A norm, and the epilogue after it."""

    def form(self) -> SegmentNorm | None:
        value = self.graph.outputs[0]
        steps: list[Step] = []
        nodes: list[str] = []
        while (node := self.nodes.get(value)) is not None:
            if (core := self.core(node)) is not None:
                form = msgspec.structs.replace(core.form, steps=tuple(reversed(steps)))
                return form if self._is_whole(core, {*form.operands}, nodes) else None
            if (step := self._step(node)) is None:
                return None
            value, done = step
            steps.append(done)
            nodes.append(node.name)
        return None

    def _is_whole(self, core: Core, operands: set[str], steps: list[str]) -> bool:
        """Whether there is nothing in the graph beside core and epilogue."""
        return (
            {*core.nodes, *steps} == self.nodes.keys()
            and {*core.begins, *core.reads, *operands} == {i.name for i in self.graph.inputs}
            and {*core.begins, *operands} == {*self.graph.arguments}
            and operands.isdisjoint(core.begins)
            and core.begins == self.graph.arguments[:1]
        )

    def _step(self, node: Node) -> tuple[str, Step] | None:
        """Return the value that a step of an epilogue goes on from, and the step."""
        if (activation := _ACTIVATIONS.get(node.aten)) is not None:
            if node.arguments.get("approximate", "none") != "none":
                return None
            return node.argument("self"), Step(activation=activation)
        symbol = _SYMBOLS.get(node.aten)
        left, right = node.arguments.get("self"), node.arguments.get("other")
        if symbol is None or node.arguments.get("alpha", 1) != 1:
            return None
        if not isinstance(left, Reference) or not isinstance(right, Reference):
            return None
        value, operand = left.name, right.name
        if value in self.inputs and symbol != "-":
            value, operand = operand, value
        alike = operand in self.inputs and self.shape(operand) == self.shape(value)
        return (value, Step(symbol=symbol, operand=operand)) if alike else None

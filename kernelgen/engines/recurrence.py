"""A recurrence: the steps of an LSTM, a GRU or an RNN, after the products of its inputs."""

from collections.abc import Mapping
from itertools import product
from typing import Literal, NamedTuple, cast

import msgspec

from kernelgen.engines.architectures import Architecture
from kernelgen.engines.engine import Before, Engine, Target, Work
from kernelgen.engines.naming import without_overload
from kernelgen.engines.stage import Kernel, Library, Operand, Result, Stage, reads
from kernelgen.engines.text.names import text_of
from kernelgen.engines.text.stage_text import StageText
from kernelgen.graph.graph import Argument, Reference, TensorType, contiguous, references

Kind = Literal["lstm", "gru", "rnn_tanh", "rnn_relu"]
_GATES: Mapping[str, int] = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_ENDS = ("", "_back")
_RESULTS = ("states", "last", "cells")
_WARP, _PARTS = 32, 8
_MOST_WARPS = 16  # of a block
_BLOCKS = (1, 2, 4, 8, 16)  # of a cluster
_REGISTERS, _MOST_REGISTERS = 1 << 16, 176  # of a multiprocessor, and of a thread
_OTHER_REGISTERS = 48  # of a thread, beside its weights
_SHARED_BYTES = 200 << 10  # of a block, for weights
# With more sequences, clusters take turns, and torch multiplies all of a step at once. Fewer steps
# do not win the launches of each layer back, and fewer weights cuDNN keeps in a kernel as well.
_MOST_SEQUENCES, _LEAST_STEPS, _LEAST_WEIGHTS = 256, 16, 60_000


class Recurrence(Kernel, frozen=True, kw_only=True, tag="recurrence"):
    """States of all steps of one layer, in one direction or in both.

    Attributes:
        kind: of the layer, as torch names it.
        shape: (steps, sequences, directions * units).
        operands: `gates`, the products of the inputs with their bias, of shape (steps, sequences,
            gates * units); `weight` and `bias` of the states; the other direction's, whose names
            end in `_back`; the first `hidden` states and `cell`s, of shape (directions, sequences,
            units).
        results: of "states", the stage's shape; of those after each direction's last step, "last"
            and "cells", that of the first ones. Those that nothing reads may be missing.
        units: of a direction.
    """

    kind: Kind
    units: int


class Spread(NamedTuple):
    """Spread of the units over a cluster, whose threads hold their weights.

    Attributes:
        blocks: of a cluster.
        of_block, of_lane: units; a warp's lanes are four gates, or four groups of units.
        padded: number of units in a product, with zeros.
        held: weights that a lane has in registers for each of its units, of an eighth of `padded`;
            it has the rest in shared memory.
    """

    blocks: int
    of_block: int
    of_lane: int
    padded: int
    held: int


class RecurrenceEngine(Engine[Recurrence]):
    """Recurrent layers in place of torch's, which launch kernels for each step."""

    record = Recurrence

    def replacement(
        self, stage: Library, before: Before, arch: Architecture | None
    ) -> tuple[Stage, ...]:
        """Return products and recurrences of all layers in place of torch's operator."""
        kind, _, overload = stage.aten.partition(".")
        if arch != "sm_90a" or kind not in _GATES or overload != "input":
            return ()
        layers = _Layers(stage, cast(Kind, kind), before.types)
        return layers.stages() if layers.fits else ()

    def work(self, stage: Recurrence) -> Work:
        """Return the multiplications and additions."""
        steps, sequences, states = stage.shape
        return Work(flops=2 * steps * sequences * states * stage.units * _GATES[stage.kind])

    def words(self, stage: Recurrence) -> str:
        """Return a recurrence as a formula of the plan's values."""
        return f"{stage.kind} steps({', '.join(o.value for o in stage.operands)})"

    def text(self, stage: Recurrence, target: Target) -> StageText:
        """Return a recurrence as text."""
        tensors = [o.name for o in stage.operands]
        directions = stage.shape[2] // stage.units
        summary = f"the states of {'both directions' if directions > 1 else 'all steps'} of "
        summary += f"{'an ' if stage.kind != 'gru' else 'a '}{stage.kind} layer"
        given = {
            "summary": summary,
            "directions": directions,
            "ends": _ENDS,
            "tensors": tensors,
            "has_bias": "bias" in tensors,
            "returned": [result.of for result in stage.results],
            "g": spread_of(stage.units, _GATES[stage.kind]),
        }
        idea = f"{summary}: clusters of blocks hold the weights in registers"
        return msgspec.structs.replace(text_of(stage, target.backend, idea, given), features="own")


def spread_of(units: int, gates: int) -> Spread | None:
    """Return how units are spread over the smallest cluster; None if none holds their weights.

    Those are in registers where any cluster's hold all.
    """
    for shared_bytes in (0, _SHARED_BYTES):
        for blocks, of_lane in product(_BLOCKS, (1, 2)):
            of_warp = of_lane * (4 if gates == 1 else 1)
            warps = -(-units // (blocks * of_warp))
            padded = -(-blocks * warps * of_warp // _WARP) * _WARP
            registers = min(_REGISTERS // (warps * _WARP), _MOST_REGISTERS) - _OTHER_REGISTERS
            held = min(registers // of_lane, padded // _PARTS)
            rest_bytes = 4 * (padded // _PARTS - held) * of_lane * warps * _WARP
            if warps <= _MOST_WARPS and rest_bytes <= shared_bytes:
                return Spread(blocks, warps * of_warp, of_lane, padded, held)
    return None


class _Layers:
    """Stages of torch's operator: for each layer the products of its inputs, and its recurrence."""

    def __init__(self, stage: Library, kind: Kind, types: Mapping[str, TensorType]) -> None:
        """Take the operator's stage, and types of values."""
        given = stage.arguments
        self._stage, self._kind, self._types = stage, kind, dict(types)
        self._made: list[Stage] = []
        self._begin, (self._input,) = references(given["hx"]), references(given["input"])
        self._turned = bool(given["batch_first"])
        self._ends = _ENDS if given["bidirectional"] else _ENDS[:1]
        # Of each layer and direction: weights of inputs and of states, then their biases.
        params, self._layers = references(given["params"]), int(str(given["num_layers"]))
        count = len(params) // (self._layers * len(self._ends))
        self._params = [params[at : at + count] for at in range(0, len(params), count)]
        self._units = self._types[params[1]].shape[-1]

    @property
    def fits(self) -> bool:
        """Whether kernels can do it, and sooner than torch."""
        given, gates = self._stage.arguments, _GATES[self._kind]
        sequences, steps = self._types[self._input].shape[:2][:: 1 if self._turned else -1]
        weights = {self._types[names[1]].shape for names in self._params}
        return (
            # The weights of projected states have another shape.
            weights == {(gates * self._units, self._units)}
            and {self._types[name].dtype for name in reads(self._stage)} == {"float32"}
            and (not given["train"] or given["dropout"] == 0)
            and 0 < sequences <= _MOST_SEQUENCES
            and steps >= _LEAST_STEPS
            and gates * self._units**2 >= _LEAST_WEIGHTS
            and spread_of(self._units, gates) is not None
        )

    def stages(self) -> tuple[Stage, ...]:
        """Return the stages."""
        value, kept = self._input, []
        for layer in range(self._layers):
            states, *ends = self._recurrence(layer, value)
            value = states.value
            kept.append(ends)
        if self._turned:
            self._turn(value, self._stage.results[0])
        for parts in zip(*kept, strict=True):
            if self._layers > 1:
                tensors = tuple(Reference(part.value) for part in parts)
                lead, *shape = parts[0].type.shape
                name = self._stage.results[_RESULTS.index(str(parts[0].of))]
                found = contiguous((lead * self._layers, *shape))
                self._library("cat.default", {"tensors": tensors}, found, name)
        return tuple(self._made)

    def _recurrence(self, layer: int, value: str) -> tuple[Result, ...]:
        """Add a layer that reads a value's rows; return its results, the states first."""
        directions = len(self._ends)
        first = layer * directions
        own = self._params[first : first + directions]
        named: dict[str, str] = {}
        for end, (of_input, weight, *biases) in zip(self._ends, own, strict=True):
            keys = ("input", "weight", "bias")[: 2 + bool(biases)]
            values = map(Reference, (value, of_input, *biases))
            *lead, _ = self._types[value].shape
            found = contiguous((*lead, *self._types[weight].shape[:1]))
            gates = self._library("linear.default", dict(zip(keys, values, strict=False)), found)
            named[f"gates{end}"] = self._turn(gates) if self._turned and layer == 0 else gates
            named |= dict(zip((f"weight{end}", f"bias{end}"), (weight, *biases[1:]), strict=False))
        for key, begin in zip(("hidden", "cell"), self._begin, strict=False):
            found = contiguous((directions, *self._types[begin].shape[1:]))
            rows: dict[str, Argument] = {"dim": 0, "start": first, "length": directions}
            rows = {"self": Reference(begin), **rows}
            named[key] = self._library("narrow.default", rows, found)
        operands = tuple(Operand(name=k, value=v, type=self._types[v]) for k, v in named.items())
        steps, sequences, _ = operands[0].type.shape
        shape = (steps, sequences, directions * self._units)
        ends = contiguous((directions, sequences, self._units))
        results = []
        for of, name in zip(_RESULTS, self._stage.results, strict=False):
            if of == "states":
                is_whole, found = layer == self._layers - 1 and not self._turned, contiguous(shape)
            else:
                is_whole, found = self._layers == 1, ends
            made = name if is_whole and name != "_" else f"{self._stage.name}_{of}_{layer}"
            if of == "states" or name != "_":
                results.append(Result(value=made, of=of, type=found))
                self._types[made] = found
        stage = Recurrence(
            name=self._kind,
            kind=self._kind,
            units=self._units,
            shape=shape,
            operands=operands,
            results=tuple(results),
        )
        self._made.append(stage)
        return stage.results

    def _turn(self, value: str, name: str = "") -> str:
        """Swap steps and sequences of a value; return what that makes."""
        of, dims = self._types[value], (1, 0, 2)
        shape, strides = (tuple(sizes[d] for d in dims) for sizes in (of.shape, of.strides))
        found = msgspec.structs.replace(of, shape=shape, strides=strides)
        arguments: dict[str, Argument] = {"self": Reference(value), "dims": dims}
        return self._library("permute.default", arguments, found, name)

    def _library(
        self, aten: str, arguments: dict[str, Argument], found: TensorType, name: str = ""
    ) -> str:
        """Add an operator of torch's; return its result, which has the name if it is given."""
        name = name or f"{self._stage.name}_{without_overload(aten)}_{len(self._made)}"
        self._made.append(Library.calling(name, aten, arguments, found))
        self._types[name] = found
        return name

"""A scan: each element gathered with all before it along a dimension."""

from collections.abc import Mapping
from typing import Literal

from kernelgen.engines.engine import Claim, Engine, Given, Target
from kernelgen.engines.stage import Kernel, Result
from kernelgen.engines.text.names import gathered_names, text_of
from kernelgen.engines.text.reading import power_of_two
from kernelgen.engines.text.stage_text import StageText, in_words
from kernelgen.graph.graph import Node, TensorType

_ATEN: dict[str, Literal["sum", "prod"]] = {"scan_sum": "sum", "scan_prod": "prod"}
_KINDS = {"sum": "sum", "prod": "product"}
_WARP = 32
_MOST_THREADS = 256
_OF_THREAD = 8  # elements of a row


class Scan(Kernel, frozen=True, kw_only=True, tag="scan"):
    """Each element is gathered with all before it along a dimension.

    Attributes:
        kind: sum or prod.
        dim: as the Model counts it, from the end where it is negative.
        reverse: with all after it, instead.
        exclusive: the element itself is left out; the first result is 0 or 1.
        of: step or operand.
    """

    kind: Literal["sum", "prod"]
    dim: int
    reverse: bool
    exclusive: bool
    of: str


class ScanEngine(Engine[Scan]):
    """Cumulative sums and products."""

    record = Scan

    def claim(self, node: Node, types: Mapping[str, TensorType]) -> Claim | None:
        """Return how a node becomes a scan."""
        del types
        return Claim(_made, node.argument("self")) if node.aten in _ATEN else None

    def words(self, stage: Scan) -> str:
        """Return a scan as a formula."""
        words = "reverse " * stage.reverse + "exclusive " * stage.exclusive
        return f"{words}cum{stage.kind}({in_words(stage.steps, stage.of)}) along {stage.dim}"

    def text(self, stage: Scan, target: Target) -> StageText:
        """Return a scan as text."""
        given = gathered_names(stage, target.backend, [stage.of])
        length, is_rows = stage.shape[-1], stage.dim in {-1, len(stage.shape) - 1}
        kind = _KINDS[stage.kind]
        summary = f"the cumulative {kind} of {given['formula']} along dimension {stage.dim}"
        summary += ", from the end" * stage.reverse
        summary += ", each without its own element" * stage.exclusive
        given |= {
            "kind": stage.kind,
            "dim": stage.dim,
            "reverse": stage.reverse,
            "exclusive": stage.exclusive,
            "is_rows": is_rows,
            # Along a dimension that is counted from the front, it is not the last of every rank.
            "moved": is_rows and stage.dim >= 0 and not given["spread"],
            # As a row of the main shape needs.
            "threads": min(max(_WARP, power_of_two(-(-length // _OF_THREAD))), _MOST_THREADS),
            "summary": summary,
        }
        return text_of(stage, target.backend, f"{summary[0].upper()}{summary[1:]}", given)


def _made(given: Given) -> Scan:
    """Return the stage of a scan."""
    node = given.node
    dim, reverse, exclusive = (node.arguments[key] for key in ("dim", "reverse", "exclusive"))
    assert isinstance(dim, int)
    kind = _ATEN[node.aten]
    words = "reverse_" * bool(reverse) + "exclusive_" * bool(exclusive) + f"cum{kind}"
    return Scan(
        name=given.kernels.kernel((*given.body.steps, words), words),
        shape=given.body.shape,
        kind=kind,
        dim=dim,
        reverse=bool(reverse),
        exclusive=bool(exclusive),
        operands=given.body.operands,
        steps=given.body.steps,
        of=given.of,
        results=(Result(value=node.name, of="scanned", type=given.types[node.name]),),
    )

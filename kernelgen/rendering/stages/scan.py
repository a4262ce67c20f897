"""A scan: each element gathered with all before it along a dimension."""

from kernelgen.planning.plan import Scan
from kernelgen.problem.record import Backend
from kernelgen.rendering.stages.gathering import gathered_names, text_of
from kernelgen.rendering.stages.stage_text import StageText

_KINDS = {"sum": "sum", "prod": "product"}
_WARP = 32
_MOST_THREADS = 256
_OF_THREAD = 8  # elements of a row


def render_scan(stage: Scan, backend: Backend) -> StageText:
    """Return a scan as text."""
    given = gathered_names(stage, backend, [stage.of])
    is_rows = stage.dim in {-1, len(stage.shape) - 1}
    summary = (
        f"the cumulative {_KINDS[stage.kind]} of {given['formula']} along dimension {stage.dim}"
    )
    summary += ", from the end" * stage.reverse + ", each without its own element" * stage.exclusive
    given |= {
        "kind": stage.kind,
        "dim": stage.dim,
        "reverse": stage.reverse,
        "exclusive": stage.exclusive,
        "is_rows": is_rows,
        # Along a dimension that is counted from the front, it is not the last of every rank.
        "moved": is_rows and stage.dim >= 0 and not given["spread"],
        "threads": _threads(stage.shape[-1]),
        "summary": summary,
    }
    return text_of(stage, backend, f"{summary[0].upper()}{summary[1:]}", given)


def _threads(length: int) -> int:
    """Return how many threads a row of the main shape needs, a power of 2."""
    threads = _WARP
    while threads < _MOST_THREADS and threads * _OF_THREAD < length:
        threads *= 2
    return threads

"""The list of engines."""

from collections.abc import Iterable
from typing import Any

from kernelgen.engines.attention import AttentionEngine
from kernelgen.engines.convolution.convolution import ConvolutionEngine
from kernelgen.engines.engine import Engine
from kernelgen.engines.map import MapEngine
from kernelgen.engines.pool.pool import PoolEngine
from kernelgen.engines.product.product import ProductEngine
from kernelgen.engines.recurrence import RecurrenceEngine
from kernelgen.engines.reduce.reduce import ReduceEngine
from kernelgen.engines.scan import ScanEngine
from kernelgen.engines.schedule import Schedule
from kernelgen.engines.segment.segment import SegmentEngine
from kernelgen.engines.stage import Kernel, Stage

ENGINES: tuple[Engine[Any], ...] = (
    MapEngine(),
    ReduceEngine(),
    ScanEngine(),
    PoolEngine(),
    SegmentEngine(),
    AttentionEngine(),
    ProductEngine(),
    ConvolutionEngine(),
    RecurrenceEngine(),
)
_BY_RECORD = {engine.record: engine for engine in ENGINES}


def schedule_of(stages: Iterable[Stage], arch: str) -> Schedule | None:
    """Return the schedule that sizes suggest for the only stage whose kernels have one.

    None if there is none, or several. It is for an architecture, or for a CPU.
    """
    kernels = (stage for stage in stages if isinstance(stage, Kernel))
    found = [engine_of(stage).schedule(stage, arch) for stage in kernels]
    numbered = [schedule for schedule in found if schedule is not None]
    return numbered[0] if len(numbered) == 1 else None


def engine_of(stage: Kernel) -> Engine[Any]:
    """Return the engine of a kernel."""
    return _BY_RECORD[type(stage)]

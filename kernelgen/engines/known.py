"""The list of engines."""

from collections.abc import Iterable
from typing import Any

from kernelgen.engines.engine import Engine
from kernelgen.engines.map import MapEngine
from kernelgen.engines.pool.pool import PoolEngine
from kernelgen.engines.product.product import ProductEngine
from kernelgen.engines.reduce.reduce import ReduceEngine
from kernelgen.engines.scan import ScanEngine
from kernelgen.engines.schedule import Schedule
from kernelgen.engines.segment.segment import SegmentEngine
from kernelgen.engines.stage import Kernel, Stage
from kernelgen.problem.schedules import CPU

ENGINES: tuple[Engine[Any], ...] = (
    MapEngine(),
    ReduceEngine(),
    ScanEngine(),
    PoolEngine(),
    SegmentEngine(),
    ProductEngine(),
)
_BY_RECORD = {engine.record: engine for engine in ENGINES}


def scheduled(stages: Iterable[Stage]) -> Kernel | None:
    """Return the stage whose kernel has a schedule; None if none has one, or several have."""
    found = [
        stage
        for stage in stages
        if isinstance(stage, Kernel) and engine_of(stage).schedule(stage, CPU) is not None
    ]
    return found[0] if len(found) == 1 else None


def schedule_of(stage: Kernel, arch: str) -> Schedule:
    """Return the schedule that the sizes of a stage suggest, for an architecture or a CPU."""
    found = engine_of(stage).schedule(stage, arch)
    assert found is not None
    return found


def engine_of(stage: Kernel) -> Engine[Any]:
    """Return the engine of a kernel."""
    return _BY_RECORD[type(stage)]

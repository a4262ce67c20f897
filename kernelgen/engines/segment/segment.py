"""A segment: a reduction and a map of the same elements."""

from collections.abc import Mapping, Sequence

import msgspec

from kernelgen.engines.architectures import MULTIPROCESSORS, Architecture, architecture
from kernelgen.engines.engine import Claim, Engine, Target
from kernelgen.engines.epilogue import with_epilogue
from kernelgen.engines.map import Map
from kernelgen.engines.naming import Names
from kernelgen.engines.reduce.record import Reduce
from kernelgen.engines.rows import FLOATS
from kernelgen.engines.schedule import (
    CacheSchedule,
    ColumnsSchedule,
    CppSchedule,
    RegistersSchedule,
    RingSchedule,
    Schedule,
)
from kernelgen.engines.segment.fusion import segment_of_both, with_numbers_left
from kernelgen.engines.segment.held import held_text
from kernelgen.engines.segment.one_pass import one_pass_text
from kernelgen.engines.segment.outcome import formula_of
from kernelgen.engines.segment.record import Segment
from kernelgen.engines.segment.ways import ROW, vector_of, way_of
from kernelgen.engines.segment.whole import segment_of
from kernelgen.engines.stage import Kernel, Result
from kernelgen.engines.text.reading import VECTOR
from kernelgen.engines.text.stage_text import StageText
from kernelgen.graph.graph import Node, TensorType
from kernelgen.problem.schedules import CPU

_SCHEDULES: dict[str, type[Schedule]] = {
    "columns": ColumnsSchedule,
    "registers": RegistersSchedule,
    "cache": CacheSchedule,
}


class SegmentEngine(Engine[Segment]):
    """Norms, softmax, and other reductions with a map of the same elements."""

    record = Segment

    def claim(self, node: Node, types: Mapping[str, TensorType]) -> Claim | None:
        """Return how a norm that stays whole becomes a segment."""
        del types
        return Claim(segment_of) if node.aten.startswith("segment.") else None

    def fused(
        self, first: Kernel, second: Kernel, others: Names, arch: Architecture | None
    ) -> tuple[Kernel, ...]:
        """Return a segment with a map after it, or a reduction and a map as a segment."""
        if isinstance(first, Reduce):
            both = segment_of_both(first, second, arch) if isinstance(second, Map) else None
            return () if both is None else (both,)
        if not isinstance(first, Segment):
            return ()
        kinds = {o.type.dtype for o in second.operands if not o.is_number}
        kinds.add(second.result.type.dtype)
        takes = kinds <= FLOATS or first.length <= ROW
        return with_epilogue(first, second, others) if takes else ()

    def leaving(self, stage: Segment, results: Sequence[Result]) -> Segment | None:
        """Return a segment that leaves numbers of its outcome in memory as well."""
        return with_numbers_left(stage, results)

    def with_way(self, stage: Segment, arch: Architecture | None) -> Segment:
        """Return a segment held as suits an architecture."""
        return msgspec.structs.replace(stage, way=way_of(stage, arch))

    def schedule(self, stage: Segment, arch: str) -> Schedule | None:
        """Return the schedule of the fast kernel, or of the C++."""
        if stage.way == "held":
            return None
        if arch == CPU:
            return CppSchedule()
        if stage.way == "rings":
            slices = -(-stage.length // (RingSchedule().slot_length * vector_of(stage) // VECTOR))
            held = RingSchedule().slots * MULTIPROCESSORS[architecture(arch)]
            return RingSchedule(ahead=2) if 3 * slices > held else RingSchedule()
        return _SCHEDULES.get(stage.way, Schedule)()

    def words(self, stage: Segment) -> str:
        """Return a segment as a formula."""
        return formula_of(stage, whole=True)

    def text(self, stage: Segment, target: Target) -> StageText:
        """Return a segment as text, by the way that holds it."""
        schedule = target.schedule or self.schedule(stage, target.arch)
        if stage.way == "held" or schedule is None:
            return held_text(stage, target.backend)
        return one_pass_text(stage, target.backend, target.arch, schedule)

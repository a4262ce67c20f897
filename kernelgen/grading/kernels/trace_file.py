"""A trace file of torch's profiler (Chrome's format) as a `Trace`.

The file is the one form in which every version of torch gives launch sizes and correlations.
"""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

from kernelgen.grading.kernels.names import is_torch_operator, operator_computes
from kernelgen.grading.wire.trace import MAX_NAME, MAX_RUNS, MAX_WORKS, Run, Trace, Work, covered

FORWARD = "kernelgen: forward"
FOLLOWED = "kernelgen: followed"  # around an operator that a follower has seen
_COMPILED = (
    "Torch-Compiled Region",
    "## Call CompiledFxGraph",
    "TorchDynamo ",
    "AOTDispatcher ",
    "Pregraph bytecode",
)
_KINDS = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "copy"}
_LAUNCHERS = ("cuda_runtime", "cuda_driver")
# Two clocks meet in a trace; they are not equal to the last digit.
_CLOCK_SLACK_US = 1.0

Event = dict[str, Any]


def read_traces(
    document: dict[str, Any], device: str, within: str | None = None
) -> tuple[Trace, ...]:
    """Return what ran on behalf of each forward that the trace marks.

    Args:
        document: the file.
        device: `cuda` or `cpu`.
        within: a mark; on a CPU, only operators within one are returned.

    Raises:
        ValueError: the trace marks no forward.
        KeyError, TypeError: it is no such trace.
    """
    events = [event for event in document["traceEvents"] if event.get("ph") == "X"]
    marks = [e for e in events if e["name"] == FORWARD and e.get("cat") == "user_annotation"]
    read = _device_trace if device == "cuda" else partial(_host_trace, within=within)
    traces = tuple(read(events, mark["ts"], _end(mark)) for mark in marks)
    if not traces:
        raise ValueError("the trace marks no call of forward")
    return traces


def _device_trace(events: list[Event], begin: float, end: float) -> Trace:
    launches = {_correlation(e): e for e in events if e.get("cat") in _LAUNCHERS}
    activities = [event for event in events if event.get("cat") in _KINDS]
    if not activities:
        # The grader's own writes go before every call: a working profiler has seen those.
        return Trace(missing="the profiler recorded nothing on the GPU; is another one attached?")
    mine = _launched_within(activities, launches, begin, end)
    graphs = {key: one["ts"] for key, one in launches.items() if "GraphLaunch" in one["name"]}
    launched = {key for key, at in graphs.items() if begin <= at <= end}
    works = _together(_device_work(event) for event in mine)
    return Trace(
        works=works,
        runs=_runs(mine, works, begin),
        operators=_together(_operators(events, begin, end)),
        busy_us=covered((event["ts"], _end(event)) for event in mine),
        call_us=max(0.0, end - begin),
        unseen_graphs=len(launched - {_correlation(event) for event in mine}),
    )


def _runs(mine: list[Event], works: tuple[Work, ...], begin: float) -> tuple[Run, ...]:
    """Return when each kernel ran, in microseconds after the beginning of forward."""
    position = {work.name: at for at, work in enumerate(works) if work.kind == "kernel"}
    ran = [
        Run(position[name], float(event["ts"]) - begin, max(0.0, float(event["dur"])))
        for event in sorted(mine, key=lambda event: float(event["ts"]))
        if event["cat"] == "kernel" and (name := event["name"][:MAX_NAME]) in position
    ]
    return tuple(ran) if len(ran) <= MAX_RUNS else ()


def _launched_within(
    activities: list[Event], launches: dict[Any, Event], begin: float, end: float
) -> list[Event]:
    """Return what forward launched, on whatever stream and in whatever thread.

    Not every call of the driver is in a trace, a copy by cuMemcpyDtoDAsync is not. Such work is
    forward's if it lies between the last work that was launched before forward and the first that
    was launched after it: the grader's own, of which there is some on either side.
    """
    called_at = {id(event): launches.get(_correlation(event)) for event in activities}
    known = [(event, call["ts"]) for event in activities if (call := called_at[id(event)])]
    not_before = max((_end(event) for event, at in known if at < begin), default=begin)
    not_after = min((event["ts"] for event, at in known if at > end), default=float("inf"))

    def is_mine(event: Event) -> bool:
        if (call := called_at[id(event)]) is not None:
            return bool(begin <= call["ts"] <= end)
        return bool(not_before <= event["ts"] and _end(event) <= not_after)

    return list(filter(is_mine, activities))


def _correlation(event: Event) -> Any:
    return event.get("args", {}).get("correlation")


def _device_work(event: Event) -> Work:
    args = event["args"]
    blocks = _product(args.get("grid", ()))
    threads = blocks * _product(args.get("block", ()))
    return Work(
        name=event["name"][:MAX_NAME],
        kind="kernel" if event["cat"] == "kernel" else "copy",
        count=1,
        time_us=max(0.0, float(event["dur"])),
        blocks=blocks,
        threads=threads,
        all_threads=threads,
    )


def _host_trace(events: list[Event], begin: float, end: float, within: str | None) -> Trace:
    inside = _inside(events, begin, end)
    spans = [
        (event["ts"], _end(event))
        for event in inside
        if is_torch_operator(event["name"]) or event["name"].startswith(_COMPILED)
    ]
    return Trace(
        works=_together(_operators(events, begin, end, within)),
        busy_us=covered(spans),
        call_us=max(0.0, end - begin),
    )


def _inside(events: list[Event], begin: float, end: float) -> list[Event]:
    return [
        event
        for event in events
        if (event.get("cat") == "cpu_op" or event["name"].startswith((*_COMPILED, FOLLOWED)))
        and event["ts"] >= begin - _CLOCK_SLACK_US
        and _end(event) <= end + _CLOCK_SLACK_US
    ]


def _operators(
    events: list[Event], begin: float, end: float, within: str | None = None
) -> list[Work]:
    """Return what the host called in forward, each thread's by itself."""
    threads: dict[Any, list[Event]] = {}
    for event in _inside(events, begin, end):
        threads.setdefault(event["tid"], []).append(event)
    return [work for of_thread in threads.values() for work in _nested(of_thread, within)]


class _Frame:
    """An operator that is running while others begin within it."""

    def __init__(self, event: Event) -> None:
        self.event, self.inner_us, self.wraps = event, 0.0, False

    def work(self) -> Work:
        name = self.event["name"]
        dims = self.event.get("args", {}).get("Input Dims", ())
        elements = max((_elements(sizes) for sizes in dims if sizes), default=0)
        return Work(
            name=name[:MAX_NAME],
            kind="compiled" if name.startswith(_COMPILED) else "operator",
            count=1,
            time_us=max(0.0, float(self.event["dur"]) - self.inner_us),
            elements=0 if self.wraps else elements,
            operands=sum(map(bool, dims)),
        )


def _nested(events: list[Event], within: str | None) -> list[Work]:
    """Return one thread's operators, each with the time spent in none that it called."""
    works: list[Work] = []
    open_frames: list[_Frame] = []

    def close() -> None:
        frame = open_frames.pop()
        if not within or any(outer.event["name"] == within for outer in open_frames):
            works.append(frame.work())
        if open_frames:
            outer = open_frames[-1]
            outer.inner_us += float(frame.event["dur"])
            outer.wraps |= frame.wraps or operator_computes(frame.event["name"])

    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        while open_frames and _end(open_frames[-1].event) <= event["ts"]:
            close()
        open_frames.append(_Frame(event))
    while open_frames:
        close()
    return works


def _together(works: Iterable[Work]) -> tuple[Work, ...]:
    """Return one record a name and kind, longest first; beyond the limit, what is short is left.

    That is not what torch computes.
    """
    groups: dict[tuple[str, str], list[Work]] = {}
    for work in works:
        groups.setdefault((work.name, work.kind), []).append(work)
    merged = [
        Work(
            name=group[0].name,
            kind=group[0].kind,
            count=sum(work.count for work in group),
            time_us=sum(work.time_us for work in group),
            blocks=max(work.blocks for work in group),
            threads=max(work.threads for work in group),
            all_threads=sum(work.all_threads for work in group),
            elements=sum(work.elements for work in group),
            operands=max(work.operands for work in group),
        )
        for group in groups.values()
    ]
    merged.sort(key=lambda work: (not operator_computes(work.name), -work.time_us))
    return tuple(sorted(merged[:MAX_WORKS], key=lambda work: -work.time_us))


def _elements(sizes: list[Any]) -> int:
    """Return how many elements an argument has: one tensor, or all in a list of tensors."""
    if any(isinstance(size, list) for size in sizes):
        return sum(_product(tensor) for tensor in sizes)
    return _product(sizes)


def _product(sizes: Iterable[int]) -> int:
    return math.prod(max(0, int(size)) for size in sizes)


def _end(event: Event) -> float:
    return float(event["ts"]) + float(event["dur"])

"""Traces: of real calls under torch's profiler on the CPU, and read from what a GPU's look like."""

import os
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kernelgen.grading.kernels.trace_file import FORWARD, read_traces
from kernelgen.grading.wire.trace import MAX_NAME, MAX_WORKS, Trace

torch = pytest.importorskip("torch")


def traced(function: Callable[[], object], *, follows: bool = False) -> Trace:
    from kernelgen.grading.kernels.tracing import Tracer

    tracer = Tracer("cpu")
    tracer.start(follows=follows)
    marked = tracer.marked(function)
    torch.zeros(3).exp()  # outside of the marked call
    marked()
    torch.zeros(3).exp()
    (trace,) = tracer.stop()
    return trace


def names(trace: Trace) -> set[str]:
    return {work.name for work in trace.works}


def elements(trace: Trace) -> dict[str, int]:
    return {work.name: work.elements for work in trace.works if work.elements}


def test_the_operators_of_the_marked_call_are_recorded_and_no_others() -> None:
    x = torch.randn(6, 37)

    trace = traced(lambda: x * x + x)

    assert trace.missing == ""
    assert names(trace) == {"aten::mul", "aten::add"}
    assert elements(trace) == {"aten::mul": 222, "aten::add": 222}
    assert 0.0 < trace.busy_us <= trace.call_us


def test_wrappers_of_other_operators_do_not_count_again() -> None:
    linear = torch.nn.Linear(16, 8)
    x = torch.randn(4, 16)

    trace = traced(lambda: linear(x))

    assert elements(trace)["aten::addmm"] == 16 * 8
    assert "aten::linear" in names(trace)
    assert "aten::linear" not in elements(trace)
    total_us = sum(work.time_us for work in trace.works)
    assert total_us == pytest.approx(trace.busy_us, rel=0.01, abs=1.0)


def test_a_list_of_tensors_counts_as_all_of_them() -> None:
    x = torch.ones(4, 5)
    trace = traced(lambda: torch.cat([x, x, x[:1]]))
    assert trace.missing == ""
    assert elements(trace)["aten::cat"] == 20 + 20 + 5


def test_operators_in_other_threads_are_recorded() -> None:
    x = torch.randn(32, 32)

    def forward() -> None:
        thread = threading.Thread(target=lambda: torch.mm(x, x))
        thread.start()
        thread.join()

    assert "aten::mm" in names(traced(forward))
    assert elements(traced(forward, follows=True)) == {}


def test_what_is_followed_is_told_from_what_is_only_recorded() -> None:
    x, linear = torch.randn(4, 16), torch.nn.Linear(16, 16)

    def forward() -> None:
        y = linear(x)
        with torch._C._DisableTorchDispatch():  # noqa: SLF001 (as a candidate may)
            y = y.exp()
        y + x.mean()

    recorded, followed = elements(traced(forward)), traced(forward, follows=True)
    computing = {"aten::addmm", "aten::exp", "aten::add", "aten::sum"}
    assert computing <= recorded.keys()
    hidden = {name for name, size in recorded.items() if elements(followed).get(name, 0) < size}
    assert hidden & computing == {"aten::exp"}
    assert not followed.missing


def test_a_call_without_operators_has_an_empty_trace() -> None:
    trace = traced(lambda: sum(range(1000)))

    assert trace.works == ()
    assert trace.missing == ""
    assert trace.busy_us == 0.0


def test_the_profiler_works_in_a_forked_process_and_prints_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        trace = traced(lambda: torch.zeros(4).exp())
        os.write(writing, msgspec.json.encode(trace))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        trace = msgspec.json.decode(pipe.read(), type=Trace)
    os.waitpid(pid, 0)

    assert "aten::exp" in names(trace)
    assert capfd.readouterr() == ("", "")


def test_a_profiler_that_fails_makes_the_trace_missing_and_the_call_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch.autograd import profiler

    from kernelgen.grading.kernels.tracing import Tracer

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no profiler today")

    monkeypatch.setattr(profiler, "profile", refuse)
    tracer = Tracer("cpu")
    tracer.start()
    result = tracer.marked(lambda: 7)()
    (trace,) = tracer.stop()

    assert result == 7
    assert trace.missing == "RuntimeError: no profiler today"
    assert trace.works == ()


def test_a_temporary_folder_that_a_candidate_moves_does_not_move_the_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kernelgen.grading.kernels.tracing import Tracer

    tracer = Tracer("cpu")
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    tracer.start()
    tracer.marked(lambda: torch.zeros(4).exp())()

    (trace,) = tracer.stop()
    assert "aten::exp" in names(trace)
    assert tracer.stop() == (Trace(),), "what was told is not told again"


def test_calls_that_were_recorded_as_one_are_told_as_one_of_them() -> None:
    x = torch.randn(6, 37)

    trace = traced(lambda: [x * x + x for _ in range(5)])
    one = trace.per_call(5)

    assert elements(one) == {"aten::mul": 222, "aten::add": 222}
    assert [work.count for work in one.works] == [1, 1]
    assert one.call_us == pytest.approx(trace.call_us / 5)
    assert (trace.recorded, one.recorded) == (10, 2)


def event(name: str, cat: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": cat, "ts": ts, "dur": dur, "tid": 1, "args": args}


def launched(
    name: str, *, at: float, runs: float, us: float, correlation: int
) -> list[dict[str, Any]]:
    grid, block = [64, 2, 1], [256, 1, 1]
    return [
        event("cudaLaunchKernel", "cuda_runtime", at, 3.0, correlation=correlation),
        event(
            name,
            "kernel",
            runs,
            us,
            correlation=correlation,
            grid=grid,
            block=block,
        ),
    ]


def device_trace(*events: dict[str, Any]) -> Trace:
    marks = [
        event(FORWARD, "user_annotation", 100.0, 50.0),
        event(FORWARD, "gpu_user_annotation", 300.0, 80.0),
        {"ph": "M", "name": "process_name", "ts": 0.0},
    ]
    (trace,) = read_traces({"traceEvents": [*marks, *events]}, "cuda")
    return trace


FLUSH = launched("fill", at=10.0, runs=11.0, us=250.0, correlation=1)
OUTPUT_COPY = launched("copy of the output", at=160.0, runs=400.0, us=5.0, correlation=9)


def test_what_forward_launched_is_its_own_however_late_it_runs() -> None:
    trace = device_trace(
        *FLUSH,
        *launched("own", at=110.0, runs=300.0, us=20.0, correlation=2),
        *launched("own", at=120.0, runs=310.0, us=20.0, correlation=3),
        *OUTPUT_COPY,
        event("Memset (Device)", "gpu_memset", 290.0, 2.0, correlation=4),
        event("cudaMemsetAsync", "cuda_runtime", 105.0, 2.0, correlation=4),
    )

    own, memset = trace.works
    assert (own.name, own.kind, own.count, own.time_us) == ("own", "kernel", 2, 40.0)
    assert (own.blocks, own.threads, own.all_threads) == (128, 128 * 256, 2 * 128 * 256)
    assert (memset.kind, memset.time_us) == ("copy", 2.0)
    assert trace.busy_us == 32.0, "streams overlap"
    assert [trace.works[run.work].name for run in trace.runs] == ["own", "own"]
    assert trace.call_us == 50.0


def test_each_marked_call_has_the_time_that_the_gpu_was_busy_with_it() -> None:
    marks = [event(FORWARD, "user_annotation", at, 50.0) for at in (100.0, 500.0)]
    works = [
        *FLUSH,
        *launched("own", at=110.0, runs=300.0, us=20.0, correlation=2),
        *launched("own", at=120.0, runs=330.0, us=20.0, correlation=3),
        *OUTPUT_COPY,
        *launched("own", at=510.0, runs=600.0, us=7.0, correlation=4),
    ]
    traces = read_traces({"traceEvents": [*marks, *works]}, "cuda")
    assert [one.busy_us for one in traces] == [40.0, 7.0]


def test_copies_of_whose_call_nothing_is_known_are_forward_s_between_the_grader_s_own() -> None:
    """The copy of the inputs comes before the flush, that of the outputs after the fence."""
    fence = launched("fill", at=155.0, runs=340.0, us=1.0, correlation=5)
    trace = device_trace(
        *FLUSH,  # until 261
        event("Memcpy DtoD", "gpu_memcpy", 5.0, 5.0, correlation=21),
        *launched("own", at=110.0, runs=300.0, us=20.0, correlation=2),
        event("Memcpy DtoD, forward's", "gpu_memcpy", 325.0, 4.0, correlation=22),
        *fence,
        event("Memcpy DtoD", "gpu_memcpy", 341.0, 70.0, correlation=23),
    )
    assert {work.name for work in trace.works} == {"own", "Memcpy DtoD, forward's"}
    assert trace.busy_us == 24.0


def test_a_marked_call_of_which_the_gpu_saw_nothing_has_no_time() -> None:
    mark = event(FORWARD, "user_annotation", 100.0, 50.0)
    (trace,) = read_traces({"traceEvents": [mark, *FLUSH]}, "cuda")
    assert trace.busy_us == 0.0


def test_a_forward_that_launches_nothing_has_an_empty_trace() -> None:
    trace = device_trace(*FLUSH, *OUTPUT_COPY)

    assert trace.works == ()
    assert trace.missing == ""


def test_a_profiler_that_saw_no_gpu_has_seen_nothing() -> None:
    trace = device_trace(event("cudaLaunchKernel", "cuda_runtime", 110.0, 3.0, correlation=2))

    assert "nothing on the GPU" in trace.missing


def test_kernels_of_a_graph_belong_to_its_launch_and_missing_ones_are_counted() -> None:
    launch = event("cudaGraphLaunch", "cuda_runtime", 120.0, 3.0, correlation=5)
    node = event("own", "kernel", 300.0, 20.0, correlation=5, grid=[1, 1, 1], block=[32, 1, 1])

    seen = device_trace(*FLUSH, launch, node)
    unseen = device_trace(*FLUSH, launch)

    assert (names(seen), seen.unseen_graphs) == ({"own"}, 0)
    assert (names(unseen), unseen.unseen_graphs) == (set(), 1)


def test_a_record_is_bounded_however_much_ran() -> None:
    many = [
        part
        for n in range(MAX_WORKS + 100)
        for part in launched(f"k{n}" * 2000, at=110.0, runs=300.0 + n, us=1.0 + n, correlation=n)
    ]

    trace = device_trace(*many)

    assert len(trace.works) == MAX_WORKS
    assert max(len(work.name) for work in trace.works) == MAX_NAME
    assert trace.works[0].time_us == MAX_WORKS + 100


def test_operators_that_only_take_long_leave_no_room_for_none_of_torch_s() -> None:
    mark = event(FORWARD, "user_annotation", 0.0, 1e6)
    lasting = [event(f"own::op{n}", "cpu_op", 10.0 * n, 9.0) for n in range(MAX_WORKS + 100)]
    product = event("aten::addmm", "cpu_op", 9e5, 1.0)

    (trace,) = read_traces({"traceEvents": [mark, *lasting, product]}, "cpu")

    assert len(trace.works) == MAX_WORKS
    assert "aten::addmm" in names(trace)


def test_a_trace_that_marks_no_forward_is_refused() -> None:
    with pytest.raises(ValueError, match="marks no call"):
        read_traces({"traceEvents": FLUSH}, "cuda")


@pytest.mark.parametrize(
    "text",
    [
        '{"busy_us": -1.0}',
        '{"busy_us": 1e300}',
        '{"works": [{"name": "k", "kind": "spell", "count": 1, "time_us": 1.0}]}',
        '{"works": [{"name": "k", "kind": "kernel", "count": -1, "time_us": 1.0}]}',
        '{"missing": "' + "x" * (MAX_NAME + 1) + '"}',
    ],
)
def test_a_forged_record_is_not_read(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Trace)

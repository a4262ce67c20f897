"""Which traced calls are refused as NO_CUSTOM_KERNEL, and which honest ones are not."""

import contextlib
import math
from pathlib import Path

import msgspec
import pytest

from kernelgen.grading.kernels.own import Policy, TracedCall, objection
from kernelgen.grading.supervisor.evidence import Evidence
from kernelgen.grading.supervisor.traced_calls import KernelCheck
from kernelgen.grading.verdict import Judged, Status
from kernelgen.grading.wire.messages import Tensors
from kernelgen.grading.wire.trace import Run, Trace, Work
from kernelgen.grading.wire.tree import Scalar, TensorSpec
from kernelgen.problem.record import Device, Libraries, Problem, Require
from kernelgen.solution.declared_kernels import declared_kernels
from kernelgen.solution.file import SolutionFile

GEMM = "sm90_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x32_execute_kernel__5x_cublas"
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float> >(int)"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)"
TEXT = "__global__ void own_kernel(float* x);"
OWN = "own_kernel(float*)"


def kernel(
    name: str, time_us: float, *, blocks: int = 1024, block: int = 256, count: int = 1
) -> Work:
    return Work(
        name=name,
        kind="kernel",
        count=count,
        time_us=time_us,
        blocks=blocks,
        threads=blocks * block,
        all_threads=count * blocks * block,
    )


def operator(name: str, elements: int, time_us: float = 5.0) -> Work:
    return Work(name=name, kind="operator", count=1, time_us=time_us, elements=elements)


def call_of(
    *works: Work, output_elements: int = 1 << 20, call_us: float | None = None, graphs: int = 0
) -> TracedCall:
    busy_us = sum(work.time_us for work in works)
    trace = Trace(
        works=works,
        busy_us=busy_us,
        call_us=busy_us if call_us is None else call_us,
        unseen_graphs=graphs,
    )
    return TracedCall(
        trace=trace, output_elements=output_elements, output_bytes=4 * output_elements
    )


def judge(
    call: TracedCall, *, libraries: Libraries = "allowed", reference: Trace | None = None
) -> str | None:
    policy = Policy(require="own_kernel", libraries=libraries)
    return objection(
        [call], declared_kernels(TEXT), policy, on_gpu=reference is None, reference=reference
    )


HONEST = {
    "own kernel alone": call_of(kernel("own_kernel(float*)", 50.0)),
    "one block that does all": call_of(kernel("own_kernel(float*)", 9.0, blocks=1)),
    "a zeroed output first": call_of(kernel(FILL, 40.0), kernel("own_kernel(float*)", 30.0)),
    # linear_instancenorm_add_mul at its own size, as measured on an H200.
    "epilogue of a matrix product": call_of(
        kernel(GEMM, 2650.0), kernel("own_kernel(float*)", 60.0), output_elements=8192 * 1024
    ),
    "bias of a huge product": call_of(
        kernel(GEMM, 22000.0),
        kernel("own_kernel(float*)", 130.0, blocks=132),
        output_elements=8192 * 8192,
    ),
    "persistent epilogue": call_of(
        kernel(GEMM, 9000.0),
        kernel("own_kernel(float*)", 500.0, blocks=132),
        output_elements=1 << 28,
    ),
    "own norm, torch's division": call_of(
        kernel(MUL, 35.0), kernel("own_kernel(float*)", 20.0, blocks=132), output_elements=1 << 24
    ),
    "tiny problem, small block": call_of(
        kernel(MUL, 2.0), kernel("own_kernel(float*)", 1.6, blocks=1), output_elements=222
    ),
    "graph that was not recorded": call_of(graphs=1),
}
DECOYS = {
    "nothing": (call_of(), "no kernel ran"),
    "torch alone": (call_of(kernel(MUL, 30.0)), "none of its own kernels ran"),
    "copies alone": (
        call_of(Work(name="Memcpy DtoD", kind="copy", count=1, time_us=3.0)),
        "Memcpy",
    ),
    "one element": (
        call_of(kernel(MUL, 30.0), kernel("own_kernel(float*)", 1.5, blocks=1, block=1)),
        "own_kernel",
    ),
    "one block": (
        call_of(kernel(MUL, 30.0), kernel("own_kernel(float*)", 1.7, blocks=1)),
        "to write the output",
    ),
    "one element of a small problem": (
        call_of(
            kernel(MUL, 2.0),
            kernel("own_kernel(float*)", 1.5, blocks=1, block=1),
            output_elements=222,
        ),
        "1 threads for 222",
    ),
    "behind a product with few outputs": (
        call_of(
            kernel(GEMM, 22000.0), kernel("own_kernel(float*)", 1.7, blocks=1), output_elements=8192
        ),
        "cublas",
    ),
    "an empty graph beside torch": (call_of(kernel(MUL, 30.0), graphs=1), "none of its own"),
    "kernel of unknown origin": (
        call_of(kernel("somebody_else_s(float*)", 10.0)),
        "somebody_else_s (unknown)",
    ),
    "launch beside an unknown library": (
        call_of(kernel("void cusparse::csrmm_kernel<4>(int)", 90.0), kernel(OWN, 1.5, blocks=1)),
        "cusparse::csrmm_kernel<4> (unknown)",
    ),
    "torch.compile": (call_of(kernel("triton_poi_fused_add_mul_0", 20.0)), "inductor"),
}


def timed(*ran: tuple[str, float, float], output_elements: int = 1 << 10) -> TracedCall:
    """Return a call whose kernels (name, begin, time; in us) ran then."""
    call = call_of(
        *(kernel(name, us, blocks=132) for name, _, us in ran), output_elements=output_elements
    )
    runs = tuple(Run(at, begin_us, us) for at, (_, begin_us, us) in enumerate(ran))
    return TracedCall(
        trace=msgspec.structs.replace(call.trace, runs=runs),
        output_elements=output_elements,
        output_bytes=call.output_bytes,
    )


@pytest.mark.parametrize("own_us", [30.0, 90.0, 100.0])
def test_own_kernels_that_run_only_beside_a_library_s_are_decoys(own_us: float) -> None:
    found = judge(timed((MUL, 0.0, 100.0), (OWN, 2.0, own_us)))
    assert "none of the time" in (found or "")


@pytest.mark.parametrize(
    "call",
    [
        timed((MUL, 0.0, 100.0), (OWN, 100.0, 30.0)),
        timed((MUL, 0.0, 100.0), (OWN, 80.0, 30.0)),
        timed((FILL, 0.0, 100.0), (OWN, 10.0, 30.0)),
        timed((OWN, 0.0, 100.0), ("own_kernel(int*)", 10.0, 30.0)),
        timed(("own_kernel(int*)", 0.0, 100.0), (MUL, 10.0, 30.0), (OWN, 10.0, 30.0)),
    ],
)
def test_own_kernels_with_time_of_their_own_are_none(call: TracedCall) -> None:
    assert judge(call) is None


def test_a_run_of_a_kernel_that_is_not_there_counts_for_nothing() -> None:
    call = timed((MUL, 0.0, 10.0), (OWN, 10.0, 3.0))
    forged = msgspec.structs.replace(call.trace, runs=(*call.trace.runs, Run(500, 0.0, 1e9)))
    assert judge(msgspec.structs.replace(call, trace=forged)) is None


@pytest.mark.parametrize("threads", [1, 32])
@pytest.mark.parametrize("time_us", [60.0, 400.0])
def test_a_few_threads_that_wait_have_not_written_the_output(threads: int, time_us: float) -> None:
    waiting = kernel("own_kernel(float*)", time_us, blocks=1, block=threads)
    found = judge(call_of(kernel(MUL, 90.0), waiting, output_elements=1 << 28))
    assert "to write the output" in (found or "")


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_call_is_not_refused(name: str) -> None:
    assert judge(HONEST[name]) is None


@pytest.mark.parametrize("name", DECOYS)
def test_a_decoy_is_refused_and_what_ran_is_named(name: str) -> None:
    call, reason = DECOYS[name]

    found = judge(call)

    assert found is not None
    assert reason in found


def test_one_call_without_own_kernels_is_enough() -> None:
    policy = Policy(require="own_kernel", libraries="allowed")
    calls = [HONEST["own kernel alone"], DECOYS["torch alone"][0]]

    declared = declared_kernels(TEXT)

    assert objection(calls, declared, policy, on_gpu=True, reference=None) is not None
    assert objection(calls[:1], declared, policy, on_gpu=True, reference=None) is None


def test_anything_is_allowed_where_the_problem_says_so() -> None:
    policy = Policy(require="anything", libraries="allowed")

    calls = [call_of(kernel(MUL, 1.0))]

    assert objection(calls, declared_kernels(TEXT), policy, on_gpu=True, reference=None) is None


def test_forbidden_libraries_are_named_and_fills_are_none() -> None:
    hybrid = HONEST["epilogue of a matrix product"]
    filled = HONEST["a zeroed output first"]
    touched = call_of(kernel("own_kernel(float*)", 100.0), kernel(MUL, 4.0))

    assert "cublas" in (judge(hybrid, libraries="forbidden") or "")
    assert judge(filled, libraries="forbidden") is None
    assert judge(touched, libraries="forbidden") is None


def test_on_a_cpu_forbidden_libraries_are_a_part_of_the_whole_call() -> None:
    scale = operator("aten::mul", 222, time_us=3.0)
    little, much = (call_of(scale, output_elements=222, call_us=us) for us in (200.0, 20.0))
    reference = Trace(works=(operator("aten::_softmax", 222),), call_us=10.0)

    assert judge(little, libraries="forbidden", reference=reference) is None
    assert "aten::mul" in (judge(much, libraries="forbidden", reference=reference) or "")


REFERENCE = Trace(works=(operator("aten::mul", 222), operator("aten::add", 222)), call_us=10.0)


@pytest.mark.parametrize(
    "works",
    [
        (operator("aten::mul", 222), operator("aten::add", 222)),
        (operator("aten::mul", 444), operator("aten::add_", 222), operator("aten::empty", 0)),
    ],
)
def test_on_a_cpu_the_reference_s_operators_at_full_size_are_a_decoy(
    works: tuple[Work, ...],
) -> None:
    call = call_of(*works, output_elements=222, call_us=200.0)

    assert "torch's add, mul" in (judge(call, reference=REFERENCE) or "")


@pytest.mark.parametrize(
    "works",
    [
        (),
        (operator("aten::contiguous", 222), operator("aten::empty_like", 222)),
        (operator("aten::mul", 222),),
        (operator("aten::mul", 222), operator("aten::add", 6)),
        (operator("mine::mul", 222), operator("mine::add", 222)),
    ],
)
def test_on_a_cpu_less_than_the_reference_s_operators_is_no_decoy(works: tuple[Work, ...]) -> None:
    call = call_of(*works, output_elements=222, call_us=200.0)

    assert judge(call, reference=REFERENCE) is None


def test_on_a_cpu_much_code_of_one_s_own_speaks_for_the_candidate() -> None:
    works = (operator("aten::mul", 222), operator("aten::add", 222))

    assert judge(call_of(*works, call_us=5000.0), reference=REFERENCE) is None


def test_on_a_cpu_other_operators_that_leave_no_time_are_a_decoy() -> None:
    fused = operator("aten::addcmul", 1 << 24, time_us=9000.0)
    large = call_of(fused, output_elements=1 << 24, call_us=9050.0)

    assert "too little to write" in (judge(large, reference=REFERENCE) or "")


OUTPUTS = Tensors(
    tree=Scalar(None),
    specs=(
        TensorSpec(
            dtype="float32", shape=(64, 32), stride=(32, 1), device="cuda", offset=0, nbytes=8192
        ),
    ),
)


def check_of(text: str, device: Device, require: Require = "own_kernel") -> KernelCheck:
    return KernelCheck(
        SolutionFile(path=Path("s.py"), text=text, sha256=""),
        Problem(name="p", summary="p", path=Path("p.yaml"), sha256="", require=require),
        device,
    )


def concluded(
    *traces: Trace, wall_us: float = 1e6, reference: Trace | None = None, text: str = TEXT
) -> Evidence:
    check = check_of(text, "cpu" if reference else "cuda")
    evidence = Evidence(expected=("main",))
    for trace in traces:
        check.add(trace, OUTPUTS, wall_us)
    check.conclude(evidence, reference)
    return evidence


def test_the_kernels_of_a_pass_are_kept() -> None:
    evidence = concluded(HONEST["own kernel alone"].trace)

    assert [use.owner for use in evidence.kernels] == ["candidate"]
    assert evidence.warnings == ()


@pytest.mark.parametrize(("problem_bytes", "refused"), [(1 << 20, True), (1 << 30, False)])
def test_a_small_call_that_cannot_be_followed_sets_out_to_prevent_it(
    problem_bytes: int, *, refused: bool
) -> None:
    check = check_of(TEXT, "cpu")
    elements = sum(math.prod(spec.shape) for spec in OUTPUTS.specs)
    ran = Trace(works=(operator("aten::exp", elements),), busy_us=10.0, call_us=50.0)
    check.add(ran, OUTPUTS, 1e6)
    check.add_followed(Trace(missing="too large"), problem_bytes)
    reference = Trace(works=(operator("aten::mul", elements),), busy_us=10.0, call_us=50.0)
    with pytest.raises(Judged) if refused else contextlib.nullcontext():
        check.conclude(Evidence(expected=("main",)), reference)


def test_a_profiler_that_fails_is_a_warning_and_no_verdict() -> None:
    evidence = concluded(Trace(missing="no CUPTI here"))

    assert evidence.kernels == ()
    assert "no CUPTI here" in evidence.warnings[0]


def test_breaking_the_profiler_is_tampering_where_the_oracle_s_works() -> None:
    text = f"import torch.autograd.profiler\n{TEXT}"
    failed = Trace(missing="RuntimeError: no")

    with pytest.raises(Judged) as judged:
        concluded(failed, text=text, reference=REFERENCE)

    assert judged.value.status is Status.TAMPERED
    assert concluded(failed, text=text, reference=failed).warnings != ()


FAILED = Trace(missing="FileNotFoundError: no temporary folder")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_no_trace_is_no_evidence_where_the_oracle_s_calls_can_be_traced(device: Device) -> None:
    check = check_of(TEXT, device)
    check.add(FAILED, OUTPUTS, 1e6)

    assert check.needs_reference
    assert not check.needs_batch
    with pytest.raises(Judged, match="it works where the candidate is not") as judged:
        check.conclude(Evidence(expected=("main",)), REFERENCE)
    assert judged.value.status is Status.NO_CUSTOM_KERNEL


def test_no_trace_is_a_warning_where_nobody_s_calls_can_be_traced_or_nothing_is_required() -> None:
    evidence = Evidence(expected=("main",))
    check = check_of(TEXT, "cpu", require="anything")
    check.add(FAILED, OUTPUTS, 1e6)
    check.conclude(evidence, REFERENCE)

    assert "no temporary folder" in evidence.warnings[0]
    assert concluded(FAILED, reference=Trace(missing="no CUPTI")).kernels == ()


def test_one_trace_that_fails_is_a_warning_beside_another() -> None:
    works = (operator("aten::mul", 222),)
    evidence = concluded(
        FAILED, call_of(*works, output_elements=222, call_us=200.0).trace, reference=REFERENCE
    )

    assert "no temporary folder" in evidence.warnings[0]
    assert evidence.kernels != ()


def test_what_a_traced_batch_runs_is_judged_as_well() -> None:
    check = check_of(TEXT, "cuda")
    check.add(HONEST["own kernel alone"].trace, OUTPUTS, 1e6)
    assert check.needs_batch

    check.add_batch(DECOYS["torch alone"][0].trace)

    with pytest.raises(Judged, match="none of its own kernels ran"):
        check.conclude(Evidence(expected=("main",)), None)


def test_a_batch_that_is_slower_where_it_is_traced_is_no_evidence() -> None:
    check = check_of(TEXT, "cuda")
    check.add(HONEST["own kernel alone"].trace, OUTPUTS, 1e6)
    check.add_batch("while a profiler records, a call takes 5 ms")

    with pytest.raises(Judged, match="a call takes 5 ms") as judged:
        check.conclude(Evidence(expected=("main",)), None)
    assert judged.value.status is Status.NO_CUSTOM_KERNEL


def test_no_batch_is_traced_where_it_decides_nothing() -> None:
    free = check_of(TEXT, "cuda", require="anything")
    free.add(HONEST["own kernel alone"].trace, OUTPUTS, 1e6)

    assert not free.needs_batch


def test_a_reference_that_cannot_be_traced_is_a_warning_and_no_verdict() -> None:
    call = call_of(operator("aten::mul", 222), call_us=200.0)
    evidence = concluded(call.trace, reference=Trace(missing="no profiler"))

    assert evidence.kernels != ()
    assert "no profiler" in evidence.warnings[0]


SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10>(float*, int)"


def test_a_library_s_kernel_declared_in_the_text_is_known_by_the_reference_s_trace() -> None:
    text = "__global__ void softmax_warp_forward(float* x);"
    call = call_of(kernel(SOFTMAX, 20.0))
    check = check_of(text, "cuda")
    check.add(call.trace, OUTPUTS, 1e6)
    evidence = Evidence(expected=("main",))

    assert check.needs_reference
    with pytest.raises(Judged) as judged:
        check.conclude(evidence, call.trace)
    assert judged.value.status is Status.NO_CUSTOM_KERNEL
    assert [use.owner for use in evidence.kernels] == ["aten"]


def test_one_s_own_softmax_may_be_called_as_aten_s_is() -> None:
    text = "__global__ void softmax_warp_forward(float* x, long n);"
    check = check_of(text, "cuda")
    check.add(call_of(kernel("softmax_warp_forward(float*, long)", 20.0)).trace, OUTPUTS, 1e6)
    evidence = Evidence(expected=("main",))
    check.conclude(evidence, call_of(kernel(SOFTMAX, 20.0)).trace)

    assert [use.owner for use in evidence.kernels] == ["candidate"]


def test_a_reference_s_trace_is_not_asked_for_where_nothing_is_disputed() -> None:
    check = check_of(TEXT, "cuda")
    check.add(HONEST["own kernel alone"].trace, OUTPUTS, 1e6)

    assert not check.needs_reference


def test_kernels_that_nobody_knows_are_named() -> None:
    works = (kernel("somebody_else_s(float*)", 10.0), kernel("own_kernel(float*)", 50.0))
    evidence = concluded(call_of(*works).trace)

    assert "do not count as its own: somebody_else_s" in evidence.warnings[0]


def test_a_decoy_ends_the_grading_and_leaves_its_kernels() -> None:
    with pytest.raises(Judged) as judged:
        concluded(DECOYS["torch alone"][0].trace)

    assert judged.value.status is Status.NO_CUSTOM_KERNEL
    assert "case main" in judged.value.reason


def test_more_work_than_time_is_tampering() -> None:
    with pytest.raises(Judged) as judged:
        concluded(call_of(kernel("own_kernel(float*)", 1e6)).trace, wall_us=1e5)

    assert judged.value.status is Status.TAMPERED
    assert "supervisor's clock" in judged.value.reason

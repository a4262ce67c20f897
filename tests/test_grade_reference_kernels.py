"""Calls on a GPU that run the whole reference beside own kernels, and those that only look so."""

from pathlib import Path

import msgspec
import pytest

from kernelgen.grading.supervisor.evidence import Evidence
from kernelgen.grading.supervisor.traced_calls import KernelCheck
from kernelgen.grading.verdict import Judged, Status
from kernelgen.grading.wire.messages import Tensors
from kernelgen.grading.wire.trace import Trace, Work
from kernelgen.grading.wire.tree import Scalar, TensorSpec
from kernelgen.problem.record import Problem, Require
from kernelgen.solution.file import SolutionFile

MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float> >(int)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)"
GEMM = "ampere_sgemm_32x32_sliced1x4_tn"
LAYER_NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>(int)"
DEPTHWISE = "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3>(int)"
COMPILED = "triton_poi_fused_add_mul_0"
CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, 2>(float*)"
COPY = Work(name="Memcpy DtoD (Device -> Device)", kind="copy", count=1, time_us=1.2)
TEXT = "__global__ void own_kernel(float* x);"
OWN = "own_kernel(float*)"
OUTPUTS = Tensors(
    tree=Scalar(None),
    specs=(
        TensorSpec(
            dtype="float32", shape=(6, 37), stride=(37, 1), device="cuda", offset=0, nbytes=888
        ),
    ),
)


def kernel(name: str, time_us: float = 1.3, *, blocks: int = 1, count: int = 1) -> Work:
    return Work(
        name=name,
        kind="kernel",
        count=count,
        time_us=time_us,
        blocks=blocks,
        threads=128 * blocks,
        all_threads=128 * blocks * count,
    )


def trace_of(*works: Work) -> Trace:
    busy_us = sum(work.time_us for work in works)
    return Trace(works=works, busy_us=busy_us, call_us=busy_us)


def calls(trace: Trace, **operators: int) -> Trace:
    """Return the trace with these operators of torch's called on so many elements."""
    called = tuple(
        Work(name=f"aten::{name}", kind="operator", count=1, time_us=5.0, elements=elements)
        for name, elements in operators.items()
    )
    return msgspec.structs.replace(trace, operators=called)


REFERENCE = trace_of(kernel(MUL), kernel(ADD))


def check_of(trace: Trace, *, text: str = TEXT, require: Require = "own_kernel") -> KernelCheck:
    check = KernelCheck(
        SolutionFile(path=Path("s.py"), text=text, sha256=""),
        Problem(name="p", summary="p", path=Path("p.yaml"), sha256="", require=require),
        "cuda",
    )
    check.add(trace, OUTPUTS, 1e6)
    return check


def conclude(trace: Trace, reference: Trace, text: str = TEXT) -> Evidence:
    """Conclude as a session does: with the reference's trace only where it is asked for."""
    check = check_of(trace, text=text)
    evidence = Evidence(expected=("main",))
    check.conclude(evidence, reference if check.needs_reference else None)
    return evidence


def refusal(trace: Trace, reference: Trace, text: str = TEXT) -> str:
    with pytest.raises(Judged) as judged:
        conclude(trace, reference, text)
    assert judged.value.status is Status.NO_CUSTOM_KERNEL
    return judged.value.reason


@pytest.mark.parametrize(
    "works",
    [
        # As measured on an H200: 222 elements, the own kernel on one of them.
        (kernel(MUL, 1.31), kernel(ADD, 1.31), COPY, kernel(OWN, 0.8)),
        (kernel(MUL), kernel(ADD, count=2, time_us=2.6), kernel(OWN, 1.6)),
        # A whole grid of threads, which write nothing.
        (kernel(MUL, 9.0, blocks=1024), kernel(ADD, 9.0, blocks=1024), kernel(OWN, 6.0, blocks=99)),
        # It waits for longer than they take.
        (kernel(MUL), kernel(ADD), kernel(OWN, 40.0, blocks=132)),
    ],
)
def test_beside_the_whole_reference_a_kernel_is_a_decoy(works: tuple[Work, ...]) -> None:
    found = refusal(trace_of(*works), REFERENCE)

    assert "runs all kernels that the reference runs" in found
    assert "own_kernel" in found
    assert "aten" in found


@pytest.mark.parametrize("own_us", [1.5, 90.0])
def test_beside_all_operators_of_the_reference_a_kernel_is_a_decoy(own_us: float) -> None:
    """A product's kernel does not say whether it adds a bias; the operator does."""
    reference = calls(trace_of(kernel(GEMM, 9.2)), addmm=4096)
    trace = calls(trace_of(kernel(GEMM, 9.2), kernel(OWN, own_us)), addmm=4096, empty=0)
    found = refusal(trace, reference)
    assert "calls torch's addmm on all" in found
    assert "own_kernel" in found


HONEST = {
    "a part of the reference": (trace_of(kernel(MUL), kernel(OWN)), REFERENCE),
    "fewer launches": (
        trace_of(kernel(MUL), kernel(OWN)),
        trace_of(kernel(MUL, count=2, time_us=2.6)),
    ),
    "a part of the elements": (
        trace_of(kernel(MUL, 6.0, blocks=512), kernel(OWN, 1.5, blocks=512)),
        trace_of(kernel(MUL, 12.0, blocks=1024)),
    ),
    "once in full and once on a part": (
        trace_of(
            Work(
                name=MUL,
                kind="kernel",
                count=2,
                time_us=18.0,
                blocks=1024,
                threads=128 * 1024,
                all_threads=128 * 1536,
            ),
            kernel(OWN, 3.0, blocks=512),
        ),
        trace_of(kernel(MUL, 24.0, blocks=1024, count=2)),
    ),
    "own kernels in place of moves": (
        trace_of(kernel(MUL), kernel(ADD), kernel(OWN, 40.0, blocks=132)),
        trace_of(kernel(MUL), kernel(ADD), kernel(CAT, 30.0)),
    ),
    "own kernels in place of a copy": (
        trace_of(kernel(MUL, 30.0), kernel(OWN, 20.0, blocks=1024)),
        trace_of(kernel(MUL, 30.0), COPY),
    ),
    "a bias that torch's product leaves": (
        calls(trace_of(kernel(GEMM, 9.0), kernel(OWN, 1.4)), mm=4096),
        calls(trace_of(kernel(GEMM, 9.2)), addmm=4096),
    ),
    "own kernels in place of the moves around a product": (
        calls(trace_of(kernel(GEMM, 90.0), kernel(OWN, 9.0)), addmm=4096),
        calls(trace_of(kernel(GEMM, 90.0), kernel(CAT, 9.0)), addmm=4096, cat=512),
    ),
    "torch's product on a part": (
        calls(trace_of(kernel(GEMM, 9.0), kernel(OWN, 9.4)), addmm=2048),
        calls(trace_of(kernel(GEMM, 18.0)), addmm=4096),
    ),
    "torch's product, the rest one's own": (
        calls(trace_of(kernel(GEMM, 9.0), kernel(OWN, 9.4)), addmm=4096, empty=0),
        calls(trace_of(kernel(GEMM, 9.0), kernel(ADD)), addmm=4096, relu=512),
    ),
    "a product, its bias one's own": (
        trace_of(kernel(GEMM, 9.0), kernel(OWN, 1.4)),
        trace_of(kernel(GEMM, 9.2)),
    ),
    "a product and a sum": (
        trace_of(kernel(GEMM, 9.0), kernel(ADD), kernel(OWN, 1.4)),
        trace_of(kernel(GEMM, 9.2), kernel(ADD)),
    ),
    "torch's norm, its weights one's own": (
        trace_of(kernel(LAYER_NORM, 2.1), kernel(OWN)),
        trace_of(kernel(LAYER_NORM, 2.2)),
    ),
    "torch's convolution, its bias one's own": (
        trace_of(kernel(DEPTHWISE, 3.0), kernel(OWN)),
        trace_of(kernel(DEPTHWISE, 3.1)),
    ),
    "a reference that only moves": (
        trace_of(kernel(FILL), kernel(OWN)),
        trace_of(kernel(FILL)),
    ),
    "made by torch.compile": (trace_of(kernel(COMPILED), kernel(OWN)), REFERENCE),
    "a reference that could not be traced": (
        trace_of(kernel(MUL), kernel(ADD), kernel(OWN)),
        Trace(missing="no CUPTI"),
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_what_is_less_than_the_reference_or_says_too_little_is_no_decoy(name: str) -> None:
    assert "candidate" in {use.owner for use in conclude(*HONEST[name]).kernels}


@pytest.mark.parametrize(
    "trace",
    [
        trace_of(kernel(OWN)),
        trace_of(kernel(OWN), kernel(FILL), COPY),
        trace_of(kernel(GEMM, 2650.0), kernel(OWN, 60.0, blocks=1024)),
        calls(trace_of(kernel(FILL), kernel(OWN, 40.0)), zeros=0, fill_=37),
        trace_of(kernel(MUL)),
    ],
)
def test_the_reference_is_not_traced_where_it_decides_nothing(trace: Trace) -> None:
    assert not check_of(trace).needs_reference


def test_the_reference_is_traced_where_it_decides() -> None:
    trace = trace_of(kernel(MUL), kernel(OWN))

    assert check_of(calls(trace_of(kernel(GEMM), kernel(OWN)), mm=4096)).needs_reference
    assert check_of(trace).needs_reference
    assert not check_of(trace, require="anything").needs_reference


def test_borrowing_the_names_of_aten_s_kernels_does_not_make_them_one_s_own() -> None:
    words = "MulFunctor CUDAFunctor_add"
    text = f"__global__ void vectorized_elementwise_kernel(int count); // {words}"

    alone = refusal(REFERENCE, REFERENCE, text)
    assert "none of its own kernels ran" in alone
    with_decoy = trace_of(*REFERENCE.works, kernel(OWN))
    assert "all kernels that the reference" in refusal(with_decoy, REFERENCE, text + TEXT)

"""Whose a kernel is, by its name as kineto prints it."""

from pathlib import Path

import pytest

from kernelgen.grading.kernels.attribution import attribute, is_all_own, is_disputed, kernel_uses
from kernelgen.grading.kernels.names import only_moves, parse_kernel_name
from kernelgen.grading.wire.trace import Trace, Work
from kernelgen.solution.declared_kernels import declared_kernels

TEXT = '''
import triton
import triton.language as tl

@triton.jit
def _softmax_fwd(x, y, n: tl.constexpr):
    tl.store(y, tl.load(x))

@triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit(do_not_specialize=["n"])
def tuned_kernel(x, n):
    tl.store(x, n)

SOURCE = r"""
namespace segment_norm {
template <int kWidth>
__global__ void __launch_bounds__(kRowThreads) norm_in_registers(Arguments a) {}
}
template <typename T> __global__ __launch_bounds__(256, 2) void scale_kernel(T* x) {}
extern "C" __global__ void
    plain(float* x);
static __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128) clustered(const float* x);
__global__ void my_cublas_like(float* x);
__global__ void gemv2T_kernel(float* x);
__global__ void vectorized_elementwise_kernel(float* x);
__global__ void ampere_sgemm_32x128_nn(float* x);
"""
'''
DECLARED = declared_kernels(TEXT)

ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
    "std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)"
)
MUL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, "
    "float, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int, "
    "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> "
    ">, std::array<char*, 3ul>)"
)
COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::"
    "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::"
    "{lambda()#7}::operator()() const::{lambda(float)#1}>(at::TensorIteratorBase&, at::native::"
    "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::"
    "{lambda()#7}::operator()() const::{lambda(float)#1} const&)::{lambda(int)#1}>(int, at::native"
    "::gpu_kernel_impl_nocast<...>)"
)
REDUCE = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, "
    "float, float, float>, unsigned int, float, 4, 4> >(at::native::ReduceOp<float, at::native::"
    "MeanOps<float, float, float, float>, unsigned int, float, 4, 4>)"
)
LINES = (Path(__file__).parent / "kernel_names.txt").read_text().splitlines()
NAMES = [line.split(maxsplit=1) for line in LINES if not line.startswith("#")]


def trace_of(*names: str, time_us: float = 10.0) -> Trace:
    works = tuple(Work(name=name, kind="kernel", count=1, time_us=time_us) for name in names)
    return Trace(works=works, busy_us=time_us * len(names), call_us=time_us)


def owner_of(name: str, text: str = TEXT) -> str:
    (found,) = attribute(trace_of(name), declared_kernels(text))
    return found.owner


@pytest.mark.parametrize(("owner", "name"), NAMES, ids=[name[:60] for _, name in NAMES])
def test_a_kernel_is_attributed_by_its_name(owner: str, name: str) -> None:
    assert owner_of(name) == owner


def test_every_declaration_is_found() -> None:
    assert DECLARED.cuda == {
        "norm_in_registers",
        "scale_kernel",
        "plain",
        "clustered",
        "my_cublas_like",
        "gemv2T_kernel",
        "vectorized_elementwise_kernel",
        "ampere_sgemm_32x128_nn",
    }
    assert DECLARED.triton == {"_softmax_fwd", "tuned_kernel"}
    assert DECLARED.libraries == frozenset()


def test_the_shipped_solution_s_kernels_are_found() -> None:
    text = "__global__ void __launch_bounds__(kThreads)\n    take_moments(Arguments a, Plan plan)"

    assert declared_kernels(text).cuda == {"take_moments"}


def test_a_declaration_without_a_plain_name_is_left_out() -> None:
    assert declared_kernels("a __global__ ; void f(int)").cuda == frozenset()
    assert declared_kernels("# __global__ is explained here").cuda == frozenset()


def test_declaring_a_library_s_name_does_not_make_its_kernel_one_s_own() -> None:
    assert owner_of(MUL) == "aten", "the text declares a vectorized_elementwise_kernel"
    generic = "void dot_kernel<float, cublasDotParams<float> >(cublasDotParams<float>)"
    assert owner_of(generic, "__global__ void dot_kernel(float* x)") == "cublas"
    assert owner_of("dot_kernel(float*)", "__global__ void dot_kernel(float* x)") == "candidate"


LIKE_ATEN_S = (
    "void at::native::vectorized_elementwise_kernel<4, cutlass_80_simt_sgemm::Polynomial>(int, "
    "cutlass_80_simt_sgemm::Polynomial)"
)


def test_a_declared_name_that_is_a_library_s_by_all_signs_is_unknown() -> None:
    text = """
namespace at::native { template <int kWidth, typename Operation>
__global__ void vectorized_elementwise_kernel(int count, Operation operation); }
namespace cutlass_80_simt_sgemm { struct Polynomial {}; }
"""

    assert owner_of(LIKE_ATEN_S, text) == "unknown"
    assert owner_of(MUL, text) == "aten", "filled with a functor that the text does not know"
    assert owner_of(MUL, f"{text} // BinaryFunctor binary_internal MulFunctor") == "unknown"
    assert owner_of("ampere_sgemm_32x128_nn") == "unknown"


def test_a_kernel_in_aten_s_namespace_may_take_torch_s_types() -> None:
    name = (
        "void at::native::row_scale<float>(at::GenericPackedTensorAccessor<float, 2ul, "
        "at::RestrictPtrTraits, int>)"
    )
    text = "namespace at::native { template <typename T> __global__ void row_scale(Rows<T> x); }"

    assert owner_of(name, text) == "unknown"
    assert owner_of(name, "") == "aten"


def test_what_the_reference_runs_as_well_is_the_library_s() -> None:
    words = "BinaryFunctor binary_internal MulFunctor"
    declared = declared_kernels(f"__global__ void vectorized_elementwise_kernel(); // {words}")
    (alone,) = attribute(trace_of(MUL), declared)
    (beside,) = attribute(trace_of(MUL), declared, trace_of(MUL, REDUCE))

    assert (alone.owner, beside.owner) == ("unknown", "aten")
    assert is_disputed(trace_of(MUL), declared)
    assert not is_disputed(trace_of("plain"), DECLARED)


def test_a_call_is_all_own_where_nothing_else_computed() -> None:
    assert is_all_own(trace_of("plain", COPY, ELEMENTWISE), DECLARED)
    assert not is_all_own(trace_of("plain", MUL), DECLARED)
    assert not is_all_own(trace_of("plain", "something_nobody_knows(int)"), DECLARED)
    assert not is_all_own(trace_of("gemv2T_kernel(float*)"), DECLARED), "disputed"
    assert not is_all_own(trace_of(COPY), DECLARED)
    assert not is_all_own(trace_of(), DECLARED)


def test_kernels_of_an_included_library_are_the_candidate_s() -> None:
    name = "void cub::CUB_200802_900_NS::DeviceReduceKernel<cub::Policy, float*>(float*)"
    gemm = "void cutlass::Kernel2<cutlass::gemm::kernel::Gemm<cutlass::Mma> >(Params)"

    assert owner_of(name, "#include <cub/cub.cuh>") == "candidate"
    assert owner_of(gemm, '#include "cutlass/gemm/device/gemm.h"') == "candidate"
    assert owner_of(gemm, "") == "unknown"


def test_a_template_of_aten_s_filled_by_the_candidate_is_its_own() -> None:
    name = (
        "void at::native::vectorized_elementwise_kernel<4, polynomial(at::Tensor)::"
        "{lambda(float)#1}, std::array<char*, 2ul> >(int, polynomial(at::Tensor)::{lambda(float)#1}"
        ", std::array<char*, 2ul>)"
    )
    text = "#include <ATen/native/cuda/Loops.cuh>\nat::Tensor polynomial(at::Tensor x) {}"

    assert owner_of(name, text) == "candidate"
    assert owner_of(MUL, text) == "aten"
    assert owner_of(name, "at::Tensor polynomial(at::Tensor x) {}") == "aten"


def test_fills_and_copies_compute_nothing() -> None:
    assert only_moves(ELEMENTWISE)
    assert only_moves(COPY)
    assert not only_moves(MUL)
    assert not only_moves(REDUCE)


@pytest.mark.parametrize(
    ("full", "base", "shown"),
    [
        ("void ns::softmax<4>(float const*)", "softmax", "ns::softmax<4>"),
        ("plain", "plain", "plain"),
        ("kernel(float*, int)", "kernel", "kernel"),
        ("void (anonymous namespace)::f<int, a<b> >(int)", "f", "f<int, a<b> >"),
        (REDUCE, "reduce_kernel", "at::native::reduce_kernel<...>"),
    ],
)
def test_a_name_is_taken_apart(full: str, base: str, shown: str) -> None:
    name = parse_kernel_name(full)

    assert (name.base, name.shown) == (base, shown)


def test_uses_are_averaged_over_calls_and_sorted_by_share() -> None:
    first = trace_of(MUL, "plain", time_us=10.0)
    second = trace_of("plain", time_us=60.0)

    own, library = kernel_uses([first, second], DECLARED, on_gpu=True)

    assert (own.name, own.owner, own.calls, own.time_us) == ("plain", "candidate", 1.0, 35.0)
    assert (library.owner, library.calls, library.time_us) == ("aten", 0.5, 5.0)
    assert own.share == pytest.approx(70 / 80)
    assert own.share + library.share == pytest.approx(1.0)


def test_on_a_cpu_what_no_operator_took_is_the_candidate_s() -> None:
    work = Work(name="aten::mul", kind="operator", count=2, time_us=30.0, elements=8)
    trace = Trace(works=(work,), busy_us=30.0, call_us=120.0)

    own, library = kernel_uses([trace], DECLARED, on_gpu=False)

    assert (own.owner, own.time_us, own.share) == ("candidate", 90.0, 0.75)
    assert (library.name, library.owner, library.calls) == ("aten::mul", "aten", 2.0)

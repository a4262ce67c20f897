"""The owner of a kernel, by its name as kineto prints it."""

from pathlib import Path

import pytest

from kernelgen.grading.kernels.attribution import attribute, disputed, kernel_uses
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


def test_a_declared_name_that_is_a_library_s_by_all_signs_is_disputed() -> None:
    text = """
namespace at::native { template <int kWidth, typename Operation>
__global__ void vectorized_elementwise_kernel(int count, Operation operation); }
namespace cutlass_80_simt_sgemm { struct Polynomial {}; }
"""

    assert owner_of(LIKE_ATEN_S, text) == "candidate"
    assert owner_of(MUL, text) == "aten", "filled with a functor that the text does not know"
    assert owner_of(MUL, f"{text} // BinaryFunctor binary_internal MulFunctor") == "candidate"
    assert owner_of("ampere_sgemm_32x128_nn") == "candidate"
    assert disputed(trace_of(LIKE_ATEN_S), declared_kernels(text)) != ()


def test_a_kernel_in_aten_s_namespace_may_take_torch_s_types() -> None:
    name = (
        "void at::native::row_scale<float>(at::GenericPackedTensorAccessor<float, 2ul, "
        "at::RestrictPtrTraits, int>)"
    )
    text = "namespace at::native { template <typename T> __global__ void row_scale(Rows<T> x); }"

    assert owner_of(name, text) == "candidate"
    assert owner_of(name, "") == "aten"


def test_what_the_reference_runs_as_well_is_the_library_s() -> None:
    words = "BinaryFunctor binary_internal MulFunctor"
    text = f"namespace at::native {{ __global__ void vectorized_elementwise_kernel(); }} // {words}"
    declared = declared_kernels(text)
    (alone,) = attribute(trace_of(MUL), declared)
    (beside,) = attribute(trace_of(MUL), declared, trace_of(MUL, REDUCE))

    assert (alone.owner, beside.owner) == ("candidate", "aten")
    assert disputed(trace_of(MUL), declared)
    assert not disputed(trace_of(MUL), declared, trace_of(MUL))
    assert not disputed(trace_of("plain"), DECLARED)


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


MACROS = r"""
#define KERNEL(name) extern "C" __global__ void name##_kernel(const float* x, float* y)
KERNEL(poly) { y[0] = x[0]; }
"""
FORMATTED = """
for activation in ("relu", "silu"):
    SOURCE += f"extern \\"C\\" __global__ void fused_{activation}_{width}(float* y) {{}}"
"""
PTX = 'PTX = ".visible .entry _Z10polynomialPKfPf( .param .u64 x )"'
NUMBA = "@cuda.jit\ndef polynomial(x, y):\n    pass"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (MACROS, "poly_kernel"),
        (MACROS.replace("poly", "p2"), "p2_kernel"),
        (FORMATTED, "fused_silu_256"),
        (PTX, "polynomial(float const*, float*)"),
        (NUMBA, "candidate::polynomial[abi:v1](Array<float, 1, C, mutable, aligned>)"),
        (NUMBA, "cudapy::__main__::polynomial$241(Array<float, 1, C, mutable, aligned>)"),
        ("@cute.kernel\ndef polynomial(x): pass", "kernel_cutlass_polynomial_tensorptrf32gmem_0"),
        ("@T.prim_func\ndef main(x): pass", "main_kernel"),
        ('create("template <typename T> T square(T x)")', "square_vectorized4_kernel"),
        ("#include <thrust/sort.h>", "void cub::CUB_300001_SM_900::DeviceKernel<int>(int)"),
        ("#include <cute/tensor.hpp>", "void cutlass::device_kernel<Gemm<float> >(Params)"),
        (
            "namespace a::b { __global__ void f(int*); }",
            "void a::b::(anonymous namespace)::f(int*)",
        ),
    ],
)
def test_names_that_are_made_of_the_text_are_the_candidate_s(text: str, name: str) -> None:
    assert owner_of(name, text) in {"candidate", "triton"}
    assert owner_of(name, "#include <cusparse.h>\n__global__ void decoy(float*);") == "unknown"


@pytest.mark.parametrize(
    "name",
    [
        "void cusparse::csrmm_alg2_kernel<128, float>(int)",
        "void cusparse::scale_kernel<float>(float*)",
        "void cusparse::load_balancing_kernel<float>(float*)",
        "void regular_fft<64u, 8u>(kernel_arguments_t<unsigned int>)",
    ],
)
def test_kernels_of_a_library_that_no_table_knows_are_not_the_candidate_s(name: str) -> None:
    text = "#include <cusparse.h>\n__global__ void scale_kernel(float* x); // load the kernel"

    assert owner_of(name, text) == "unknown"
    assert owner_of("void scale_kernel<float>(float*)", text) == "candidate"


def test_no_name_takes_long_to_read() -> None:
    text = " ".join("a" * length for length in range(2, 60))

    assert owner_of("a" * 4000 + "b(int)", text) == "unknown"
    assert owner_of("_Z" + "9" * 4000 + "b", f".entry _Z{'9' * 9000}") == "unknown"


# As nvcc 13.0 writes them into an object, behind them the parameters of the host's function.
STUBS = (
    "__device_stub__Z9fast_polyPfPf",
    "__device_stub__Z11poly_kernelPKfPfPKfPf",
    "__device_stub__ZN36_GLOBAL__N__e4bbbdd5_4_a_cu_858ce6bf4anonILi4EEEvPfPf",
    "__device_stub__ZN3cub17CUB_300001_SM_9006detail11EmptyKernelIvEEvvv",
    "__device_stub__ZN2ns3tplIZ2goEUnvdl0_PFvPfS1_P11CUstream_stmE2go1_EEvT_S1_R17__nv_dl_wrapper_t",
    "__device_stub_anonILi4EEEvRPf",
    "__device_stub__ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEEEEviT0_",
)


def test_what_the_candidate_s_sources_compiled_to_is_its_own_whatever_its_text_says() -> None:
    declared = declared_kernels("", STUBS)
    names = (
        "fast_poly(float*)",
        "poly_kernel",
        "void (anonymous namespace)::anon<4>(float*)",
        "void cub::CUB_300001_SM_900::detail::EmptyKernel<void>()",
        "void ns::tpl<go::{lambda(float)#1}>(go::{lambda(float)#1}, float*)",
        "_ZN2ns3tplIZ2goEUlfE_EEvT_Pf",
    )

    owners = {found.name: found.owner for found in attribute(trace_of(*names), declared)}
    assert set(owners.values()) == {"candidate"}
    (other,) = attribute(trace_of("void cusparse::tpl<4>(float*)"), declared)
    (aten,) = attribute(trace_of(ELEMENTWISE), declared)
    assert (other.owner, aten.owner) == ("unknown", "aten")


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

    own, library = kernel_uses([first, second], DECLARED, on_gpu=True, reference=None)

    assert (own.name, own.owner, own.calls, own.time_us) == ("plain", "candidate", 1.0, 35.0)
    assert (library.owner, library.calls, library.time_us) == ("aten", 0.5, 5.0)
    assert own.share == pytest.approx(70 / 80)
    assert own.share + library.share == pytest.approx(1.0)


def test_on_a_cpu_what_no_operator_took_is_the_candidate_s() -> None:
    work = Work(name="aten::mul", kind="operator", count=2, time_us=30.0, elements=8)
    trace = Trace(works=(work,), busy_us=30.0, call_us=120.0)

    own, library = kernel_uses([trace], DECLARED, on_gpu=False, reference=None)

    assert (own.owner, own.time_us, own.share) == ("candidate", 90.0, 0.75)
    assert (library.name, library.owner, library.calls) == ("aten::mul", "aten", 2.0)

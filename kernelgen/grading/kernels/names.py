"""Names as a profiler prints them: whose habits a kernel's has, what torch's operators do."""

import re

import msgspec

from kernelgen.grading.verdict import KernelOwner
from kernelgen.solution.declared_kernels import mangled_path

_ANONYMOUS = "(anonymous namespace)"
_LONGEST_SHOWN = 96

# cuDNN before cuBLAS: both use the same generators, and convolutions are cuDNN's.
_CUDNN = re.compile(
    r"cudnn|xmma_(?:fprop|dgrad|wgrad)|_(?:fprop|dgrad|wgrad)_|implicit_convolve|convolve_|winograd"
    r"|fft2d_(?:r2c|c2r)|explicit_convolve|nhwcToNchwKernel|nchwToNhwcKernel|scudnn|cask_"
)
_CUBLAS = re.compile(
    r"\bcublas\w*::|cublas(?:Gemv|Dot|Gemm|Param|Tensor|Lt)\w*|_cublas\b|\bnvjet_"
    r"|\bsm\d+_xmma_gemm|\b(?:maxwell|volta|turing|ampere|hopper|blackwell)_\w*gemm"
    r"|\bcutlass_\d+_\w*gemm|\bcutlass\d?x?_sm\d+_\w*gemm|\bcutlass3x_sm\d+|\bgemmSN_|\bgemmk1_kernel"
    r"|\bgemv2[TN]_kernel|\bgemvNSP_kernel|\bsplitKreduce_kernel|\binternal::gemvx::"
    r"|\bgemm_kernel1x1_core|\bmagma_"
)
_NCCL = re.compile(r"\bnccl(?:Dev|Kernel|AllReduce|Symk|Broadcast|Reduce)\w*")
_INDUCTOR = re.compile(r"\btriton_(?:(?:poi|red|per|tem|spl|unk|for|mm|bmm)_|\w*fused_)")
_ATEN = re.compile(
    r"\bat::(?:native|cuda)\b|\bat_cuda_detail::|\bc10::cuda|pytorch_flash::"
    r"|\bPyTorchMemEffAttention::|\bfmha_cutlass[FB]_"
)
# ATen's kernels that stand in no namespace of its own, and show no type of it either.
_ATEN_BARE_NAMES = """
    softmax_warp_forward softmax_warp_backward cunn_SoftMaxForward cunn_SoftMaxForwardSmem
    cunn_SoftMaxForwardReg cunn_SoftMaxForwardGmem cunn_SpatialSoftMaxForward
    elementwise_kernel_with_index
"""
_ATEN_BARE = frozenset(_ATEN_BARE_NAMES.split())
# Names that a library's generator makes and that no author gives to a kernel.
_GENERATED = re.compile(
    r"sm\d+_xmma_|nvjet_|(?:maxwell|volta|turing|ampere)_\w+_\d+x\d+|cutlass_\d+_|cudnn_generated"
)
# Kernels of ATen that write or move values and compute none.
_MOVES = re.compile(
    r"\bFillFunctor\b|direct_copy_kernel|\bCatArrayBatchedCopy|_copy_kernel_cuda|copy_device_to_device"
)


# Template arguments of libraries: ATen's functors, cuBLAS's parameters and tiles.
_LIBRARY_ARGUMENT = re.compile(
    r"\bat::native::(?:\{anonymous\}::)?(\w+)|\b(cublas\w+|cutlass_\d+_\w+)"
)
# Namespaces of torch's operators, but those that only call others.
_OPERATORS = ("aten::", "mkldnn::", "mkl::", "onednn::", "quantized::", "sparse::", "prims::")
# Operators that only make, name or move tensors: neither reading one of these in a trace nor its
# absence says who did the computation.
_NO_COMPUTATION_NAMES = """
    alias as_strided chunk clone contiguous copy copy_ detach empty empty_like empty_permuted
    empty_strided expand expand_as fill flatten full full_like is_nonzero is_pinned item lift_fresh
    _local_scalar_dense movedim narrow new_empty new_empty_strided new_full new_ones new_zeros
    numpy_T ones ones_like permute pin_memory _pin_memory ravel record_stream _reshape_alias reshape
    reshape_as resize resize_as resolve_conj resolve_neg result_type select set slice split
    split_with_sizes squeeze swapaxes t tensor_split to _to_copy transpose type_as unbind unflatten
    unfold unsafe_split unsqueeze view view_as _unsafe_view zero zeros zeros_like
"""
_NO_COMPUTATION = frozenset(_NO_COMPUTATION_NAMES.split())


class KernelName(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel's name taken apart.

    Attributes:
        full: as it was recorded.
        path: without template arguments, and anonymous namespaces: `ns::softmax` of
            `void ns::softmax<4>(float const*)`.
        base: the last part of its path.
        arguments: its template arguments, or "".
        shown: the path with short template arguments, for a report.
    """

    full: str
    path: str
    base: str
    arguments: str
    shown: str


def parse_kernel_name(full: str) -> KernelName:
    """Take a name apart, a mangled one as well."""
    # Its parentheses are no list of parameters.
    head = _without_parameters(full.replace(_ANONYMOUS, "{anonymous}"))
    start = _template_start(head)
    path, arguments = (head, "") if start is None else (head[:start], head[start:])
    path = mangled_path(full) or path.rstrip()
    if not path.endswith("operator()"):
        path = path.rpartition(" ")[2]
    # Numba's ending of a name.
    path = re.split(r"\[abi:|\$", path)[0] or path
    base = path.rpartition("::")[2]
    shown = path + (arguments if len(path) + len(arguments) <= _LONGEST_SHOWN else "<...>")
    shown = shown.replace("{anonymous}::", "")
    return KernelName(
        full=full,
        path=path.replace("{anonymous}::", ""),
        base=base,
        arguments=arguments,
        shown=shown[:_LONGEST_SHOWN] or full[:40],
    )


def library_of(name: KernelName) -> KernelOwner | None:
    """Return which library's habits a name has, or None."""
    if _ATEN.search(name.full):
        return "aten"
    if _CUDNN.search(name.full):
        return "cudnn"
    if _CUBLAS.search(name.full):
        return "cublas"
    if _NCCL.search(name.full):
        return "nccl"
    if _INDUCTOR.search(name.base):
        return "inductor"
    return "aten" if name.base in _ATEN_BARE else None


def surely_a_library_s(name: KernelName) -> bool:
    """Whether a name is a library's even where a solution declares a kernel called the same."""
    around = name.full.replace(name.base, "")
    return (
        name.shown.startswith(("at::", "at_cuda_detail::"))
        or _GENERATED.match(name.base) is not None
        or _CUBLAS.search(around) is not None
    )


def filled_by_a_library(name: KernelName, words: frozenset[str]) -> bool:
    """Whether a template argument is a library's, of which the text has no word."""
    arguments = _LIBRARY_ARGUMENT.finditer(name.arguments)
    return any((found[1] or found[2]) not in words for found in arguments)


def only_moves(name: str) -> bool:
    """Whether a kernel of ATen's fills or copies and computes nothing."""
    return _MOVES.search(name) is not None


def is_torch_operator(name: str) -> bool:
    """Whether a traced operator is torch's own."""
    return name.startswith(_OPERATORS)


def operator_computes(name: str) -> bool:
    """Whether it is an operator of torch's that computes something."""
    return is_torch_operator(name) and plain_name(name) not in _NO_COMPUTATION


def plain_name(name: str) -> str:
    """Return an operator's name without its namespace, the same for its in-place form."""
    return name.rpartition("::")[2].rstrip("_")


def _without_parameters(text: str) -> str:
    """Cut the list of parameters: the first `(` outside of template arguments, but operator()."""
    depth = 0
    for position, character in enumerate(text):
        if character == "<":
            depth += 1
        elif character == ">":
            depth -= text[position - 1] != "-"
        elif character == "(" and depth <= 0 and not text[:position].endswith("operator"):
            return text[:position]
    return text


def _template_start(head: str) -> int | None:
    """Return where the last template argument list begins, if the name ends with one."""
    if not head.rstrip().endswith(">"):
        return None
    depth = 0
    for position in range(len(head.rstrip()) - 1, -1, -1):
        depth += {">": 1, "<": -1}.get(head[position], 0)
        if depth == 0:
            return position
    return None

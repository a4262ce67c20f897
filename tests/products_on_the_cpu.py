"""Rendered matrix products as C++ for tests/cuda_emulation, and what tests do with them."""

import ctypes
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from shared_builds import EMULATION, Libraries

from kernelgen.engines.product import claims
from kernelgen.problem.library import load_problem
from kernelgen.rendering.solution import render

# An access that is not aligned, or outside of an array, ends the process.
COMPILER = (
    *("c++", "-std=c++17", "-O1", "-w", "-pthread", "-shared", "-fPIC"),
    *("-fsanitize=alignment,bounds,shift,signed-integer-overflow",),
    "-fsanitize-undefined-trap-on-error",
    "-fno-gnu-unique",  # or libraries would share what kernels of the same name share in a block
    f"-I{EMULATION}",
)
BOUND = 5e-7
# Of sums of thousands of products. Tensor cores cut off what they sum up.
BOUND_OF_LONG = 8e-7
SEED_OF_SLOW_ONES = 100  # from which four of a block's warps are far behind the others
NATURAL, BOTH = ("contiguous", "contiguous"), ("transposed", "transposed")


def cuda_source(name: str, overrides: dict[str, str], arch: str = "sm_90a") -> str:
    """Return the kernels of the product, however small it is, and what they call."""
    with mock.patch.object(claims, "_pays", return_value=True):
        return product_of(render(load_problem(name), "cuda", overrides, arch))


def product_of(text: str) -> str:
    """Return the kernels of the only product of a file; it and what it shares are `product`."""
    source = text.split('r"""\n')[1].split('"""', maxsplit=1)[0]
    (kernel,) = re.findall(r"\nextern \"C\" int64_t (\w+)_workspace_bytes", source)
    source = source[: source.index("\n}\n", source.index(f"int {kernel}_launch")) + 3]
    source = re.sub(r"\bproduct_\w+(?=;|::| {|\n)", "product", source)
    return re.sub(rf"\b{kernel}(?=_launch|_workspace|;| {{|\n|$)", "product", source)


def replaced(pattern: str, new: str, text: str, count: int = 1) -> str:
    """Replace what has to be there so many times."""
    text, found = re.subn(pattern, lambda match: match.expand(new), text, flags=re.DOTALL)
    assert found == count, (pattern, found)
    return text


def with_constants(source: str, constants: dict[str, dict[str, str]]) -> str:
    for namespace, values in constants.items():
        begin = source.index(f"namespace {namespace} {{")
        end = source.index(f"}}  // namespace {namespace}\n")
        text = source[begin:end]
        for name, value in values.items():
            pattern = rf"(\nconstexpr \w+ {name} = )[^;]*;"
            text = replaced(pattern, rf"\g<1>{value};", text)
        source = source[:begin] + text + source[end:]
    return source


def is_for_hopper(source: str) -> bool:
    """Return whether kernels use what came with compute capability 9.0."""
    return "wgmma" in source or "st.async" in source


# The form of wgmma, and what stands for a namespace that has another than that of fp16 along K.
_FORM = re.compile(r"k16\.f32\.(b?f16)\..*?}, %\d+, %\d+, p, 1, 1, (\d), (\d); }", re.DOTALL)
_OF_FORM = """
namespace ptx {{
using namespace ::hopper_ptx;
template <int kValues>
void multiply_add(float (&sum)[kValues], uint64_t rows, uint64_t columns, bool keep) {{
  ::hopper_ptx::multiply_add(sum, rows, columns, keep, {{{}, {} == 1, {} == 1}});
}}
}}  // namespace ptx
"""


def for_the_cpu(source: str) -> str:
    """Return the source with what only nvcc knows replaced."""
    hopper = is_for_hopper(source)
    source = re.sub(r"#include <cuda\w*\.h>\n", "", source)
    space = r"\nnamespace ptx {.*?}  // namespace ptx\n"
    stand_in = "\nnamespace ptx = ::hopper_ptx;\n" if hopper else "\n"
    # Before the kernels stand helpers, which the emulation has as well.
    (begin,) = re.findall(r"\A.*?(\nnamespace (?!ptx )\w+ {)", source, re.DOTALL)
    helpers, _, source = source.partition(begin)
    helpers = re.sub(space, r"\n", helpers, flags=re.DOTALL)

    def standing_in(found: re.Match[str]) -> str:
        if "mma.sync." in found[0]:  # not Hopper's, whose are "wgmma.mma_async.sync."
            return "\n"
        form = _FORM.search(found[0])
        if form is None or form.groups() == ("f16", "0", "0"):
            return stand_in
        return _OF_FORM.format(str(form[1] == "bf16").lower(), *form.groups()[1:])

    source = helpers + begin + re.sub(space, standing_in, source, flags=re.DOTALL)
    source = re.sub(r"asm volatile\([^;]*tid\.x;[^;]*;", "thread = threadIdx.x;", source)
    source = re.sub(r"asm volatile\(\"setmaxnreg[^;]*;\"\);", "", source)
    source = re.sub(r"// Programmatic dependent launch: if .*?\n}\n", "", source, flags=re.DOTALL)
    source = re.sub(r"\n#if __CUDA_ARCH__ >= 900\n.*?#endif\n", r"\n", source, flags=re.DOTALL)
    source = re.sub(
        r"extern __shared__ (?:__align__\(\d+\) )?([\w ]+) (\w+)\[\];",
        r"\1* \2 = emulation::dynamic_shared_memory<\1>();",
        source,
    )
    # The tensor cores' sums are there only when they are waited for.
    source = re.sub(
        r"(__device__ void promote\([^{]*{\n)", r"\1  ptx::wait_for_products();\n", source
    )
    source = re.sub(
        r"([\w:]+(?:<\w+>)?)<<<([^;]*?), stream>>>\(", r"emulation::launch_blocks<\1>(\2, ", source
    )
    source = re.sub(
        r"launch_kernel\(\s*stream, ([\w:]+(?:<\w+>)?),\s*",
        r"emulation::launch_kernel<\1>(",
        source,
    )
    source = re.sub(
        r"cudaLaunchKernelEx\(\s*&config, (\w+), ",
        r"emulation::launch_beside<\1>("
        "config.gridDim, config.blockDim, config.dynamicSmemBytes, ",
        source,
    )
    assert "asm" not in source
    assert "<<<" not in source
    return f'#include "{"hopper" if hopper else "tensor_cores"}.h"\n' + source


def with_mutants(source: str, mutants: dict[str, tuple[str, str]]) -> str:
    """Return a source that does what is wrong when its `mutant` is that one's number, from 1 on."""
    for number, (right, wrong) in enumerate(mutants.values(), 1):
        assert source.count(right) == 1, right
        if right.endswith(";"):
            either = f"if (mutant == {number}) {{ {wrong} }} else {{ {right} }}"
        else:
            either = f"(mutant == {number} ? {wrong} : {right})"
        source = source.replace(right, either)
    return 'extern "C" { int mutant = 0; }\n' + source


def compiled(
    sources: Mapping[str, Callable[[], str]],
    folder: Path,
    prepare: Callable[[str, ctypes.CDLL], None] = lambda *_: None,
) -> Libraries:
    """Return the library of each source, in whose text the tests' functions are."""

    def declare(name: str, library: ctypes.CDLL) -> None:
        library.fenced.restype = ctypes.c_void_p
        library.launched.restype = ctypes.c_char_p
        library.product_workspace_bytes.restype = ctypes.c_int64
        prepare(name, library)

    return Libraries(COMPILER, sources, folder, declare)


@contextmanager
def aligned_terms(library: ctypes.CDLL, *, aligned: bool = True) -> Iterator[None]:
    """Have the tensor cores align what they sum."""
    library.set_aligned_terms(int(aligned))
    try:
        yield
    finally:
        library.set_aligned_terms(0)


class Memory:
    """Tensors for one launch, between pages that nobody may touch."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._taken: list[tuple[ctypes.c_void_p, ctypes.c_int64]] = []

    def bytes(self, count: int) -> Any:
        """Return bytes that are all set; floats of them are NaN."""
        import torch

        size = ctypes.c_int64(count)
        address = self._library.fenced(size)
        self._taken.append((ctypes.c_void_p(address), size))
        if count == 0:
            return torch.empty(0, dtype=torch.uint8)
        buffer = (ctypes.c_char * count).from_address(address)
        return torch.frombuffer(buffer, dtype=torch.uint8)

    def floats(self, count: int) -> Any:
        """Return NaN."""
        import torch

        return self.bytes(count * 4).view(torch.float32)

    def address(self) -> ctypes.c_void_p:
        """Return where the last bytes are."""
        return self._taken[-1][0]

    def size(self) -> int:
        """Return how many they are."""
        return self._taken[-1][1].value

    def release(self) -> None:
        """Take all of it back."""
        for address, size in self._taken:
            self._library.release(address, size)


@contextmanager
def memory_of(library: ctypes.CDLL) -> Iterator[Memory]:
    memory = Memory(library)
    try:
        yield memory
    finally:
        memory.release()


# Of (batches, rows, depth).
LAYOUTS = (
    "contiguous", "unaligned", "pitched", "odd-pitch", "every-second", "broadcast", "batch-inside",
    "transposed", "transposed-unaligned", "transposed-pitched", "transposed-odd",
    "transposed-broadcast",
)  # fmt: skip


def strides_of(layout: str, batches: int, rows: int, depth: int) -> tuple[int, int, int]:
    pitch, row_pitch = (depth + 3) // 4 * 4 + 8, (rows + 3) // 4 * 4 + 4
    return {
        "pitched": (rows * pitch, pitch, 1),
        "odd-pitch": (rows * (depth + 3) + 1, depth + 3, 1),
        "every-second": (rows * (2 * depth + 2), 2 * depth + 2, 2),
        "broadcast": (0, pitch, 1),
        "batch-inside": (1, batches * depth, batches),
        "transposed": (rows * depth, 1, rows),
        "transposed-unaligned": (rows * depth, 1, rows),
        "transposed-pitched": (row_pitch * depth, 1, row_pitch),
        "transposed-odd": ((rows + 5) * depth + 2, 1, rows + 5),
        "transposed-broadcast": (0, 1, row_pitch),
        "sliding": (0, 4, 1),
    }.get(layout, (rows * depth, depth, 1))


def placed(memory: Memory, values: Any, layout: str) -> Any:
    """Return the values where the layout wants them, with NaN in between."""
    strides = strides_of(layout, *values.shape)
    shift = 1 if layout.endswith("unaligned") else 0
    last = sum((size - 1) * stride for size, stride in zip(values.shape, strides, strict=True))
    tensor = memory.floats(shift + last + 1).as_strided(values.shape, strides, shift)
    one = slice(1 if layout.endswith("broadcast") else None)
    tensor[one] = values[one]
    return tensor


class Ran(NamedTuple):
    """The outcome of a launch."""

    out: Any
    kernels: frozenset[str]  # that were launched, with their namespaces
    launches: str  # with all arguments of the templates
    any_wide: bool


def run(  # noqa: PLR0913
    library: ctypes.CDLL,
    a: Any,
    b: Any,
    bias: Any = None,
    *,
    others: tuple[Any, ...] = (),
    layouts: tuple[str, str] = ("contiguous", "contiguous"),
    shift: int = 0,
    device: tuple[int, int] = (1, 0),
    clusters: bool = True,
    further: tuple[Any, ...] = (),
) -> Ran:
    """Multiply (batches, rows, depth) by (batches, columns, depth), and look at the guards.

    Further are a launch's numbers and sizes of what repeats, as ctypes has them.
    """
    (batches, rows, depth), columns = a.shape, b.shape[1]
    count = batches * rows * columns
    library.set_device(*device)
    library.set_room_for_blocks(16 if clusters else 0)
    library.launched()
    with memory_of(library) as memory:
        placed_a, placed_b = placed(memory, a, layouts[0]), placed(memory, b, layouts[1])
        kept_a, kept_b = placed_a.clone(), placed_b.clone()
        beside = [None if x is None
                  else memory.bytes(x.nbytes).view(x.dtype).copy_(x.flatten())
                  for x in (bias, *others)]  # fmt: skip
        around = memory.floats(4 + shift + count)
        around[: 4 + shift] = 77.0
        out = around[4 + shift :]
        sizes = [batches, rows, columns, depth, *placed_a.stride(), *placed_b.stride()]
        sizes = [ctypes.c_int64(size) for size in sizes]
        operands = [ctypes.c_void_p(x.data_ptr()) for x in (placed_a, placed_b)]
        used = int(library.product_workspace_bytes(*operands, *sizes))
        assert used >= 0
        workspace = memory.bytes(used)
        place = memory.address()
        pointers = [ctypes.c_void_p(None if x is None else x.data_ptr()) for x in (*beside, out)]
        stream = ctypes.c_void_p(None)
        numbers = [one for one in further if isinstance(one, ctypes.c_float)]
        sizes += [one for one in further if isinstance(one, ctypes.c_int64)]
        status = library.product_launch(*operands, *pointers, place, *numbers, *sizes, stream)
        assert status == 0
        assert not library.was_stuck()
        slack = (ctypes.c_ubyte * (-used % 16)).from_address((place.value or 0) + used)
        assert all(byte == 0xFF for byte in slack)
        assert bool((around[: 4 + shift] == 77.0).all())
        assert torch.equal(placed_a.nan_to_num(), kept_a.nan_to_num())
        assert torch.equal(placed_b.nan_to_num(), kept_b.nan_to_num())
        launches = library.launched().decode()
        names = re.findall(r"kKernel = &?product::((?:\w+::)?\w+)", launches)
        splits = any("::split_" in name for name in names)
        any_wide = splits and bool(workspace[:8].any())  # a flag of each operand that is split
        return Ran(out.view(batches, rows, columns).clone(), frozenset(names), launches, any_wide)


def exact_product(a: Any, b: Any, bias: Any = None) -> Any:
    exact = a.double() @ b.double().mT
    return exact if bias is None else exact + bias.double()


def error_of(out: Any, a: Any, b: Any) -> float:
    """Return the largest error, relative to the largest result of its row."""
    exact = exact_product(a, b)
    return float(((out - exact) / exact.abs().amax(2, keepdim=True)).abs().max().item())


def error_of_fp32(a: Any, b: Any) -> float:
    """Return the same of fp32, rounded after each product."""
    plain = torch.zeros(a.shape[0], a.shape[1], b.shape[1])
    for k in range(a.shape[2]):
        plain = torch.addcmul(plain, a[:, :, k, None], b[:, None, :, k])
    return error_of(plain, a, b)


def worst_error(out: Any, a: Any, b: Any, bias: Any = None) -> float:
    """Return the largest error, relative to the sum of magnitudes; what is not finite is equal."""
    exact = exact_product(a, b, bias)
    size = exact_product(a.abs(), b.abs(), None if bias is None else bias.abs())
    fits = exact.abs() < torch.finfo(torch.float32).max
    others, expected = out[~fits], exact[~fits].float()
    if not torch.equal(others.isnan(), expected.isnan()):
        return float("inf")
    if not torch.equal(others.nan_to_num(), expected.nan_to_num()):
        return float("inf")
    error = (out[fits].double() - exact[fits]).abs() / (size[fits] + 1e-38)
    return float(error.nan_to_num(nan=float("inf")).max().item()) if error.numel() else 0.0


def is_right(out: Any, a: Any, b: Any, bias: Any = None, bound: float = BOUND) -> bool:
    reference = a @ b.mT if bias is None else a @ b.mT + bias
    return worst_error(out, a, b, bias) <= max(2 * worst_error(reference, a, b, bias), bound)


def check_gelu(out: Any, a: Any, b: Any, bias: Any, y: Any) -> None:
    """Compare with gelu(a b' + bias + y), relative to the sum of magnitudes."""
    exact = torch.nn.functional.gelu(exact_product(a, b, bias) + y.double())
    finite = exact.isfinite()
    assert torch.equal(out.isfinite(), finite)
    size = exact_product(a.abs(), b.abs(), None if bias is None else bias.abs()) + y.abs()
    assert ((out - exact).abs() / size)[finite].max().item() <= 1e-6


def check_mutants(
    library: ctypes.CDLL, mutants: Iterable[str], findings: Callable[[], Iterator[bool]]
) -> None:
    """Have comparisons hold of a library `with_mutants`, and not all of them of any mutant."""
    mutant = ctypes.c_int.in_dll(library, "mutant")
    assert all(findings())
    try:
        for number, name in enumerate(mutants, 1):
            mutant.value = number
            assert not all(findings()), name
    finally:
        mutant.value = 0


def operands(batches: int, rows: int, columns: int, depth: int) -> tuple[Any, Any, Any]:
    """Return both operands, whose rows are of different sizes, and a bias."""
    torch.manual_seed(batches + 3 * rows + 1009 * columns + 1000003 * depth)
    a, b = torch.randn(batches, rows, depth), torch.randn(batches, columns, depth)
    a *= torch.exp2(torch.randint(-12, 12, (batches, rows, 1)))
    b *= torch.exp2(torch.randint(-12, 12, (batches, columns, 1)))
    return a, b, torch.randn(columns)


WIDE = ("inf", "-inf", "nan", "two-inf", "range", "all-ranges", "large-and-one", "denormal")


def spoiled(x: Any, how: str) -> Any:
    """Return (batches, rows, depth) with a row or more in which values are out of the ordinary."""
    x = x.clone()
    row, depth = x.shape[1] // 2, x.shape[2]
    if how in {"inf", "-inf", "nan"}:
        x[0, row, 0 if how == "-inf" else depth - 1] = float(how)
    elif how == "two-inf":
        x[0, row, :2] = torch.tensor([torch.inf, -torch.inf])
    elif how == "range":
        x[0, row] *= torch.exp2(torch.rand(depth) * 40 - 20)
    elif how == "all-ranges":
        x *= torch.exp2(torch.rand(x.shape) * 40 - 20)
    elif how == "large-and-one":
        x[0, row] = 1.0
        x[0, row, 7] = 1e30
    elif how == "denormal":
        x[0, row] *= 1e-42
    elif how == "tiny":
        x[0, row] = (x[0, row].sign() + x[0, row] / 8) * 1e-36
    elif how == "huge":
        x[0, row] = x[0, row].sign() * (3e38 + x[0, row].abs() * 1e36)
    elif how == "zeros":
        x[0, row] = 0.0
    return x

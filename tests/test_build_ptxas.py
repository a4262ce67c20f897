"""The resources of kernels, from reports of the assembler that this machine has."""

import subprocess
from pathlib import Path

import pytest

from kernelgen.build.ptxas import demangle, parse_ptxas
from kernelgen.build.toolchain import find_toolkit

SOURCE = """\
template <int N>
__global__ void with_shared(float* y) {
  __shared__ float s[N];
  s[threadIdx.x] = y[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[(threadIdx.x + 1) % N];
}
template __global__ void with_shared<256>(float*);

__device__ __noinline__ float not_a_kernel(float x) { return x * x; }

__global__ void with_stack(float* y, int i) {
  float a[100];
  for (int j = 0; j < 100; ++j) a[j] = not_a_kernel(y[j]);
  y[0] = a[i];
}
"""


@pytest.mark.nvcc
def test_each_kernel_is_found_once_an_architecture(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(SOURCE)
    gencode = [f"-gencode=arch=compute_{n},code=sm_{n}" for n in ("80", "90a")]
    command = [str(find_toolkit().nvcc), *gencode, "-Xptxas", "-v", "-c", "k.cu", "-o", "k.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    kernels = parse_ptxas(done.stdout + done.stderr)

    found = {(kernel.name, kernel.arch): kernel for kernel in kernels}
    assert len(kernels) == len(found) == 4
    for arch in ("sm_80", "sm_90a"):
        shared = found["void with_shared<256>(float*)", arch]
        assert (shared.shared_bytes, shared.stack_bytes) == (1024, 0)
        assert 0 < shared.registers < 64
        stack = found["with_stack(float*, int)", arch]
        assert stack.stack_bytes >= 400
        assert stack.shared_bytes == 0


@pytest.mark.nvcc
def test_spills_are_counted(tmp_path: Path) -> None:
    loads = "".join(f"float a{i} = x[{i}];" for i in range(64))
    stores = "".join(f"y[{i}] = a{63 - i} * a{i};" for i in range(64))
    text = f"__global__ void k(volatile float* y, volatile float* x) {{ {loads} {stores} }}\n"
    (tmp_path / "k.cu").write_text(text)
    command = [str(find_toolkit().nvcc), "-arch=sm_80", "-maxrregcount=24", "-Xptxas", "-v"]
    command += ["-cubin", "k.cu", "-o", "k.cubin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    (kernel,) = parse_ptxas(done.stdout + done.stderr)
    assert kernel.spill_store_bytes > 0
    assert kernel.spill_load_bytes > 0
    assert kernel.registers <= 24


def test_a_text_without_kernels_has_none() -> None:
    assert parse_ptxas("ptxas info    : 0 bytes gmem\n") == ()


def test_a_forged_report_is_read_too() -> None:
    entry = "Compiling entry function '{}' for 'sm_80'\nptxas info : Used {} registers\n"
    assert parse_ptxas(entry.format("a\nb", 1)) == ()
    (kernel,) = parse_ptxas(entry.format("k", "9" * 5000) + entry.format("_Z1kv", 7))
    assert (kernel.name, kernel.registers) == ("k()", 7)


def test_a_short_name_of_gigabytes_stays_as_it_is() -> None:
    # A<int, int>, and 40 times a pair of what was before it.
    name, last = "_Z1f1AIiiE", "S0_"
    for number in range(1, 41):
        name += f"S_I{last}{last}E"
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
        last = f"S{'1' * (number > 35)}{digits[number % 36]}_"
    assert demangle([name]) == [name]
    assert demangle(["_Z1fi", "plain"]) == ["f(int)", "plain"]

"""Which of the user's environment variables reach a process that runs a candidate."""

import os
from collections.abc import Mapping

from kernelgen.child_python import python_path

# Variables that building and running needs. All else may be a secret of the user's shell, and a
# process's first environment can be read in /proc as long as it lives.
_PASSED_ON = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV",
    "CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "COMPILER_PATH", "MAX_JOBS",
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "LD_LIBRARY_PATH",
    "PYTHONPATH", "PYTHONHOME", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "PYTHONWARNINGS",
    "PYTHONPYCACHEPREFIX",
    "CONDA_PREFIX", "TORCH_CUDA_ARCH_LIST", "TORCH_DONT_CHECK_COMPILER_ABI",
    "TRITON_LIBCUDA_PATH", "TRITON_PTXAS_PATH",
})  # fmt: skip
_PREFIXES = (
    "LC_", "CUDA_", "CUBLAS_", "CUDNN_", "NVCC_", "NVIDIA_", "OMP_", "GOMP_", "KMP_", "MKL_",
    "OPENBLAS_", "MALLOC_", "NIX_CC", "NIX_CFLAGS", "NIX_LDFLAGS", "NIX_BINTOOLS",
)  # fmt: skip


def passed_on(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that building and running needs; empty ones only where that says more.

    To torch, an empty CXX is a compiler without a name.
    """
    return {
        name: value
        for name, value in environment.items()
        if (value and name in _PASSED_ON) or name.startswith(_PREFIXES)
    }


def room_environment(folder: str) -> dict[str, str]:
    """Return the variables of a contained process of ours: what it leaves, it leaves in a folder.

    It finds this very kernelgen, as `contained_command` needs.
    """
    ours = {"TMPDIR": folder, "HOME": folder, "PYTHONPATH": python_path(os.environ)}
    return {**passed_on(os.environ), **ours}

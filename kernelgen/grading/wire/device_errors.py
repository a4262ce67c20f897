"""Device errors in exceptions: the device is gone or broken, or memory ran out.

A lost GPU under the oracle is the grader's trouble, never the problem's or the candidate's. The
oracle runs the reference, which is plain torch: what it does wrong is a failed assertion or an
argument that CUDA refuses, and those are the problem's. The errors below are those of a device that
is gone, broken or taken away, whatever runs on it.
"""

import torch

# The numbers, which torch.AcceleratorError has as `error_code`, and the driver's names, which
# arena.py's errors have, of CUDA 13.0's driver_types.h and cuda.h.
_LOST = {
    46: "device_unavailable",
    100: "no_device",
    127: "startup_failure",
    201: "invalid_context",
    214: "ecc_uncorrectable",
    220: "nvlink_uncorrectable",
    226: "contained",  # by resetting the channel
    709: "context_is_destroyed",
    719: "launch_failed",
    802: "system_not_ready",
    803: "system_driver_mismatch",
    805: "mps_connection_failed",
    806: "mps_rpc_failure",
    807: "mps_server_not_ready",
    810: "mps_client_terminated",  # another client's failure ended this one
    999: "unknown",
}
# Also errors that torch raises as text.
_LOST_WORDS = (
    "busy or unavailable",
    "no cuda-capable device",
    "invalid device context",
    "uncorrectable",
    "unspecified launch failure",
    "cuda error: unknown error",
    "cuda unknown error",
    "device lost",
    "gpu is lost",
    "fallen off the bus",
    *(f"cuda_error_{name}" for name in _LOST.values()),
)
# torch's CPU allocator has no exception type of its own. Its CUDA allocator asks NVML who has the
# memory that is missing, and where NVML does not start it says only that.
_NO_MEMORY_WORDS = (
    "DefaultCPUAllocator: can't allocate memory",
    "NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_()",
)


def is_device_loss(error: BaseException) -> bool:
    """Whether an exception, raised in the oracle, says that the GPU is gone or broken.

    The texts that are looked at are CUDA's, raised in a trusted process: nothing that a candidate
    writes comes here.
    """
    code = getattr(error, "error_code", None)
    if isinstance(error, torch.AcceleratorError) and isinstance(code, int):
        return code in _LOST
    text = str(error).lower()
    about_cuda = isinstance(error, RuntimeError | OSError) and "cu" in text
    return about_cuda and any(words in text for words in _LOST_WORDS)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out, on a GPU or on the CPU."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return type(error) is RuntimeError and any(words in str(error) for words in _NO_MEMORY_WORDS)

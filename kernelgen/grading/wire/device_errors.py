"""What an exception says of the device: that it is gone or broken, or that memory ran out.

A lost GPU under the oracle is the grader's trouble, never the problem's or the candidate's. The
oracle runs the reference, which is plain torch: what it does wrong is a failed assertion or an
argument that CUDA refuses, and those are the problem's. The errors below are those of a device that
is gone, broken or taken away, whatever runs on it.
"""

import torch

# CUDA's numbers (driver_types.h of CUDA 13.0), which torch.AcceleratorError has as `error_code`.
_LOST_CODES = {
    46: "the device is busy or unavailable",
    100: "no device",
    127: "the driver fails to start",
    201: "the device's context is gone",
    214: "an uncorrectable ECC error",
    220: "an uncorrectable NVLink error",
    226: "an error contained by resetting the channel",
    709: "the device's context is destroyed",
    719: "a launch failure",
    802: "the system is not ready",
    803: "the driver does not fit the device",
    805: "MPS: the connection failed",
    806: "MPS: a call failed",
    807: "MPS: the server is not ready",
    810: "MPS: another client's failure ended this one",
    999: "an unknown error of the driver",
}
# Where there is no number: errors that torch raises as text, and the driver's names (arena.py).
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
    "cuda_error_device_unavailable",
    "cuda_error_no_device",
    "cuda_error_invalid_context",
    "cuda_error_context_is_destroyed",
    "cuda_error_ecc_uncorrectable",
    "cuda_error_nvlink_uncorrectable",
    "cuda_error_contained",
    "cuda_error_launch_failed",
    "cuda_error_system_not_ready",
    "cuda_error_mps_client_terminated",
    "cuda_error_unknown",
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
        return code in _LOST_CODES
    text = str(error).lower()
    about_cuda = isinstance(error, RuntimeError | OSError) and "cu" in text
    return about_cuda and any(words in text for words in _LOST_WORDS)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out, on a GPU or on the CPU."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return type(error) is RuntimeError and any(words in str(error) for words in _NO_MEMORY_WORDS)

"""A GPU that fails under the oracle: the grader's, and never the problem's or the candidate's.

The oracle runs the reference, which is plain torch: what it does wrong is a failed assertion or an
argument that CUDA refuses, and those are the problem's. The errors below are those of a device that
is gone, broken or taken away, whatever runs on it.
"""

from __future__ import annotations

import torch

from kernelgen.grading import messages as m
from kernelgen.grading.failure import is_out_of_memory
from kernelgen.grading.fault import ProblemFault
from kernelgen.grading.verdict import Status

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


def refusal_of(error: Exception, trace: str) -> m.Refused:
    """Return what the oracle answers when handling a message has raised.

    Args:
        error: what was raised.
        trace: its traceback, for an error that is none of the expected ones.
    """
    if is_device_loss(error):
        first_line = next(iter(str(error).splitlines()), "")
        reason = (
            f"the GPU failed under the oracle: {type(error).__name__}: {first_line}\nNothing "
            "follows about the candidate. Look at `nvidia-smi` and the kernel's log (Xid), and "
            "grade again"
        )
        return m.Refused(status=Status.GRADER_ERROR, reason=reason)
    if isinstance(error, ProblemFault):
        return m.Refused(status=Status.INVALID_PROBLEM, reason=str(error))
    if is_out_of_memory(error):
        reason = f"the grader itself ran out of memory: {error}"
        return m.Refused(status=Status.OUT_OF_MEMORY, reason=reason)
    return m.Refused(status=Status.GRADER_ERROR, reason=trace)

"""The settings that decide what "fp32" means, pinned before anything runs and read back after.

TF32 off for matrix products and for cuDNN (whose own default is on: an unpinned convolution is not
fp32), no reduced-precision accumulation, no autocast, float32 as the default dtype, or what the
problem's code sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelgen.problem.record import DTYPES, Precision

if TYPE_CHECKING:
    import torch

Pins = dict[str, bool | str | int]


def narrow_dtype(precision: Precision) -> torch.dtype | None:
    """Return the dtype that floats are rounded to; None where they stay as they are."""
    import torch

    return None if precision == "fp32" else getattr(torch, DTYPES[precision])


def narrow(module: torch.nn.Module, precision: Precision) -> None:
    """Round a module's floating parameters and buffers; they stay the objects that they are."""
    if precision != "fp32":
        for tensor in [*module.parameters(), *module.buffers()]:
            tensor.data = rounded(tensor.data, precision)


def in_words(precision: Precision) -> str:
    """Return a precision with what is pinned for it."""
    return "fp32 with TF32 off" if precision == "fp32" else precision


def rounded(tensor: torch.Tensor, precision: Precision) -> torch.Tensor:
    """Return a tensor in a precision; one that holds no floats stays."""
    dtype = narrow_dtype(precision)
    return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor


def pin(threads: int, default_dtype: str = "float32") -> None:
    """Set every pin; `threads` is the number of threads of torch's CPU operations."""
    import torch

    backends: Any = torch.backends
    # torch has an old and a new set of names for the same switches and refuses to read the old ones
    # where the new ones disagree. Neutral values in the new set, then False in the old one, is the
    # only order found that leaves both readable and everything off, whatever was set before.
    backends.fp32_precision = "none"
    backends.cudnn.fp32_precision = "none"
    backends.cuda.matmul.allow_tf32 = False
    backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.set_default_dtype(getattr(torch, default_dtype))
    torch.set_autocast_enabled("cuda", enabled=False)
    torch.set_autocast_enabled("cpu", enabled=False)
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


def as_torch_starts() -> None:
    """Set the switches that pin changes to what they are when torch is imported."""
    import torch

    backends: Any = torch.backends
    backends.cudnn.allow_tf32 = True
    backends.cuda.matmul.allow_fp16_reduced_precision_reduction = True
    backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True


def read_pins() -> Pins:
    """Return the settings in force now."""
    import torch

    backends: Any = torch.backends
    return {
        "cuda_matmul_tf32": backends.cuda.matmul.fp32_precision == "tf32",
        "cudnn_conv_tf32": backends.cudnn.conv.fp32_precision == "tf32",
        "cudnn_rnn_tf32": backends.cudnn.rnn.fp32_precision == "tf32",
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "autocast_cuda": torch.is_autocast_enabled("cuda"),
        "autocast_cpu": torch.is_autocast_enabled("cpu"),
        "threads": torch.get_num_threads(),
    }


def changed_pins(before: Pins, after: Pins) -> tuple[str, ...]:
    """Name the settings that differ, as `name: before -> after`."""
    return tuple(
        f"{name}: {value} -> {after.get(name)}"
        for name, value in before.items()
        if after.get(name) != value
    )

"""Whether this machine's rates are known, for `kernelgen doctor`."""

from datetime import datetime, timezone

from kernelgen.build.toolchain import cache_folder
from kernelgen.cli.machine_checks import Check
from kernelgen.errors import UserError
from kernelgen.hardware.calibration import age_of, look_up
from kernelgen.hardware.device import first_gpu
from kernelgen.hardware.identity import cpu_identity, gpu_identity


def check_calibration() -> Check:
    """Look whether the rates of the GPU, or of the CPU where there is none, are known."""
    gpu = first_gpu()
    identity = cpu_identity() if isinstance(gpu, str) else gpu_identity(gpu)
    try:
        cached = look_up(cache_folder(), identity)
    except UserError:
        return Check(name="calibration", state="warning", found="there is no folder to keep it in")
    if cached.calibration is not None:
        copy = cached.calibration.copy_gbps.median
        age = age_of(cached.calibration, datetime.now(timezone.utc))
        found = f"{identity.name} copies at {copy:.4g} GB/s, measured {age}"
        return Check(name="calibration", state="ok", found=found)
    return Check(
        name="calibration",
        state="warning",
        found=cached.warning or f"none of {identity.name}; each verdict measures a little itself",
        mend="kernelgen calibrate",
    )

"""Facts about the device that was graded on, for the report."""

import platform

import torch

from kernelgen.hardware.device import cpu_facts

Facts = dict[str, str | int | bool | None]


def describe_device(device: str) -> tuple[str, Facts]:
    """Return the device's name, and what else a reader of the times needs to know."""
    cpu = cpu_facts().name
    facts: Facts = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "platform": platform.platform(),
        "cpu": cpu,
        "cpu_threads": torch.get_num_threads(),
    }
    if device != "cuda":
        return cpu, facts
    properties = torch.cuda.get_device_properties(0)
    facts |= {
        "gpu": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": properties.L2_cache_size,
    }
    return str(properties.name), facts


def device_uuid(device: str) -> str:
    """Return what NVML calls the GPU, as `GPU-...`; "" for a CPU, or where torch does not tell."""
    if device != "cuda":
        return ""
    uuid = getattr(torch.cuda.get_device_properties(0), "uuid", None)
    return f"GPU-{uuid}" if uuid is not None else ""

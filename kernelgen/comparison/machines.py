"""Whether two runs were made on machines whose times may be compared."""

from collections.abc import Mapping
from typing import Any

from kernelgen.comparison.record import Difference
from kernelgen.grading.verdict import Run

# What the time of the same kernel depends on. Other facts are told and do not stand in the way.
_DECISIVE = (
    "gpu",
    "compute_capability",
    "multiprocessors",
    "memory_bytes",
    "l2_bytes",
    "driver",
    "torch",
    "cuda",
)
_DECISIVE_ON_A_CPU = ("cpu", "cpu_threads")
_SHORT_FACTS = (str, int, float, bool)


def differences(old: Run, new: Run) -> tuple[Difference, ...]:
    """Return what is not the same of the machines, decisive ones first.

    Only what both runs tell is compared: absent means not measured.
    """
    decisive = set(_DECISIVE)
    if "gpu" not in new.environment:
        decisive.update(_DECISIVE_ON_A_CPU)
    devices = _devices(old), _devices(new)
    found = []
    if all(devices) and devices[0] != devices[1]:
        found.append(Difference(name="device", old=devices[0], new=devices[1], decisive=True))
    for name in sorted(old.environment.keys() & new.environment.keys()):
        before, after = _fact(old.environment, name), _fact(new.environment, name)
        if before is not None and after is not None and before != after:
            found.append(Difference(name=name, old=before, new=after, decisive=name in decisive))
    return tuple(sorted(found, key=lambda one: not one.decisive))


def in_words(difference: Difference) -> str:
    """Return such as `torch is 2.12.0, was 2.11.0`."""
    return f"{difference.name} is {difference.new}, was {difference.old}"


def _devices(run: Run) -> str:
    return " and ".join(sorted({verdict.device for verdict in run.verdicts if verdict.device}))


def _fact(environment: Mapping[str, Any], name: str) -> str | None:
    """Return a fact as text; None for what is not one plain value."""
    value = environment[name]
    return str(value) if isinstance(value, _SHORT_FACTS) else None

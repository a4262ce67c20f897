"""Changes between two runs beside status and speed: the machine, the problem."""

from kernelgen.comparison.record import Difference
from kernelgen.grading.verdict import Run, Verdict

# What the time of the same kernel depends on. Other facts are told and do not stand in the way.
_DECISIVE = (
    "gpu", "compute_capability", "multiprocessors", "memory_bytes", "l2_bytes", "driver", "torch",
    "cuda",
)  # fmt: skip
_DECISIVE_ON_A_CPU = ("cpu", "cpu_threads")
_SHORT_FACTS = (str, int, float, bool)


def differences(old: Run, new: Run) -> tuple[Difference, ...]:
    """Return what is not the same of the machines, decisive ones first.

    Only what both runs tell is compared: absent means not measured.
    """
    decisive = {"device", *_DECISIVE, *(() if "gpu" in new.environment else _DECISIVE_ON_A_CPU)}
    before, after = _facts(old), _facts(new)
    found = [
        Difference(name=name, old=fact, new=after[name], decisive=name in decisive)
        for name, fact in before.items()
        if after.get(name, fact) != fact
    ]
    return tuple(sorted(found, key=lambda one: not one.decisive))


def _facts(run: Run) -> dict[str, str]:
    """Return the device, and the facts about the environment that are one plain value."""
    devices = sorted({verdict.device for verdict in run.verdicts if verdict.device})
    found = {"device": " and ".join(devices)} if devices else {}
    for name, value in sorted(run.environment.items()):
        if isinstance(value, _SHORT_FACTS):
            found.setdefault(name, str(value))
    return found


def other_problem(old: Verdict, new: Verdict) -> str:
    """Return in words that the problem itself is not the same, or "" where nothing says so."""
    rules = _rules(old), _rules(new)
    if rules[0] != rules[1]:
        was, now = (", ".join(rule) or "the problem's own" for rule in rules)
        return f"the rule is not the same: {now}, was {was}"
    before, after = _sizes(old), _sizes(new)
    for what, size in before.items():
        if after.get(what, size) != size:
            return f"the problem is not the same: {what} are {after[what]}, were {size}"
    return ""


def _rules(verdict: Verdict) -> list[str]:
    # Fewer samples are no other rule.
    found = verdict.overrides.items()
    return sorted(f"--{name} ({what})" for name, what in found if name != "quick")


def _sizes(verdict: Verdict) -> dict[str, int]:
    sizes = {}
    if verdict.timing is not None and verdict.timing.minimal_bytes is not None:
        sizes["the bytes to be moved"] = verdict.timing.minimal_bytes
    cases = () if verdict.correctness is None else verdict.correctness.cases
    return sizes | {f"the output elements of case {case.name}": case.elements for case in cases}

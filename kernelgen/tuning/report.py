"""A search for a person: what it came to."""

from collections.abc import Iterator
from statistics import median

from kernelgen.rendering.schedule_table import in_words
from kernelgen.report.columns import decimal
from kernelgen.tuning.search import Found, Target


def closing(found: Found, target: Target, budget_s: float, outcome: str) -> Iterator[str]:
    """Yield what was tried, how the fastest compares with the present schedule, and the outcome.

    `outcome` is what becomes of a faster one, such as `recorded`.
    """
    name = target.problem.name
    tried = len(found.verdicts) - len(found.present_ms) - len(found.best_ms)
    text = f"{tried} schedules tried on {found.verdicts[0].device or target.arch}"
    yield text if found.complete else f"{text}; the budget of {budget_s:g} s was spent first"
    if found.best is None:
        yield f"{name}: the present schedule stays, nothing was clearly faster"
        return
    if found.best_ms:
        whole = median(found.present_ms)
        gain, spread = (f"{100 * part / whole:.1f} %" for part in (found.gain_ms, found.spread_ms))
        times = (" ".join(map(decimal, one)) for one in (found.best_ms, found.present_ms))
        yield (
            f"fastest: {target.words(found.best)}: {' ms by turns with '.join(times)} ms of the "
            f"present one; {gain} faster, where grades of one schedule differ by {spread}"
        )
    if found.entry is None:
        yield f"{name}: the present schedule stays, that is no sure gain"
    else:
        yield f"{name}: {outcome} for {target.arch}: {in_words(found.entry) or 'the defaults'}"

"""ncu's details pages: each launch with its own page, its time and its bytes of DRAM."""

import re

from kernelgen.profile.record import Launch

METRICS = {
    "time_us": "gpu__time_duration.sum",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_written_bytes": "dram__bytes_write.sum",
}
"""Fields of `Launch`, and the metrics that fill them; none needs a kernel that is rewritten."""

# A page begins with the kernel, which is indented less than all that follows.
_PAGE = re.compile(
    r"^(?=  (\S.*) (\([\d, ]+\)x\([\d, ]+\)), Context \d+, Stream \d+)", re.MULTILINE
)
_ERROR = re.compile(r"^==ERROR== +(.*\S)", re.MULTILINE)
# Base units as ncu of different years writes them, and what they are of those of `Launch`.
_UNITS = {"ns": 1e-3, "nsecond": 1e-3, "byte": 1.0, "B": 1.0}


def read_launches(log: str) -> tuple[Launch, ...]:
    """Return the launches on the pages of a log of ncu's; none if it has no page."""
    # Text before the first page; then, of each, its kernel, its launch, and the page.
    _, *parts = _PAGE.split(log)
    return tuple(map(_launch, parts[::3], parts[1::3], parts[2::3]))


def errors(log: str) -> tuple[str, ...]:
    """Return what ncu reports as errors, each once, without its sign for them."""
    return tuple(dict.fromkeys(_ERROR.findall(log)))


def _launch(kernel: str, launched: str, page: str) -> Launch:
    numbers = {field: _number(page, metric) for field, metric in METRICS.items()}
    return Launch(kernel=kernel, launched=launched, page=page.rstrip(), **numbers)


def _number(page: str, metric: str) -> float | None:
    """Return a metric's value; None where ncu has none, or not in a base unit."""
    found = re.search(rf"^ +{re.escape(metric)} +(\w+) +(\d[\d,]*(?:\.\d+)?)$", page, re.MULTILINE)
    if found is None or found[1] not in _UNITS:
        return None
    return float(found[2].replace(",", "")) * _UNITS[found[1]]

"""A run's verdicts as KernelBench's `eval_results.json`, which its scripts read.

The file is `{problem: [entry of a sample, ...]}`, times in ms. What nobody could judge, such as a
file on a machine without a GPU, gets no entry: to KernelBench it has not been evaluated.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from kernelgen.destination import write_whole
from kernelgen.errors import UserError
from kernelgen.grading.timing.times import CANDIDATE
from kernelgen.grading.verdict import Owner, Run, Status, Verdict
from kernelgen.kernelbench.generated import Generated
from kernelgen.problem.text import encodable

FILE_NAME = "eval_results.json"

Entry = dict[str, Any]
Results = dict[str, list[Entry]]

_NO_TIME_MS = -1.0
_KEYS = {
    "compilation_error": (Status.BROKEN_CONTRACT, Status.BUILD_ERROR),
    "runtime_error": (Status.RUNTIME_ERROR, Status.CRASHED, Status.TIMEOUT, Status.OUT_OF_MEMORY),
    "correctness_issue": (
        Status.WRONG_STRUCTURE,
        Status.WRONG_SHAPE,
        Status.WRONG_DTYPE,
        Status.NON_FINITE,
        Status.WRONG_VALUES,
        Status.MUTATED_INPUT,
    ),
}
"""Where KernelBench puts the reason for a failure; of others, such as TAMPERED, it has no word."""


def read_results(path: Path) -> Results:
    """Read a file of results; none is there yet: no results.

    Older versions of KernelBench have one sample a problem, without a list around it.

    Raises:
        UserError: it cannot be read, or is something else.
    """
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        lists = {key: [e] if isinstance(e, dict) else e for key, e in found.items()}
        if all(key.isdecimal() and _are_entries(entries) for key, entries in lists.items()):
            return lists
    message = "expected KernelBench's results, an object of lists of samples, found something else"
    raise UserError(f"{path}: {message}; move the file away")


def write_results(path: Path, files: Sequence[Generated], run: Run) -> list[Verdict]:
    """Add a run's verdicts to a file of results, in one step; entries of other files stay.

    Returns:
        The verdicts that say nothing about their file, and so have no entry.

    Raises:
        UserError: what is there cannot be read, or the file cannot be written.
    """
    verdicts = {verdict.solution: verdict for verdict in run.verdicts}
    results = read_results(path)
    left_out = []
    for file in files:
        verdict = verdicts.get(encodable(str(file.path)))
        if verdict is None:  # interrupted before it
            continue
        if verdict.owner is not Owner.CANDIDATE:
            left_out.append(verdict)
            continue
        others = [e for e in results.get(str(file.problem), ()) if e["sample_id"] != file.sample]
        entry = entry_of(verdict, file.sample, run.environment)
        results[str(file.problem)] = sorted([*others, entry], key=lambda e: e["sample_id"])
    ordered = dict(sorted(results.items(), key=lambda item: int(item[0])))
    write_whole(json.dumps(ordered, indent=4).encode(), path)
    return left_out


def entry_of(verdict: Verdict, sample: int, environment: Mapping[str, Any]) -> Entry:
    """Return what KernelBench's evaluator would write about a sample."""
    device: Entry = {}
    if verdict.device:
        on_gpu = verdict.device == environment.get("gpu")
        device = {"hardware": verdict.device, "device": "cuda:0" if on_gpu else "cpu"}
    times_ms = verdict.timing.samples[CANDIDATE] if verdict.timing is not None else ()
    stats = _stats(times_ms, device) if times_ms else {}
    return {
        "sample_id": sample,
        "compiled": verdict.build is not None,
        "correctness": verdict.passed,
        "metadata": {**device, **_metadata(verdict)},
        "runtime": stats.get("mean", _NO_TIME_MS),
        "runtime_stats": stats,
    }


def _stats(times_ms: Sequence[float], device: Entry) -> Entry:
    figures: dict[str, Any] = {"mean": fmean, "std": pstdev, "min": min, "max": max}
    rounded = {name: float(f"{figure(times_ms):.4g}") for name, figure in figures.items()}
    return {**rounded, "num_trials": len(times_ms), **device}


def _metadata(verdict: Verdict) -> Entry:
    found: Entry = {"kernelgen_status": verdict.status.value}
    correctness = verdict.correctness
    if correctness is not None and correctness.max_abs_err is not None:
        found["max_difference"] = [f"{correctness.max_abs_err:.6f}"]
    if verdict.passed:
        assert correctness is not None
        calls = sum(case.calls for case in correctness.cases)
        return {**found, "correctness_trials": f"({calls} / {calls})"}
    key = next((key for key, held in _KEYS.items() if verdict.status in held), "other_error")
    return {**found, f"{key}_name": verdict.status.value, key: verdict.reason}


def _are_entries(entries: Any) -> bool:
    return isinstance(entries, list) and all(
        isinstance(entry, dict) and isinstance(entry.get("sample_id"), int) for entry in entries
    )

"""A lane whose files are prepared here, and graded by another machine."""

import threading
from abc import ABC, abstractmethod
from typing import Any

from kernelgen.grading.options import Phase
from kernelgen.grading.queue.job import Job
from kernelgen.grading.supervisor.file_grading import FileGrading
from kernelgen.grading.verdict import Verdict


class FarLane(ABC):
    """A grader of one file after another that waits for what grades them."""

    def __init__(self) -> None:
        self.environment: dict[str, Any] = {}
        self._stopped = threading.Event()

    def cancel(self, stop: threading.Event) -> None:
        """Wait no longer for the file that was given this event."""
        stop.set()

    def stop(self) -> None:
        """Wait no longer."""
        self._stopped.set()

    def grade_one(self, job: Job, number: int, phase: Phase, *, stop: threading.Event) -> Verdict:
        """Prepare a file, and grade it if there is no verdict by then."""
        ready = FileGrading(job, number, phase, stop).prepared()
        return ready if isinstance(ready, Verdict) else self.grade_ready(ready, number, phase, stop)

    @abstractmethod
    def grade_ready(self, ready: Job, number: int, phase: Phase, stop: threading.Event) -> Verdict:
        """Have a file graded that is prepared."""

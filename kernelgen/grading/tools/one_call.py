"""A candidate on the inputs of one case, in a process that a tool of NVIDIA's looks at.

compute-sanitizer looks at `main`, ncu at `kernelgen.profile.profile_host`. Both are the candidate's
process as much as its host is: nothing that it prints, writes or returns decides a verdict. torch
is imported when it is used: the supervisor imports this to ask.
"""

import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from kernelgen.hardware.device import usable_cores
from kernelgen.problem.record import Device, Precision, Problem
from kernelgen.solution.file import SolutionFile
from kernelgen.solution.importing import import_file
from kernelgen.solution.lending import lent_to

_REQUEST = "request.json"
CALLED = "called"
"""Name of the empty file that such a process leaves in its folder once it has done everything."""


class CallRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Call to make; it lies in the process's folder.

    Attributes:
        candidate: name of the candidate's file in the folder.
        reference: name of the file with the case's get_inputs and get_init_inputs.
        lent: source of what the reference lends to the candidate.
    """

    candidate: str
    reference: str
    lent: str
    device: str
    threads: int
    precision: Precision


def write_request(
    solution: SolutionFile, problem: Problem, reference: str, device: Device, folder: Path
) -> None:
    """Put into a folder what `OneCall` needs there.

    `reference` makes arguments and inputs. Where the process has any say in a verdict, that is all.
    """
    request = CallRequest(
        candidate=solution.path.name,
        reference="reference_of_the_case.py",
        lent=lent_to(solution.text, problem.module_source).source,
        device=device,
        threads=usable_cores(),
        precision=problem.precision,
    )
    (folder / request.candidate).write_text(solution.text, encoding="utf-8")
    (folder / request.reference).write_text(reference, encoding="utf-8")
    (folder / _REQUEST).write_bytes(msgspec.json.encode(request))


class OneCall:
    """The candidate's model and what it is called with.

    Args:
        folder: that `write_request` has filled.

    Attributes:
        phase: what is being done: `reference`, `import`, `construct` or `call`.
        reference: the reference's module, once loaded.
        arguments: of the constructor, once loaded.
        given: the inputs, on the device, once loaded.
    """

    def __init__(self, folder: Path) -> None:
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
        request = msgspec.json.decode((folder / _REQUEST).read_bytes(), type=CallRequest)
        self._folder, self._request = folder, request
        self.device = request.device
        self.path = folder / request.candidate
        self.phase = "reference"
        self.reference: ModuleType
        self.arguments: list[Any] = []
        self.given: list[Any] = []
        self._model: Any = None

    def load(self) -> None:
        """Make the inputs, build the candidate, construct it; raises whatever they raise."""
        import torch

        from kernelgen.grading.precision import narrow, pin, rounded
        from kernelgen.grading.wire.values import map_tensors, moved

        pin(self._request.threads)
        reference = self._folder / self._request.reference
        self.reference = import_file("reference", reference)
        with torch.device(self.device):
            self.arguments = self.reference.get_init_inputs()
            given = moved(self.reference.get_inputs(), self.device)
        precision = self._request.precision
        self.given = map_tensors(given, lambda one: rounded(one, precision))
        self.phase = "import"
        candidate = import_file("candidate", self.path, lent=self._request.lent)
        self.phase = "construct"
        self._model = candidate.ModelNew(*self.arguments).to(self.device)
        narrow(self._model, precision)

    def run(self) -> Any:
        """Call forward once, and return its result when the device is done."""
        import torch

        self.phase = "call"
        with torch.no_grad():
            result = self._model(*self.given)
        if self.device == "cuda":
            torch.cuda.synchronize()
        return result

    def tell_done(self) -> None:
        """Leave the sign that everything was done."""
        (self._folder / CALLED).touch()


def main() -> None:
    """Build, construct and call what the request in the folder argv[1] names, once."""
    call = OneCall(Path(sys.argv[1]))
    call.load()
    call.run()
    call.tell_done()

"""The process that compute-sanitizer looks at: it makes ModelNew on one case and calls it once.

It is the candidate's process as much as its host is: nothing that it prints, writes or returns
decides a verdict. Started as `python -m kernelgen.grading.sanitize_host FOLDER`.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import msgspec

from kernelgen.solution.importing import import_file

REQUEST = "request.json"
CALLED = "called"


class SanitizeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to call; it lies in the folder as REQUEST.

    Attributes:
        candidate: name of the candidate's file in the folder.
        reference: name of the file with the case's Model, get_inputs and get_init_inputs.
        device: `cuda` or `cpu`.
        threads: of torch's CPU operations.
    """

    candidate: str
    reference: str
    device: str
    threads: int


def main(folder: Path) -> None:
    """Build, construct and call what the folder's request names, once; leave CALLED at the end."""
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    import torch

    from kernelgen.grading.precision import pin
    from kernelgen.grading.values import moved

    request = msgspec.json.decode((folder / REQUEST).read_bytes(), type=SanitizeRequest)
    pin(request.threads)
    reference = import_file("reference", folder / request.reference)
    candidate = import_file("candidate", folder / request.candidate)
    with torch.device(request.device):
        arguments = reference.get_init_inputs()
        given = [moved(value, request.device) for value in reference.get_inputs()]
    model = candidate.ModelNew(*arguments).to(request.device)
    with torch.no_grad():
        model(*given)
    if request.device == "cuda":
        torch.cuda.synchronize()
    (folder / CALLED).touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

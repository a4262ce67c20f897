"""The process that compute-sanitizer looks at: it makes ModelNew on one case and calls it once.

Started as `python -m kernelgen.grading.tools.sanitize_host FOLDER`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kernelgen.grading.tools.one_call import OneCall


def main(folder: Path) -> None:
    """Build, construct and call what the folder's request names, once."""
    call = OneCall(folder)
    call.load()
    call.run()
    call.tell_done()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

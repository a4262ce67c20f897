"""What the process that the others are forked from may and may not have done."""

import os
import subprocess
import sys
from pathlib import Path

# Stands for a build with CUDA, in which any of these makes every later fork useless on a GPU.
IMPORTS_WHAT_ALL_NEED = """\
import torch

def asks(*args, **kwargs):
    raise SystemExit("CUDA was asked for devices before the forks")

torch.version.cuda = "13.0"
torch.cuda._is_compiled = lambda: True
torch._C._cuda_getCurrentRawStream = asks
for name in ("_cuda_getDeviceCount", "_cuda_init"):
    setattr(torch._C, name, asks)
for name in ("is_available", "device_count", "init", "_lazy_init"):
    setattr(torch.cuda, name, asks)

from kernelgen.grading import forkserver

forkserver._import_for_all()
import sys
assert "torch._dynamo" in sys.modules and "sympy" in sys.modules
"""


def test_its_imports_do_not_touch_cuda(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS_WHAT_ALL_NEED],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

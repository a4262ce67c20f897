#!/usr/bin/env bash
# Renders the shipped problems and grades what came out: scripts/demo.sh PYTHON auto|cpu
set -euo pipefail

python=$1 device=$2

run() {
  printf '\n$ kernelgen %s\n' "$*"
  "$python" -m kernelgen "$@"
}

if [[ $device == auto ]] && nvidia-smi >/dev/null 2>&1; then
  # -W: torch warns of a missing numpy, which nothing here needs
  "$python" -W ignore - <<'EOF'
import sys

import torch

if not torch.cuda.is_available():
    sys.exit(
        f"demo: nvidia-smi sees a GPU and torch {torch.__version__} (for CUDA {torch.version.cuda}) "
        "cannot use it. Update the driver, or install a torch for the driver that there is into a "
        "Python of yours and run: make demo INSTALL=no PYTHON=that-python. "
        "For the CPU's demo: make demo DEVICE=cpu"
    )
EOF
  run render --all
  run grade solutions/
else
  # One solution of each family; scripts/tables.py has the same names.
  solutions=()
  for name in groupnorm rmsnorm softmax matmul linear_instancenorm_add_mul; do
    solutions+=("solutions/cpu/$name.py")
  done
  run render --all --backend cpp
  # Correctness and the page: times of a laptop's CPU say little.
  run grade "${solutions[@]}" --no-timing --html demo.html
  printf '\nThe page is demo.html.\n'
  printf '\nTo grade all of them: %s -m kernelgen grade solutions/cpu\n' "$python"
fi

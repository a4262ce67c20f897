#!/usr/bin/env bash
# Installs kernelgen into a virtual environment: scripts/install.sh PYTHON VENV demo|test
#
# `test` adds the tools that tests and checks need. NVIDIA's compiler comes from the package registry
# where there is none: for the demo on a machine with a GPU, and for the tests, which compile every
# CUDA solution on any Linux machine.
set -euo pipefail

python=$1 venv=$2 purpose=$3

die() {
  printf 'install: %s\n' "$*" >&2
  exit 2
}

has_gpu() { nvidia-smi >/dev/null 2>&1; }

has_nvcc() {
  command -v nvcc >/dev/null || [[ -x ${CUDA_HOME:-/usr/local/cuda}/bin/nvcc ]]
}

# NVIDIA publishes the compiler as wheels for these machines only.
nvcc_has_wheels() {
  [[ $(uname -s) == Linux && $(uname -m) =~ ^(x86_64|aarch64)$ ]]
}

command -v "$python" >/dev/null || die "no '$python' here; name one: make PYTHON=/path/to/python3"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  die "$python is Python $version; kernelgen needs 3.10 or later: make PYTHON=python3.12"
command -v "${CXX:-c++}" >/dev/null || command -v g++ >/dev/null ||
  die "no C++ compiler; install g++ (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++)"

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  echo "install: making $venv with Python $version"
  "$python" -m venv --clear "$venv" ||
    die "$python cannot make a virtual environment (Debian, Ubuntu: apt install python3-venv)"
fi

extras=()
[[ $purpose == test ]] && extras+=(dev)
if ! has_nvcc && { has_gpu || [[ $purpose == test ]]; }; then
  if nvcc_has_wheels; then
    extras+=(nvcc)
  elif has_gpu; then
    die "a GPU but no nvcc; install NVIDIA's CUDA toolkit 13.0, or set CUDA_HOME to where it is"
  fi
fi
wanted=.
((${#extras[@]})) && wanted=".[$(IFS=,; echo "${extras[*]}")]"

pip=("$venv/bin/python" -m pip install --disable-pip-version-check --constraint constraints.txt)
[[ -t 1 ]] || pip+=(--quiet --quiet) # a log wants errors only; a person wants to see the download move
# torch first and by itself: it is most of the download, and nothing later may choose another one.
echo "install: torch (the largest part; its CUDA build is several GB)"
"${pip[@]}" torch
echo "install: kernelgen as $wanted"
"${pip[@]}" --editable "$wanted"

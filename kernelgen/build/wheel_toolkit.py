"""A toolkit that torch can build with, put together from NVIDIA's wheels by links.

Two layouts exist. Since CUDA 13 all wheels share one folder, `nvidia/cu13`; before, each had its
own, such as `nvidia/cuda_nvcc` and `nvidia/cuda_runtime`. Neither has `lib64`, nor a `libcudart.so`
without a version in its name, and torch links with `-L$CUDA_HOME/lib64 -lcudart`.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from kernelgen.errors import ToolchainError

# By path and not by name: what a package index holds under this name is for others to say.
INSTALL_NVCC = "install the CUDA toolkit, or in kernelgen's folder run: pip install '.[nvcc]'"
_RUNTIME = "libcudart.so"
# Of a wheel, with what they are called in a toolkit.
_FOLDERS = {"bin": "bin", "include": "include", "nvvm": "nvvm", "lib64": "lib64", "lib": "lib64"}


def wheel_homes(locations: Iterable[Path]) -> Iterator[Path]:
    """Yield the folders below the `nvidia` packages that hold bin/nvcc, newest layout first."""
    for location in locations:
        # Reversed, so that cu13 comes before cu12.
        for home in [*sorted(location.glob("cu[0-9]*"), reverse=True), location / "cuda_nvcc"]:
            if (home / "bin" / "nvcc").is_file():
                yield home


def can_link(home: Path) -> bool:
    """Return whether `-lcudart` is found where torch looks: lib64, or lib if there is no lib64."""
    folder = home / "lib64" if (home / "lib64").is_dir() else home / "lib"
    return (folder / _RUNTIME).exists()


def assemble(home: Path, version: str, cache: Path) -> Path:
    """Return a folder of links in the cache that completes a toolkit made of wheels.

    Raises:
        ToolchainError: no CUDA runtime library lies beside nvcc, or the cache cannot be written.
    """
    sources = _parts(home)
    # Two virtual environments with the same version must not share a folder of links.
    identity = hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:8]
    target = cache / f"cuda-{version}-{identity}"
    if (target / "bin" / "nvcc").exists() and can_link(target):
        return target
    try:
        cache.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix="cuda-", dir=cache))
        _fill(fresh, sources)
        if not can_link(fresh):
            shutil.rmtree(fresh)
            raise ToolchainError(f"{home} has nvcc but no {_RUNTIME} lies with it; {INSTALL_NVCC}")
        _publish(fresh, target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ToolchainError(
            f"{cache}: a CUDA toolkit cannot be put together there: {reason}; "
            "set XDG_CACHE_HOME to a folder that can be written"
        ) from error
    return target


def _publish(fresh: Path, target: Path) -> None:
    if target.exists():
        # Its links dangle: the wheels that they pointed to are gone.
        shutil.rmtree(target)
    try:
        fresh.rename(target)
    except OSError:
        # Another process has just put the same links there.
        if not can_link(target):
            raise
        shutil.rmtree(fresh)


def _parts(home: Path) -> list[Path]:
    if home.name != "cuda_nvcc":
        return [home]
    others = (path for path in home.parent.iterdir() if path.is_dir() and path != home)
    return [home, *sorted(path for path in others if not path.name.startswith("cu1"))]


def _fill(fresh: Path, sources: list[Path]) -> None:
    for source in sources:
        for name, merged in _FOLDERS.items():
            if (source / name).is_dir():
                _merge(source / name, fresh / merged)
    libraries = fresh / "lib64"
    versioned = sorted(libraries.glob(f"{_RUNTIME}.*"))
    if versioned and not (libraries / _RUNTIME).exists():
        (libraries / _RUNTIME).symlink_to(versioned[0].name)


def _merge(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for entry in source.iterdir():
        link = target / entry.name
        if not os.path.lexists(link):
            link.symlink_to(entry.resolve())
        elif entry.is_dir() and link.is_dir():
            if link.is_symlink():
                # Two wheels share this folder's name, so it becomes a real one that holds both.
                first = link.resolve()
                link.unlink()
                _merge(first, link)
            _merge(entry, link)

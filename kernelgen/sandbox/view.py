"""Which files a contained process sees: what building and running needs, and nothing else."""

import functools
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from kernelgen.installation import problems_folder
from kernelgen.sandbox.record import Plan

_SYSTEM = (
    "/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/opt", "/sys",
    "/nix/store", "/gnu/store", "/run/opengl-driver", "/run/nvidia/driver",
)  # fmt: skip
# Not the whole of /etc: for root, that holds secrets.
_ETC = (
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "passwd", "group",
    "nsswitch.conf", "localtime", "timezone", "locale.alias", "OpenCL", "nvidia", "os-release",
    "host.conf", "hosts", "mime.types",
)  # fmt: skip
_TOOLS = ("c++", "g++", "gcc", "cc", "clang++", "clang", "ld", "as", "ninja", "nvcc", "ptxas")
_NAMED_TOOLS = ("CXX", "CC", "NVCC_CCBIN", "TRITON_PTXAS_PATH")
_SEARCH_PATHS = ("LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CPLUS_INCLUDE_PATH")
# Root may read these without any capability.
_KERNELS_OWN = ("/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security")
_NODES = ("null", "zero", "full", "random", "urandom")
_GPU_NODES = ("nvidia*", "dxg")
_PACKAGE = Path(__file__).resolve().parents[1]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Absolute paths that exist, the outer before the inner.

    Attributes:
        readable: files and folders to be read, and never written.
        hidden: what lies in one of those and may not be read.
        devices: nodes, and folders of nodes, to be used.
    """

    readable: tuple[str, ...]
    hidden: tuple[str, ...]
    devices: tuple[str, ...]

    def shows(self, path: str) -> bool:
        """Whether a path can be read: the innermost entry that holds it says so."""
        around = (path, *map(str, Path(path).parents))
        entry = next((one for one in around if one in self.readable or one in self.hidden), "")
        return entry in self.readable


def view_of(plan: Plan) -> View:
    """Return what a plan shows of this machine to a process like this one."""
    home = _resolved_home(plan.home)
    # It may have been found a while ago.
    readable = {*filter(os.path.exists, _standard_readable(home)), *_both(plan.readable)}
    readable |= set(_both(_import_folders(plan.imports, home)))
    # The grader itself, with its problems, and the user's home are hidden whatever they hold; what
    # of them is needed, such as an environment in the home, is an entry of its own.
    hidden = {os.path.realpath(folder) for folder in (_own_folder(), *_own_packages(), home)}
    hidden |= {folder for folder in _KERNELS_OWN if os.path.isdir(folder)}  # noqa: PTH112
    # A folder that is only suspected to hold something is left alone if tools live in it.
    for folder in map(os.path.realpath, map(os.fsdecode, plan.hidden)):
        if os.path.isdir(folder) and not any(_within(path, folder) for path in readable):  # noqa: PTH112
            hidden.add(folder)
    hidden -= readable
    hidden.discard("/")
    return View(
        readable=tuple(sorted(readable, key=_depth)),
        hidden=tuple(sorted(hidden, key=_depth)),
        devices=tuple(_devices(gpu=plan.gpu)),
    )


def prepare_view(home: str) -> None:
    """Find what the views of all forks of this process have in common, before they are forked.

    Args:
        home: as in their plans.
    """
    _standard_readable(_resolved_home(home))


@functools.cache
def _resolved_home(home: str) -> str:
    return os.path.realpath(home or os.path.expanduser("~"))  # noqa: PTH111 (a str)


@functools.cache
def _standard_readable(home: str) -> frozenset[str]:
    """Return what every candidate needs; it depends on this process alone."""
    found = [*_SYSTEM, *(f"/etc/{name}" for name in _ETC)]
    # An interpreter's folders, and a prefix that is no more than a user's home is not one.
    prefixes = (sys.prefix, sys.base_prefix, sys.exec_prefix)
    found += [prefix for prefix in prefixes if prefix not in ("/", home)]
    found += _library_folders()
    for name in ("CUDA_HOME", "CUDA_PATH"):
        found += [os.environ[name]] if os.environ.get(name) else []
    for name in _SEARCH_PATHS:
        entries = os.environ.get(name, "").split(os.pathsep)
        found += [entry for entry in entries if entry and not _holds_much(entry, home)]
    found += _tool_folders(home)
    found += _loaded_folders(home)
    return frozenset(set(_both(found)) - {"/"})


def _both(paths: Iterable[str]) -> Iterator[str]:
    """Yield each path that exists as it is given and as it resolves."""
    for path in paths:
        if os.path.isabs(path) and os.path.exists(path):  # noqa: PTH110, PTH117 (hundreds of them)
            yield os.path.normpath(path)
            yield os.path.realpath(path)


def _depth(path: str) -> tuple[int, str]:
    return path.count("/"), path


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _own_folder() -> str:
    """Return where this package and its problems lie: in a clone, that is the whole clone."""
    data = problems_folder().parent
    return str(_PACKAGE if data.is_relative_to(_PACKAGE) else data)


def _own_packages() -> list[str]:
    """Return where this package lies, and whatever else is installed under its name.

    An editable installation leaves problems and the selftest's corpus in site-packages, and the
    package itself in a clone.
    """
    beside = [os.path.join(entry, _PACKAGE.name) for entry in sys.path if os.path.isabs(entry)]  # noqa: PTH117, PTH118
    return [str(_PACKAGE), *(folder for folder in beside if os.path.isdir(folder))]  # noqa: PTH112


def _library_folders() -> list[str]:
    """Return the loader's folders; a driver's libraries may be in one that is nowhere else."""
    folders: list[str] = []
    for file in (Path("/etc/ld.so.conf"), *sorted(Path("/etc/ld.so.conf.d").glob("*.conf"))):
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        folders += [line.strip() for line in lines if line.startswith("/")]
    return folders


def _tool_folders(home: str) -> list[str]:
    """Return the folders of compilers, wherever PATH finds them."""
    names = [os.environ[name].split()[0] for name in _NAMED_TOOLS if os.environ.get(name)]
    folders = []
    for name in (*names, *_TOOLS):
        path = shutil.which(name)
        if path is None:
            continue
        for place in (Path(path), Path(path).resolve()):
            home_of_tool = place.parent.parent
            whole = place.parent.name == "bin" and not _within(home, str(home_of_tool))
            whole = whole and not _within(_own_folder(), str(home_of_tool))
            folders.append(str(home_of_tool if whole else place.parent))
    return folders


def _loaded_folders(home: str) -> list[str]:
    """Return the entries of sys.path that modules were loaded from: torch imports more of them."""
    places = set()
    for name, module in tuple(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and "." not in name and name not in ("kernelgen", "__main__"):
            folder = Path(file).parent
            places.add(str(folder.parent if Path(file).stem == "__init__" else folder))
    return [entry for entry in sys.path if entry in places and not _holds_much(entry, home)]


def _import_folders(modules: Iterable[str], home: str) -> Iterator[str]:
    """Yield the entries of sys.path that modules are in; of one that holds much, the module."""
    for entry in filter(os.path.isabs, sys.path):
        for name in modules:
            for place in (Path(entry, name), Path(entry, f"{name}.py")):
                if place.exists():
                    yield str(place) if _holds_much(entry, home) else entry


def _holds_much(folder: str, home: str) -> bool:
    """Whether a folder is, or holds, the user's home or the clone that this package is of."""
    # An installed package is covered where it lies, among others that are needed.
    clone = _own_folder() != str(_PACKAGE) and _within(_own_folder(), folder)
    return clone or (home != "/" and _within(home, folder))


def _devices(*, gpu: bool) -> list[str]:
    names = [*_NODES, *(_GPU_NODES if gpu else ())]
    nodes = [str(path) for name in names for path in Path("/dev").glob(name)]
    return [node for node in nodes if os.path.exists(node)]  # noqa: PTH110


def granted(view: View) -> Iterator[tuple[str, bool]]:
    """Yield what to allow where nothing can be covered: a path, and whether all of it is readable.

    A folder with something hidden in it is only listed, and what else is in it is granted one by
    one.
    """
    for root in view.readable:
        yield from _grants_below(root, view)


def _grants_below(folder: str, view: View) -> Iterator[tuple[str, bool]]:
    if not view.shows(folder):
        return
    if not any(_within(hidden, folder) for hidden in view.hidden):
        yield folder, True
        return
    yield folder, False
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_symlink():
                yield from _grants_below(entry.path, view)

"""Which packages are installed: in the interpreter's own folders, not beside the caller's files."""

import importlib.util
import site
import sysconfig
from pathlib import Path


def is_installed(module: str) -> bool:
    """Whether a top-level module lies in a folder of installed packages; it is not imported.

    A module in the working folder, or in a clone on the path, is not: what a candidate may import
    it can also read.
    """
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    places = [*(spec.submodule_search_locations or ()), spec.origin or ""]
    return any(str(Path(place).parent) in _folders() for place in places)


def _folders() -> set[str]:
    paths = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    return {*paths, *site.getsitepackages(), site.getusersitepackages()}

"""Find functions that a solution binds and nobody defines, which torch notices only on loading."""

import re
import shutil
import subprocess
from pathlib import Path

from kernelgen.build.ptxas import demangle

_BASE_NAME = re.compile(r"([A-Za-z_]\w*)\s*(?:\(|$)")


def undefined_functions(objects: list[Path], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the mangled symbols of bound functions that no object defines.

    Args:
        objects: all objects of an extension.
        names: as given to functions=.

    Returns:
        Symbols in the order of the objects; empty also where binutils' nm is not installed.
    """
    nm = shutil.which("nm")
    if nm is None or not names:
        return ()
    defined: set[str] = set()
    wanted: dict[str, None] = {}
    for path in objects:
        done = subprocess.run([nm, "-P", str(path)], capture_output=True, text=True, check=True)
        for line in done.stdout.splitlines():
            symbol, kind = line.split()[:2]
            if kind == "U":
                wanted[symbol] = None
            else:
                defined.add(symbol)
    missing = [symbol for symbol in wanted if symbol not in defined]
    bases = [_BASE_NAME.search(name) for name in demangle(missing)]
    return tuple(
        symbol
        for symbol, base in zip(missing, bases, strict=True)
        if base is not None and base.group(1) in names
    )

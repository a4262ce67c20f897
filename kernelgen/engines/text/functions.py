"""The functions that the expressions of a stage call."""

import re
from collections.abc import Iterable
from types import SimpleNamespace

from kernelgen.engines.environment import cpp_environment
from kernelgen.engines.operators import BY_NAME
from kernelgen.problem.record import Backend

_COMMENT = re.compile(r"//.*")
_CALL = re.compile(r"\b([a-z]\w*)\(")


def helpers(names: Iterable[str], backend: Backend) -> str:
    """Return the functions that the expressions of operators call, those that they call included.

    C++ needs <algorithm>, <cmath>, <cstdint> and <cstring> before it.
    """
    rows = [BY_NAME[name] for name in dict.fromkeys(names)]
    text = "\n".join(row.cuda if backend == "cuda" else row.cpp for row in rows)
    suffix = "cu" if backend == "cuda" else "cpp"
    template = cpp_environment().get_template(f"functions/activations.{suffix}.jinja")
    called, functions = set[str](), ""
    while not (found := set(_CALL.findall(_COMMENT.sub("", text + functions)))) <= called:
        called |= found
        functions = template.render(interface=SimpleNamespace(activations=sorted(called)))
    if "fast_exp" in called:
        exp = cpp_environment().get_template("functions/exp.cpp.jinja").render()
        functions = f"{exp}\n{functions}"
    return functions

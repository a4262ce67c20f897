"""Whether a solution has any way to run a kernel of its own.

This looks for the means, not for a kernel: which kernels ran is seen when the candidate runs.
"""

import ast

from kernelgen.solution.finding import Finding, Severity, error
from kernelgen.solution.imports import modules_beyond
from kernelgen.solution.source import Source

_MODULES = (
    "torch.utils.cpp_extension.", "ctypes.", "cffi.", "torch.cuda.jiterator.", "subprocess.",
    "os.system", "os.popen", "os.exec", "os.spawn", "os.posix_spawn",
)  # fmt: skip
# The last part of a path that compiles or loads code, whatever object it is reached through.
_MEANS = frozenset({
    "load_inline", "load_library", "_compile_kernel", "_create_jit_fn",
    "_create_multi_output_jit_fn", "RawKernel", "RawModule", "CDLL", "LoadLibrary",
    "ExtensionFileLoader", "cpp_extension", "dlopen",
})  # fmt: skip
_WITHOUT_KERNELS = frozenset({"numpy", "scipy", "einops", "packaging"})
_BUILDERS = ("torch.utils.cpp_extension.load_inline", "torch.utils.cpp_extension.load")
_NO_NAME = "is no name of a Python module, which an extension is; write letters, digits and `_`"
_DYNAMIC = ("exec", "eval", "getattr", "__import__", "importlib.import_module")
_MESSAGE = (
    "no kernel of its own: nothing is compiled or loaded (no load_inline, triton.jit, "
    "torch.cuda._compile_kernel, ctypes or the like); write the computation as a kernel"
)


def kernel_findings(source: Source) -> list[Finding]:
    """Check that some means of running own code is used.

    What a further module can do is not known, so a solution that uses one is believed to have a
    kernel; whether it may import that module is another check's question.
    """
    if _has_means(source) or _uses_further_module(source):
        return []
    dynamic = any(path in _DYNAMIC for path, _ in source.paths)
    severity: Severity = "warning" if dynamic else "error"
    return [Finding(status="NO_CUSTOM_KERNEL", severity=severity, message=_MESSAGE)]


def name_of_extension_findings(source: Source) -> list[Finding]:
    """Check that extensions are called as Python's modules are; else no compiler takes them."""
    found = []
    for call in (node for node in source.nodes if isinstance(node, ast.Call)):
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        name = getattr(given.get("name", (*call.args, None)[0]), "value", None)
        fits = not isinstance(name, str) or name.isidentifier() or "is_python_module" in given
        if source.path_of(call.func) in _BUILDERS and not fits:
            found.append(error(call.lineno, f"name={name!r} {_NO_NAME}"))
    return found


def _has_means(source: Source) -> bool:
    texts = [node.value for node in source.nodes if isinstance(node, ast.Constant)]
    return not _MEANS.isdisjoint(texts) or any(
        path.startswith(_MODULES) or path.rpartition(".")[2] in _MEANS for path, _ in source.paths
    )


def _uses_further_module(source: Source) -> bool:
    modules = modules_beyond(source) - _WITHOUT_KERNELS
    return any(path.partition(".")[0] in modules for path, _ in source.paths)

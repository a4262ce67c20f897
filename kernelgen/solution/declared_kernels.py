"""The kernels that a solution's text declares: what a trace's names are compared with."""

import re
from collections.abc import Iterable

import msgspec

# Attributes with parentheses between __global__ and the kernel's name.
_ATTRIBUTES = frozenset({
    "__launch_bounds__", "__cluster_dims__", "__block_size__", "__maxnreg__", "__attribute__",
    "__declspec", "__align__", "alignas", "decltype", "enable_if_t",
})  # fmt: skip
_LONGEST_HEAD = 1000
# Of Triton, and of the other languages in Python: numba, CuTe, Warp, TileLang, Helion.
_DECORATED = r"@(?:[\w.]*\.)?(?:jit|kernel|prim_func)\b(?![\w.])[^@]*?\bdef\s+(\w+)"
_TRITON = re.compile(_DECORATED, re.DOTALL)
_NAMESPACE = re.compile(r"\bnamespace\s+([\w:]+)")
# The modules in which a language of kernels in Python says that a solution's are.
_OWN_MODULES = {"candidate", "__main__", "cudapy"}
_WORD = re.compile(r"[A-Za-z_]\w*")
_INCLUDE = re.compile(r"#\s*include\s*[<\"]([^>\"\n]+)[>\"]")
_DEVICE_LIBRARIES = ("cub/", "thrust/", "cutlass/", "cute/", "cuda/", "raft/", "cccl/", "nvbench/")
# Libraries with templates that those of another launch.
_BUILT_ON = {"thrust": "cub", "cute": "cutlass", "raft": "cub"}
_STUB = "__device_stub_"
# A part of a mangled path: its length, then as many letters. L stands before what is static.
_MANGLED_HEAD = re.compile(r"_Z(N?)K?(?:St)?")
_MANGLED_LENGTH = re.compile(r"L?(\d{1,9})")
_WITHOUT_A_NAME = ("_GLOBAL__N_", "_INTERNAL_")


class DeclaredKernels(msgspec.Struct, frozen=True, kw_only=True):
    """The words of a text about its kernels.

    Attributes:
        cuda: names declared `__global__`.
        namespaces: those that it opens.
        triton: names of functions under `@triton.jit`.
        words: every word of the text.
        libraries: namespaces of the device libraries whose headers it includes, such as `cub`.
        compiled: paths of kernels that it names as a compiler does, or that a compiler made of it.
        extends_aten: it includes ATen's own kernel templates, to fill them with its functions.
    """

    cuda: frozenset[str]
    triton: frozenset[str]
    words: frozenset[str]
    libraries: frozenset[str]
    extends_aten: bool
    namespaces: frozenset[str] = frozenset()
    compiled: frozenset[str] = frozenset()


def declared_kernels(text: str, stubs: Iterable[str] = ()) -> DeclaredKernels:
    """Read what a solution's text declares; nothing is run.

    `stubs` are symbols of nvcc's in what was compiled from it, one a kernel.
    """
    headers = _INCLUDE.findall(text)
    included = {one.partition("/")[0] for one in headers if one.startswith(_DEVICE_LIBRARIES)}
    words = frozenset(_WORD.findall(text))
    # Embedded PTX, and the launch of what it holds, name kernels as a compiler does.
    mangled = {mangled_path(name.removeprefix(_STUB)) for name in (*stubs, *words)}
    opened = {part for path in _NAMESPACE.findall(text) for part in path.split("::")}
    return DeclaredKernels(
        cuda=frozenset(_cuda_names(text)),
        triton=frozenset(_TRITON.findall(text)),
        words=words,
        libraries=frozenset(included | {_BUILT_ON[one] for one in included & set(_BUILT_ON)}),
        extends_aten=any(header.startswith("ATen/native/") for header in headers),
        namespaces=frozenset(opened | _OWN_MODULES),
        compiled=frozenset(mangled - {""}),
    )


def mangled_path(name: str) -> str:
    """Return `ns::kernel` of `_ZN2ns6kernelILi4EEEvPf`, "" of a name that is not mangled."""
    head = _MANGLED_HEAD.match(name)
    if head is None:
        return ""
    parts, position = list[str](), head.end()
    while (parts == [] or head[1]) and (length := _MANGLED_LENGTH.match(name, position)):
        position = length.end() + int(length[1])
        parts.append(name[length.end() : position])
    return "::".join(part for part in parts if not part.startswith(_WITHOUT_A_NAME))


def _cuda_names(text: str) -> list[str]:
    # Up to the next one: no part of the text is read twice.
    heads = re.split(r"\b__global__\b", text)[1:]
    names = (_first_called(head[:_LONGEST_HEAD]) for head in heads)
    return [name for name in names if name is not None]


def _first_called(head: str) -> str | None:
    """Return the first name that is followed by `(` and is no attribute."""
    position = 0
    while True:
        found = re.compile(r"\b([A-Za-z_]\w*)\b\s*(?:<[^<>;{]*>\s*)?\(|[;{]").search(head, position)
        if found is None or found[1] is None:
            return None
        if found[1] not in _ATTRIBUTES:
            return found[1]
        position = _after_parentheses(head, found.end())


def _after_parentheses(text: str, start: int) -> int:
    """Return the position behind the `)` that closes the `(` just before `start`."""
    depth = 1
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position + 1
    return len(text)

"""The kernels that a solution's text declares: what a trace's names are compared with."""

import re

import msgspec

# What may stand with parentheses between __global__ and the kernel's name.
_ATTRIBUTES = frozenset({
    "__launch_bounds__", "__cluster_dims__", "__block_size__", "__maxnreg__", "__attribute__",
    "__declspec", "__align__", "alignas", "decltype", "enable_if_t",
})  # fmt: skip
_LONGEST_HEAD = 1000
_TRITON = re.compile(r"@(?:[\w.]*\.)?jit\b[^@]*?\bdef\s+(\w+)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*")
_INCLUDE = re.compile(r"#\s*include\s*[<\"]([^>\"\n]+)[>\"]")
_DEVICE_LIBRARIES = ("cub/", "thrust/", "cutlass/", "cute/", "cuda/", "raft/", "cccl/", "nvbench/")


class DeclaredKernels(msgspec.Struct, frozen=True, kw_only=True):
    """What a text says about its kernels.

    Attributes:
        cuda: names declared `__global__`.
        triton: names of functions under `@triton.jit`.
        words: every word of the text.
        libraries: folders of the device libraries whose headers it includes, such as `cub`.
        extends_aten: it includes ATen's own kernel templates, to fill them with its functions.
    """

    cuda: frozenset[str]
    triton: frozenset[str]
    words: frozenset[str]
    libraries: frozenset[str]
    extends_aten: bool


def declared_kernels(text: str) -> DeclaredKernels:
    """Read what a solution's text declares; nothing is run."""
    headers = _INCLUDE.findall(text)
    return DeclaredKernels(
        cuda=frozenset(_cuda_names(text)),
        triton=frozenset(_TRITON.findall(text)),
        words=frozenset(_WORD.findall(text)),
        libraries=frozenset(
            header.partition("/")[0] for header in headers if header.startswith(_DEVICE_LIBRARIES)
        ),
        extends_aten=any(header.startswith("ATen/native/") for header in headers),
    )


def _cuda_names(text: str) -> list[str]:
    names = []
    for found in re.finditer(r"\b__global__\b", text):
        name = _first_called(text[found.end() : found.end() + _LONGEST_HEAD])
        if name is not None:
            names.append(name)
    return names


def _first_called(head: str) -> str | None:
    """Return the first name that is followed by `(` and is no attribute."""
    position = 0
    while True:
        found = re.compile(r"([A-Za-z_]\w*)\s*(?:<[^<>;{]*>\s*)?\(|[;{]").search(head, position)
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

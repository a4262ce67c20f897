"""torch's operators by what they do: some compute, some only make, name or move tensors."""

from __future__ import annotations

_NAMESPACE = "aten::"
# Neither reading one of these in a trace nor its absence says who did the computation.
_NO_COMPUTATION_NAMES = """
    alias as_strided chunk clone contiguous copy copy_ detach empty empty_like empty_permuted
    empty_strided expand expand_as fill flatten full full_like is_nonzero is_pinned item lift_fresh
    _local_scalar_dense movedim narrow new_empty new_empty_strided new_full new_ones new_zeros
    numpy_T ones ones_like permute pin_memory _pin_memory ravel record_stream _reshape_alias reshape
    reshape_as resize resize_as resolve_conj resolve_neg result_type select set slice split
    split_with_sizes squeeze swapaxes t tensor_split to _to_copy transpose type_as unbind unflatten
    unfold unsafe_split unsqueeze view view_as _unsafe_view zero zeros zeros_like
"""
_NO_COMPUTATION = frozenset(_NO_COMPUTATION_NAMES.split())


def is_torch_operator(name: str) -> bool:
    """Whether a traced operator is torch's own."""
    return name.startswith(_NAMESPACE)


def computes(name: str) -> bool:
    """Whether it is an operator of torch's that computes something."""
    return is_torch_operator(name) and plain_name(name) not in _NO_COMPUTATION


def plain_name(name: str) -> str:
    """Return an operator's name without its namespace, the same for its in-place form."""
    return name.removeprefix(_NAMESPACE).rstrip("_")

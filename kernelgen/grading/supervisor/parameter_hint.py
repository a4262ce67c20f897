"""What the way of the parameters into a candidate may have to do with its wrong values."""

from __future__ import annotations

_SHOWN = 8


def parameter_hint(
    missing: tuple[str, ...], misfits: tuple[tuple[str, str], ...], by_order: tuple[str, ...]
) -> list[str]:
    """Return a line each on what may explain wrong values.

    Args:
        missing: the reference's parameters that found no place.
        misfits: of these and of the candidate's, what has as many elements in another shape.
        by_order: pairs that no name settles, as `own <- reference's`.
    """
    lines = []
    if missing:
        why = "their values, which are random here, cannot reach it"
        lines.append(f"ModelNew has no parameter for the reference's {_listed(missing)}: {why}")
    if misfits:
        pairs = _listed(tuple(f"{own} for {wanted}" for wanted, own in misfits))
        lines.append(
            f"ModelNew's shapes do not say which element is which, so nothing was given: {pairs}; "
            "use the reference's shape, or the transposed one of a matrix"
        )
    if by_order:
        lines.append(
            f"these parameters were matched by shape and order alone: {_listed(by_order)}; "
            "if that is wrong, give them the reference's names, such as `linear_bias` or `bias` "
            "for `linear.bias`"
        )
    return lines


def _listed(parts: tuple[str, ...]) -> str:
    more = f" and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
    return ", ".join(parts[:_SHOWN]) + more

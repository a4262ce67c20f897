"""Means of what products and convolutions make, from means of what they multiply.

A result is a sum of products, each of which is linear in either factor. So the mean of results is
the product of means: of a product's rows or columns, and for each tap of a convolution of the
elements that it multiplies, which are neighbours.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import product
from math import prod
from typing import NamedTuple

from kernelgen.engines.convolution.record import CONVOLUTIONS, Geometry, geometry_of, three
from kernelgen.engines.pool.record import Window
from kernelgen.graph.graph import MATRIX, Argument, Named, Node, Reference, TensorType
from kernelgen.planning.rewrites.builder import Builder

_COLUMNS = {"linear.default": 0, "matmul.default": 1, "mm.default": 1}  # a dimension of the weights
_LEAST = 8  # results in place of which one is made
_LEAST_WINDOWS = 3  # products in place of which one is made, where windows' means come first
_MOST_MEANS = 9  # that one pass over a convolution's input makes
_MOST_POSITIONS = 1 << 24  # which float32 tells apart


def dims_of(node: Node, dims: Iterable[int], types: Mapping[str, TensorType]) -> frozenset[int]:
    """Return the dimensions along which the mean of a node's results costs less before than after.

    There are none if the node is neither a product nor a convolution.
    """
    found = node.results[0]
    if node.aten in CONVOLUTIONS and found is not None:
        g = geometry_of(node.aten, node.arguments, found, types)
        rank = len(found.shape)
        first = rank - CONVOLUTIONS[node.aten]
        along = sorted(d for d in dims if d >= first)
        ranges = [] if g is None else [_ranges(g, d - rank) for d in along]
        apart = along != [*range(along[0], along[-1] + 1)] if along else True
        if g is None or apart or not all(ranges):
            return frozenset()
        results = prod(found.shape[d] for d in along)
        taps, means = prod(map(len, ranges)), prod(len(set(one)) for one in ranges)
        is_less = results >= _LEAST * taps and means <= _MOST_MEANS
        is_less = is_less and max(g.input) <= _MOST_POSITIONS
        return frozenset(along if is_less else ())
    if node.aten not in _COLUMNS or found is None:
        return frozenset()
    operands = [types[name] for name in node.reads]
    is_plain = all(one.dtype == "float32" for one in operands)
    if not is_plain or len(operands[1].shape) != MATRIX or len(operands[0].shape) < MATRIX:
        return frozenset()
    return frozenset(dims if prod(found.shape[d] for d in dims) >= _LEAST else ())


class _Wider(NamedTuple):
    """Filters of a dimension that make the means of windows.

    Attributes:
        taps: of these.
        instead: products of a mean that they take the place of.
        before, after: zeros around the filters, of whose windows they are the means.
        padding: of the convolution that they make.
        beyond: zeros after the input.
    """

    taps: int
    instead: int
    before: int
    after: int
    padding: int
    beyond: int = 0


def _wider(g: Geometry, dim: int, size: int, step: int) -> _Wider | None:
    """Return the filters for windows of a size, a step apart; None if there are none.

    Of a transposed convolution of stride s, element i adds to result s * i + tap - padding. Windows
    that begin at every s-th result have the same neighbours of i each, which windows of the
    filters, s apart, weigh.
    """
    kernel, stride, padding = g.kernel[dim], g.stride[dim], g.padding[dim]
    if g.dilation[dim] != 1 or (step != stride or size < stride if g.transposed else stride != 1):
        return None
    if not g.transposed:
        return _Wider(kernel + size - 1, kernel * step, size - 1, size - 1, padding)
    behind = (size - 1 + padding) // stride
    taps = behind + (kernel - 1 - padding) // stride + 1
    first = padding - stride * behind  # of the filters' own, at most 0
    after = stride * (taps - 1) + size + first - kernel
    windows = (g.output[dim] - size) // step + 1
    beyond = windows - (g.input[dim] - 1 - 2 * behind + taps)
    is_one = taps > 0 and beyond >= 0
    return _Wider(taps, kernel, -first, after, behind, beyond) if is_one else None


def _all_wider(node: Node, window: Window, types: Mapping[str, TensorType]) -> list[_Wider]:
    """Return the filters of all dimensions of windows of a convolution's results, or nothing."""
    over = CONVOLUTIONS.get(node.aten)
    if over != len(window.kernel) or node.results[0] is None:
        return []
    g = geometry_of(node.aten, node.arguments, node.type, types)
    sizes = zip(range(3 - over, 3), window.kernel, window.stride, strict=True)
    found = [_wider(g, *one) for one in sizes] if g is not None else []
    return [one for one in found if one is not None] if None not in found else []


def is_less_before(node: Node, window: Window, types: Mapping[str, TensorType]) -> bool:
    """Return whether a node is a convolution that costs less with the means of windows before."""
    wider = _all_wider(node, window, types)
    taps, instead = prod(one.taps for one in wider), prod(one.instead for one in wider)
    return bool(wider) and taps * _LEAST_WINDOWS <= instead


def windows_of(node: Node, window: Window, shape: Sequence[int], b: Builder) -> Reference:
    """Return the means of windows of a convolution's results: of a shape, by wider filters."""
    wider, weight = _all_wider(node, window, b.types), node.arguments["weight"]
    over = len(wider)
    ones, zeros, transposed = (1,) * over, (0,) * over, "transpose" in node.aten
    filters = _padded(weight, [(one.before, one.after) for one in wider], b)
    given: dict[str, Argument] = {"self": filters, "kernel_size": window.kernel}
    given |= {"stride": window.stride if transposed else ones, "padding": zeros}
    given |= {"ceil_mode": False, "count_include_pad": True}
    given |= {"divisor_override": None} if over > 1 else {}
    sizes = (*b.type_of(weight).shape[:2], *(one.taps for one in wider))
    filters = b.emit(f"avg_pool{over}d.default", given, sizes)
    given = {"weight": filters, "padding": tuple(one.padding for one in wider)}
    given["input"] = _padded(node.arguments["input"], [(0, one.beyond) for one in wider], b)
    given |= {"stride": ones, "output_padding": zeros} if transposed else {"stride": window.stride}
    return b.emit(node.aten.replace(".padding", ".default"), {**node.arguments, **given}, shape)


def _padded(value: Argument, around: Sequence[tuple[int, int]], b: Builder) -> Argument:
    """Return a value with zeros before and after the last dimensions."""
    if not any(map(any, around)):
        return value
    shape = b.type_of(value).shape
    rest = shape[: len(shape) - len(around)]
    sizes = zip(shape[len(rest) :], around, strict=True)
    pad = tuple(n for pair in reversed(around) for n in pair)
    given: dict[str, Argument] = {"self": value, "pad": pad, "mode": "constant", "value": None}
    return b.emit("pad.default", given, (*rest, *(size + sum(pair) for size, pair in sizes)))


def mean_of(node: Node, dims: Iterable[int], b: Builder) -> Reference:
    """Return the mean of a node's results along some of `dims_of`, which stay as ones."""
    if node.aten in CONVOLUTIONS:
        return _of_convolution(node, sorted(dims), b)
    return _of_product(node, sorted(dims), b)


def _of_product(node: Node, dims: Sequence[int], b: Builder) -> Reference:
    x, weight, *rest = node.arguments.values()
    shape = node.type.shape
    last = len(shape) - 1
    rows = [d for d in dims if d != last]
    if rows:
        x = b.reduce("mean.dim", x, rows, keepdim=True)
    if last not in dims:
        out = [1 if d in dims else size for d, size in enumerate(shape)]
        return b.emit(node.aten, dict(zip(node.arguments, (x, weight, *rest), strict=True)), out)
    columns = b.reduce("mean.dim", weight, [_COLUMNS[node.aten]])
    if not isinstance(weight, Reference) or weight.name not in b.own:
        depth = b.type_of(x).shape[-1:]  # which a file then compares: one element would be repeated
        columns = b.emit("view.default", {"self": columns, "size": depth}, depth)
    products = b.pointwise("mul.Tensor", x, columns)
    value = b.reduce("sum.dim_IntList", products, [last], keepdim=True)
    if not any(rest):
        return value
    return b.pointwise("add.Tensor", value, b.reduce("mean.dim", rest[0], [0], keepdim=True))


def _of_convolution(node: Node, dims: Sequence[int], b: Builder) -> Reference:
    g = geometry_of(node.aten, node.arguments, node.type, b.types)
    assert g is not None
    rank, over = len(node.type.shape), CONVOLUTIONS[node.aten]
    x = node.arguments["input"]
    shape = b.type_of(x).shape
    taps = [_ranges(g, d - rank) for d in dims]
    share = prod(shape[d] for d in dims) / prod(node.type.shape[d] for d in dims)
    positions = [_positions(shape, d, b) for d in dims]

    @cache
    def inside(*within: tuple[int, int]) -> Argument:
        """Return the input with zeros outside of a range along each of the first dimensions."""
        if not within:
            return x
        at = len(within) - 1
        return _inside(inside(*within[:-1]), positions[at], shape[dims[at]], within[-1], b)

    @cache
    def mean(*within: tuple[int, int]) -> Reference:
        found = b.reduce("mean.dim", inside(*within), dims)
        return found if share == 1 else b.pointwise("mul.Tensor", found, share)

    # A transposed convolution turns its filters around.
    in_order = [one[::-1] if g.transposed else one for one in taps]
    stacked = [mean(*within) for within in product(*in_order)]
    left, sizes = [size for d, size in enumerate(shape) if d not in dims], tuple(map(len, taps))
    left.insert(dims[0], len(stacked))
    value = b.emit("stack.default", {"tensors": tuple(stacked), "dim": dims[0]}, left)
    if len(dims) > 1:
        left[dims[0] : dims[0] + 1] = sizes
        given: dict[str, Argument] = {"self": value, "dim": dims[0], "sizes": sizes}
        value = b.emit("unflatten.int", given, left)
    places = [d - rank + 3 for d in dims]

    def numbers(own: Sequence[int], among: int | Sequence[int]) -> tuple[int, ...]:
        """Return torch's numbers of each dimension, others among those that are gone."""
        found = list(own)
        for index, place in enumerate(places):
            found[place] = among if isinstance(among, int) else among[index]
        return tuple(found[3 - over :])

    geometry: dict[str, Argument] = {
        "stride": numbers(g.stride, 1),
        "padding": numbers(g.padding, [size - 1 for size in sizes] if g.transposed else 0),
        "dilation": numbers(g.dilation, 1),
    }
    if g.transposed:
        geometry["output_padding"] = numbers(three(node.arguments["output_padding"], over, 0), 0)
    out = [1 if d in dims else size for d, size in enumerate(node.type.shape)]
    aten = node.aten.replace(".padding", ".default")
    return b.emit(aten, {**node.arguments, "input": value, **geometry}, out)


def _positions(shape: Sequence[int], dim: int, b: Builder) -> Reference:
    """Return each element's position along a dimension."""
    size, after = shape[dim], (1,) * (len(shape) - dim - 1)
    given: dict[str, Argument] = {"end": size, "dtype": Named("float32"), "layout": None}
    given |= {"device": Named("device"), "pin_memory": False}
    found = b.emit("arange.default", given, (size,), named=tuple(given)[1:])
    resized: dict[str, Argument] = {"self": found, "size": (-1, *after)}
    return b.emit("view.default", resized, (size, *after)) if after else found


def _inside(
    value: Argument, position: Argument, size: int, within: tuple[int, int], b: Builder
) -> Argument:
    """Return a value with zeros outside of a range along a dimension.

    The distance to the end is a number that is the same at any size.
    """
    first, end = within
    if first > 0:
        is_inside = b.pointwise("ge.Scalar", position, first)
        value = b.pointwise("where.ScalarOther", is_inside, value, 0)
    if end < size:
        shifted = b.pointwise("add.Tensor", position, size - end)
        is_inside = b.pointwise("lt.Scalar", shifted, size)
        value = b.pointwise("where.ScalarOther", is_inside, value, 0)
    return value


def _ranges(g: Geometry, d: int) -> list[tuple[int, int]]:
    """Return the first element that each tap multiplies along a dimension, and the end of these.

    The end may be before the first: at another size there are elements between. The dimension is
    counted from the last; there are no ranges if the elements are no neighbours.
    """
    size, out, stride = g.input[d], g.output[d], g.stride[d]
    shifts = [tap * g.dilation[d] - g.padding[d] for tap in range(g.kernel[d])]
    if g.transposed:
        # Element i adds to result i * stride + shift.
        ends = [(-(shift // stride), (out - 1 - shift) // stride + 1) for shift in shifts]
    elif stride == 1:
        ends = [(shift, shift + out) for shift in shifts]
    else:
        return []
    return [(max(first, 0), min(end, size)) for first, end in ends]

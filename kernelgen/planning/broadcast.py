"""How a value's elements go with those of a larger shape."""

from kernelgen.planning.graph import TensorType
from kernelgen.planning.plan import Operand


def operand_of(name: str, value: str, found: TensorType, shape: tuple[int, ...]) -> Operand:
    """Return a value as an operand of a stage of that shape.

    One that repeats in no simple pattern is written out at its full size before the kernel reads
    it; so is, at another shape than the main one, an operand that does not fit its pattern.
    """
    own = (1,) * (len(shape) - len(found.shape)) + found.shape
    rank = len(shape)
    repeated = [d for d in range(rank) if own[d] == 1 and shape[d] != 1]
    varied = [d for d in range(rank) if own[d] != 1]
    if not repeated:
        return Operand(name=name, value=value, type=found)
    if not varied:
        return Operand(name=name, value=value, type=found, pattern="along", span=(0, 0))
    first, last = varied[0], varied[-1] + 1
    if all(shape[d] == 1 or own[d] != 1 for d in range(first, last)):
        span = (first - rank, last - rank)
        return Operand(name=name, value=value, type=found, pattern="along", span=span)
    first, last = repeated[0], repeated[-1] + 1
    if all(own[d] == 1 for d in range(first, last)):
        span = (first - rank, last - rank)
        return Operand(name=name, value=value, type=found, pattern="across", span=span)
    return Operand(name=name, value=value, type=found)

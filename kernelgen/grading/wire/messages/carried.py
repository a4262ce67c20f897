"""Parts that more than one kind of record carries."""

from typing import Annotated, Any, Generic, TypeVar, get_args

import msgspec

from kernelgen.grading.wire.tree import Node, TensorSpec, require_shallow


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """One record; its class name travels with it."""


AnswerT = TypeVar("AnswerT")


class Asking(Message, Generic[AnswerT], frozen=True, kw_only=True):
    """A request that is answered by an AnswerT."""

    @classmethod
    def answered_by(cls) -> Any:
        """Return the type of its answer."""
        (base,) = cls.__orig_bases__  # type: ignore[attr-defined]
        return get_args(base)[0]


# Times and settings by a candidate's process, within what an honest one can say.
# Anything else is no record: sums stay finite, and what is shown to a person stays short.
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e7)]
Milliseconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e10)]
_PinName = Annotated[str, msgspec.Meta(max_length=40)]
ReportedPins = Annotated[dict[_PinName, bool | _PinName | int], msgspec.Meta(max_length=10)]


class ArenaHandle(msgspec.Struct, frozen=True, kw_only=True):
    """How to open the memory through which tensors cross.

    Attributes:
        handle: a CUDA IPC handle in hex, with which the gate's descriptor is sent; "" for a memfd,
            whose own is.
        capacity_bytes: size of the memory.
        generation: grows with each new arena, so that both sides know which one is meant.
    """

    handle: str
    capacity_bytes: int
    generation: int


class Tensors(msgspec.Struct, frozen=True, kw_only=True):
    """A tree and the tensors in it; ValueError for a tree that no honest process sends."""

    tree: Node
    specs: tuple[TensorSpec, ...]

    def __post_init__(self) -> None:
        # Also where a record is decoded: before it can go on from a candidate to the oracle.
        require_shallow(self.tree)

    @property
    def total_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(spec.nbytes for spec in self.specs)


class ReferenceState(msgspec.Struct, frozen=True, kw_only=True):
    """Names and order of the reference's parameters, buffers and tensors that are attributes.

    Attributes:
        names: one a tensor, in the order in which torch lists them.
        ranks: each one's place in the order in which the reference defines them.
        seed: that a module is to be constructed under, to begin with the reference's values; it is
            no secret, and nothing else derives from it.
        default_dtype: torch's, as the problem's code sets it.
        tied: other names of the same tensors -> the one among `names`.
    """

    names: tuple[str, ...]
    ranks: tuple[int, ...]
    seed: int
    default_dtype: str = "float32"
    tied: dict[str, str] = {}


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """A result, and where its bytes lie.

    Attributes:
        tensors: each one's offset counts from the start of its block.
        blocks: one a tensor: the IPC handle, in hex, of the candidate's allocation that holds it,
            or "" for the arena.
    """

    tensors: Tensors
    blocks: tuple[str, ...]

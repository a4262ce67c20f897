"""The contract of an engine: all that planning, rendering and reports ask of a kind of stage."""

# ruff: noqa: ARG002 - what a kind of stage has no use for, the contract gives it all the same

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar, Generic, NamedTuple, TypeVar

from kernelgen.engines.architectures import Architecture
from kernelgen.engines.body import Body
from kernelgen.engines.naming import Names
from kernelgen.engines.schedule import Schedule
from kernelgen.engines.stage import Kernel, Library, Result, Stage, Views
from kernelgen.engines.text.stage_text import StageText
from kernelgen.graph.graph import Argument, Node, TensorType
from kernelgen.problem.record import Backend

Record = TypeVar("Record", bound=Kernel)


class Target(NamedTuple):
    """The machine that stages are rendered for.

    Attributes:
        arch: of a GPU, or `cpu`.
        schedule: in place of the one that a stage's sizes suggest.
    """

    backend: Backend
    arch: str
    schedule: Schedule | None = None


class Given(NamedTuple):
    """Values from which a claimed node becomes a stage.

    Attributes:
        arguments: of the node, whose values have their first names.
        kernels: names of kernels.
        body: the operators before the node that its stage computes.
        of: the value in the body that these compute; "" if the claim names none.
    """

    node: Node
    arguments: Mapping[str, Argument]
    types: Mapping[str, TensorType]
    kernels: Names
    body: Body
    of: str


class Claim(NamedTuple):
    """A node that becomes a stage.

    Attributes:
        stage: makes the stage.
        of: the value whose pointwise operators the stage computes; "": all that the node reads is
            in memory before it.
    """

    stage: Callable[[Given], Kernel]
    of: str = ""


class Before(NamedTuple):
    """A plan around an operator of torch's.

    Attributes:
        types: of the values in memory before it.
        weights: the Model's parameters and buffers.
        makers: the stages that torch's and the planner's own make values by, by these.
        counts: how often stages read a value, or forward returns it.
    """

    types: Mapping[str, TensorType]
    weights: Collection[str]
    makers: Mapping[str, Stage]
    counts: Mapping[str, int]

    def only(self, value: str) -> Stage | None:
        """Return what makes a value that is read once; None if it is read more often."""
        return self.makers.get(value) if self.counts[value] == 1 else None


class Work(NamedTuple):
    """Operations of a stage, and bytes beyond each operand and result once.

    Attributes:
        halves: whether tensor cores multiply halves of the factors, which takes three products.
    """

    flops: int = 0
    split_bytes: int = 0
    halves: bool = False


class Engine(ABC, Generic[Record]):
    """A kind of stage.

    Attributes:
        record: the type of its stages.
    """

    record: ClassVar[type[Kernel]]

    def claim(self, node: Node, types: Mapping[str, TensorType]) -> Claim | None:
        """Return how a node becomes a stage of this kind; None if it is none.

        It is asked only for nodes of one result, of float32, bool or int64.
        """
        return None

    def replacement(
        self, stage: Library, before: Before, arch: Architecture | None
    ) -> tuple[Stage, ...]:
        """Return stages in place of one of torch's; () where torch is as fast.

        Those that stay in torch are asked about again; those before that nothing reads any more are
        left out. A CPU has no architecture here.
        """
        return ()

    def fused(
        self, first: Kernel, second: Kernel, others: Names, arch: Architecture | None
    ) -> tuple[Kernel, ...]:
        """Return stages in place of one, and of the one that alone reads its results.

        () if that cannot be, or takes longer. `others` are the names of other kernels.
        """
        return ()

    def leaving(self, stage: Record, results: Sequence[Result]) -> Kernel | None:
        """Return a stage that leaves results of one that is fused with it; None if it cannot."""
        return None

    def gathered(
        self, first: Kernel, second: Kernel, views: Views, others: Names
    ) -> tuple[Stage, ...]:
        """Return a stage that gathers its result as well, and what becomes of `second` then.

        () if `second`, a reduction that reads the result of `first`, is not of that kind. The
        result may have other readers, and may be read as one of `views`.
        """
        return ()

    def with_way(self, stage: Record, arch: Architecture | None) -> Kernel:
        """Return a stage in the way that suits an architecture; a CPU has none here."""
        return stage

    def schedule(self, stage: Record, arch: str) -> Schedule | None:
        """Return the schedule that a stage's sizes suggest; None if its kernels have none."""
        return None

    def work(self, stage: Record) -> Work:
        """Return what a stage computes at its main shape."""
        return Work()

    @abstractmethod
    def words(self, stage: Record) -> str:
        """Return a stage as a formula, for a reader."""

    @abstractmethod
    def text(self, stage: Record, target: Target) -> StageText:
        """Return a stage's kernels, and the Python that calls them."""

    def shared_text(self, stage: Record, target: Target) -> StageText | None:
        """Return text that stages of other sizes share; None if this kind has no such text."""
        return None

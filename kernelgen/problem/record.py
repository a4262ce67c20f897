"""The `Problem` record: what is to be computed, on which inputs, and how closely."""

import hashlib
import re
from pathlib import Path
from typing import Literal

import msgspec

Device = Literal["cuda", "cpu"]
Backend = Literal["cuda", "cpp"]
"""The language of a solution's kernels."""

ConstantValue = bool | int | float | str | tuple["ConstantValue", ...]
"""A named constant: a scalar, or a (nested) tuple of them, such as a shape."""

Require = Literal["own_kernel", "anything"]
"""The least that a solution runs: a kernel of its own, or anything that is right."""

Precision = Literal["fp32", "bf16", "fp16"]
"""The type of floating inputs, parameters and buffers."""

DTYPES: dict[Precision, str] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}

Libraries = Literal["allowed", "forbidden"]
"""Whether kernels of cuBLAS, cuDNN, ATen and the like may do a part of the work."""

Algebra = Literal["allowed", "forbidden"]
Buffers = Literal["ignored", "compared"]
"""Whether each timed call counts as one after a change of the parameters, or none does."""

OtherRule = Literal["reference", "kernelbench"]
Rule = Literal["exact", OtherRule]
"""The standard for outputs: the exact result; that, however far the fp32 reference is from it; or
the fp32 reference as KernelBench has it."""

DEFAULT_TOLERANCE = 1e-5
LARGEST_TOLERANCE = 1e-2
KERNELBENCH_TOLERANCE: dict[Precision, float] = {"fp32": 1e-4, "bf16": 1e-2, "fp16": 1e-2}
MAIN_CASE = "main"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One set of inputs that a solution must get right.

    Attributes:
        name: unique within the problem; the case that is also timed is called `main`.
        why: what this case is there to catch, one line, or "".
        constants: constants that replace the problem's own for this case.
        get_inputs: Python source of a `get_inputs` that replaces the problem's, or None.
    """

    name: str
    why: str = ""
    constants: dict[str, ConstantValue] = {}
    get_inputs: str | None = None


MAIN = Case(name=MAIN_CASE)
"""The case that a problem itself describes."""


class Minimal(msgspec.Struct, frozen=True, kw_only=True):
    """The least work of a main case as its problem declares it; None leaves it to be counted.

    Attributes:
        bytes: to be moved through the device's memory.
        flops: operations of matrix products, a multiply and an add counted as two.
    """

    bytes: int | None = None
    flops: int | None = None


class ScheduleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Schedule numbers for one architecture, as the problem's file gives them.

    Attributes:
        numbers: name -> whole number, such as `threads` -> 256.
        lines: name -> 1-based line of the number, for messages.
    """

    numbers: dict[str, int]
    lines: dict[str, int]


class Manner(msgspec.Struct, frozen=True, kw_only=True):
    """The way in which reference and candidate are both run.

    Attributes:
        eval_mode: under `eval()`, not in training mode.
        precision: the type of floating inputs, parameters and buffers.
        gradients: a call is forward and backward, and gradients are outputs.
        launch_overhead: a GPU is idle when a timed call begins, as in KernelBench.
    """

    eval_mode: bool = False
    precision: Precision = "fp32"
    gradients: bool = False
    launch_overhead: bool = False


class Problem(Manner, frozen=True, kw_only=True):
    """A computation, its inputs, and the closeness that is asked for.

    A problem comes from a YAML file, with its Python in blocks and its constants named, or from a
    KernelBench file, whose whole text is `module_source` and which has no extra cases.

    Attributes:
        name: the file's stem.
        summary: one line.
        path: the file that it was read from.
        sha256: of the file's bytes.
        constants: name -> value, visible to the Python blocks; in the order of the file.
        cpu_constants: replacements that make the problem's main case suit a CPU.
        model: source of `class Model(nn.Module)`; imports of torch and torch.nn as nn are given.
        get_inputs: source of `def get_inputs()`.
        get_init_inputs: source of `def get_init_inputs()`.
        module_source: the whole text of a KernelBench file; None for a YAML problem.
        cases: further cases, graded after `main`.
        tolerance: relative and absolute, see docs/correctness.md.
        rule: what the tolerance is held against.
        batch_independent: row i of every output depends only on row i of every input, so that an
            exact result may be computed by chunks of rows. Checked when it is used.
        schedules: architecture, `sm_90` or `cpu`, -> numbers that replace the default schedule's.
        kernelbench: level and number of the KernelBench problem that this is, `1/23`, or "".
        allowed_imports: top-level modules that alone a solution may import beyond torch and the
            standard library; None is all that are installed.
        require: whether a solution that runs no kernel of its own is refused.
        libraries: whether a solution in which libraries compute is refused.
        buffers: whether a candidate fails that leaves other values than the reference in buffers
            which forward changes; ignored, it gets a warning.
        algebra: whether what is rendered may compute by identities that save operations.
        minimal: bytes and operations of the main case.
        cpu_minimal: the same with `cpu_constants` in force.
    """

    name: str
    summary: str
    path: Path
    sha256: str
    constants: dict[str, ConstantValue] = {}
    cpu_constants: dict[str, ConstantValue] = {}
    model: str = ""
    get_inputs: str = ""
    get_init_inputs: str = ""
    module_source: str | None = None
    cases: tuple[Case, ...] = ()
    tolerance: float = DEFAULT_TOLERANCE
    rule: Rule = "exact"
    batch_independent: bool = False
    schedules: dict[str, ScheduleEntry] = {}
    kernelbench: str = ""
    allowed_imports: tuple[str, ...] | None = None
    require: Require = "own_kernel"
    libraries: Libraries = "allowed"
    buffers: Buffers = "ignored"
    algebra: Algebra = "allowed"
    minimal: Minimal = Minimal()
    cpu_minimal: Minimal = Minimal()

    @property
    def manner(self) -> Manner:
        """How both sides are run, apart from the rest."""
        return Manner(**{name: getattr(self, name) for name in Manner.__struct_fields__})

    @property
    def identifier(self) -> str:
        """The name as an identifier of Python and C."""
        name = re.sub(r"\W", "_", self.name, flags=re.ASCII)
        return f"problem_{name}" if name[:1].isdigit() else name

    def all_cases(self) -> tuple[Case, ...]:
        """Return the main case followed by the extra ones."""
        return (MAIN, *self.cases)

    def constants_for(self, case: Case, device: Device) -> dict[str, ConstantValue]:
        """Return the constants in force for a case on a device.

        An extra case's own constants win over the CPU's replacements, which win over the problem's.
        """
        cpu = self.cpu_constants if device == "cpu" else {}
        return {**self.constants, **cpu, **case.constants}

    def minimal_on(self, device: Device) -> Minimal:
        """Return what is declared for the main case on a device, whose sizes may be its own."""
        return self.cpu_minimal if device == "cpu" and self.cpu_constants else self.minimal

    def reference_source(self, case: Case, device: Device) -> str:
        """Return Python source that defines Model, get_inputs and get_init_inputs for a case."""
        if self.module_source is not None:
            return self.module_source
        constants = self.constants_for(case, device)
        values = "\n".join(f"{name} = {value!r}" for name, value in constants.items())
        inputs = self.get_inputs if case.get_inputs is None else case.get_inputs
        blocks = [
            "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F",
            values,
            self.model.strip("\n"),
            inputs.strip("\n"),
            self.get_init_inputs.strip("\n"),
        ]
        return "\n\n\n".join(block for block in blocks if block) + "\n"


def device_of(backend: Backend) -> Device:
    """Return the device whose tensors a backend's solution takes."""
    return "cuda" if backend == "cuda" else "cpu"


def digest(text: str | bytes) -> str:
    """Return the sha256 of a text or of bytes, in hex."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()

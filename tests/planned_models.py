"""Solutions that are planned from a Model, run: C++ as it is, CUDA in the emulation or on a GPU."""

import ast
import ctypes
import operator
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from products_on_the_cpu import for_the_cpu, is_for_hopper
from shared_builds import EMULATION, Libraries

from kernelgen.build.toolchain import find_toolkit
from kernelgen.graph.graph import Graph
from kernelgen.planning.plan import Plan
from kernelgen.planning.planner import choices_of, plan_of_simple, simplified
from kernelgen.problem.kernelbench_file import read_kernelbench_problem
from kernelgen.problem.record import DTYPES, Backend, Device, Problem
from kernelgen.rendering.planned import render_planned
from kernelgen.solution.importing import run_text

_COMPILERS = {
    # Two libraries may have kernels of one name, with shared memory of other sizes: none is unique.
    "cuda": [
        *("c++", "-O1", "-std=c++17", "-shared", "-fPIC", "-fno-gnu-unique", "-w"),
        f"-I{EMULATION}",
    ],
    "cpp": [
        *("c++", "-O1", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp"),
        *("-std=c++17", "-shared", "-fPIC"),
    ],
}
_PROBLEM = """
import torch
import torch.nn as nn
import torch.nn.functional as F
{top}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
{layers}

    def forward(self, {names}):
{before}        return {forward}


def get_inputs():
    return {given}


def get_init_inputs():
    return []
"""


def plan_of(graph: Graph) -> Plan:
    """Return the plan of a graph that stands for itself."""
    return plan_of_simple(simplified(graph, choices_of(graph)))


def problem_of(
    folder: Path,
    forward: str,
    *,
    layers: str = "",
    before: str = "",
    top: str = "",
    **inputs: str,
) -> Problem:
    """Return a problem whose forward returns an expression of its inputs.

    Args:
        folder: for its file.
        forward: the expression.
        layers: statements of the constructor, such as `self.scale = nn.Parameter(torch.ones(3))`.
        before: statements of forward, before it returns the expression.
        top: statements of the module.
        inputs: name -> expression, such as `x="torch.randn(8, 12)"`; these are the main shapes.
            Or `takes`, all parameters, and `given`, what get_inputs returns.
    """
    path = folder / "problem.py"
    lines, first = (
        "".join(f"        {line}\n" for line in text.splitlines()) for text in (layers, before)
    )
    path.write_text(
        _PROBLEM.format(
            layers=lines,
            before=first,
            top=top,
            names=inputs.get("takes") or ", ".join(inputs),
            forward=forward,
            given=inputs.get("given") or f"[{', '.join(inputs.values())}]",
        )
    )
    return read_kernelbench_problem(path)


def plan_in(folder: Path, forward: str, *, layers: str = "", **inputs: str) -> Plan:
    """Return the plan of a problem as of `problem_of`, traced in this process."""
    from kernelgen.tracing.trace import trace

    source = problem_of(folder, forward, layers=layers, **inputs).module_source
    assert source is not None
    return plan_of(trace(source))


def _with_headers(source: str) -> str:
    return f'#include "standard.h"\n{source}'


def emulated(source: str) -> str:
    """Return CUDA source as C++ that the emulation runs."""
    source = re.sub(r"namespace ptx {.*?}  // namespace ptx\n", "", source, flags=re.DOTALL)
    text = re.sub(
        r"([\w:]+(?:<[\w, ]+>)?)<<<(\w+), (\w+), 0, stream>>>\(",
        r"emulation::launch(\1, \2, \3, ",
        source,
    )
    assert "<<<" not in text, "launch with <<<blocks, threads, 0, stream>>>, both of them names"
    return '#include "emulation.h"\n' + text


def ptx_of(problem: Problem, folder: Path) -> str:
    """Return what nvcc makes of a problem's kernels on Hopper, before ptxas."""
    space = vars(run_text("solution", render_planned(problem, "cuda", {}), "<solution>"))
    source = folder / "kernels.cu"
    source.write_text(space["CUDA_SOURCE"])
    flags = ["-std=c++17", "-arch=sm_90a", "-ptx", "-o", f"{folder}/kernels.ptx"]
    subprocess.run([str(find_toolkit().nvcc), *flags, str(source)], check=True)
    return Path(folder, "kernels.ptx").read_text()


def require_signatures(text: str) -> None:
    """Make sure that a solution calls torch's operators as these can be called."""
    import torch

    for call in ast.walk(ast.parse(text)):
        path = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
        if not isinstance(call, ast.Call) or not re.fullmatch(r"torch\.ops(\.\w+)+", path):
            continue
        found: Any = operator.attrgetter(path.removeprefix("torch."))(torch)
        parameters = found._schema.arguments  # noqa: SLF001 - torch says it nowhere else
        placed = [one.name for one in parameters if not one.kwarg_only]
        assert len(call.args) <= len(placed), ast.unparse(call)
        named = {one.arg for one in call.keywords}
        assert named <= {one.name for one in parameters[len(call.args) :]}, ast.unparse(call)


class Planned:
    """A problem's reference and its planned solution.

    Args:
        device: where it runs; CUDA runs in the emulation where this is the CPU.
        arch: as of `render`.

    Attributes:
        text: of the solution.
        space: its names, with kernels that run here.
        launched: names of the kernels that were queued, in order.
    """

    def __init__(
        self,
        problem: Problem,
        backend: Backend,
        compiled: Path,
        device: Device = "cpu",
        arch: str | None = None,
    ) -> None:
        import torch

        self.problem, self.backend, self.device = problem, backend, device
        self.text = render_planned(problem, backend, {}, arch=arch)
        require_signatures(self.text)
        self.launched: list[str] = []
        text = self.text.replace(" tensor.is_cuda", f" tensor.is_{device}")
        self.space = vars(run_text("solution", text, "<solution>"))
        if own := re.findall(r"^def (_library_?)\(", text, re.MULTILINE):
            if device == "cpu":
                source = self.space["CUDA_SOURCE" if backend == "cuda" else "CPP_SOURCE"]
                hopper = is_for_hopper(source)
                prepare = for_the_cpu if hopper or "cuda_pipeline" in source else emulated
                prepare = _with_headers if backend == "cpp" else prepare
                made = prepare(source)
                libraries = Libraries(_COMPILERS[backend], {"it": partial(str, made)}, compiled)
                self.library: ctypes.CDLL = libraries["it"]
                if hopper:
                    self.library.set_capability(9)
                self.space[own[-1]] = lambda: self.library
            # The last one of a name is the file's own, with which the module's may clash.
            found = re.findall(r"^def (_launch_?)\(", text, re.MULTILINE)
            self.space[found[-1]] = partial(self._noted, self.space[found[-1]])
        assert problem.module_source is not None
        self.reference = vars(run_text("reference", problem.module_source, "<reference>"))
        self._torch = torch

    def _noted(self, launch: Any, name: str, *others: Any) -> None:
        self.launched.append(name)
        launch(name, *others)

    def models(self, seed: int = 0) -> tuple[Any, Any]:
        """Return Model and ModelNew, with equal parameters."""
        made = []
        for space, name in ((self.reference, "Model"), (self.space, "ModelNew")):
            # torch.manual_seed formats the stack for each kind of GPU, which takes milliseconds.
            self._torch.default_generator.manual_seed(seed)
            model = space[name](*self.reference["get_init_inputs"]())
            made.append(model.to(self.device))
        return made[0], made[1]

    def inputs(self) -> tuple[Any, ...]:
        """Return the problem's inputs, where the solution runs."""
        given = self.reference["get_inputs"]()
        return tuple(x.to(self.device) if isinstance(x, self._torch.Tensor) else x for x in given)

    def run(self, *inputs: Any, model: Any = None) -> Any:
        """Return what ModelNew returns for these inputs, or for those of the problem."""
        self.launched.clear()
        candidate = model or self.models()[1]
        given = inputs or self.inputs()
        with self.streaming(), self._torch.no_grad():
            return candidate(*given)

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """Let kernels that run on the CPU be queued, with as few calls as on a GPU."""
        if self.device == "cuda":
            yield
            return

        def current_device() -> int:
            return -1  # a CPU tensor's

        def stream_of(_: int) -> int:
            return 0

        with (
            mock.patch("torch._C._cuda_getDevice", current_device, create=True),
            mock.patch("torch._C._cuda_getCurrentRawStream", stream_of, create=True),
        ):
            yield

    def check(self, *inputs: Any, tolerance: float = 1e-5) -> None:
        """Compare with the reference in float64 at the tolerance that a grade has.

        Inputs and parameters are of the problem's type, to which results are rounded once.
        """
        torch = self._torch
        dtype = getattr(torch, DTYPES[self.problem.precision])
        reference, candidate = (model.to(dtype) for model in self.models())
        given = [
            x.to(dtype) if isinstance(x, torch.Tensor) and x.dtype == torch.float32 else x
            for x in inputs or self.inputs()
        ]
        doubled = [
            x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
            for x in given
        ]
        with torch.no_grad():
            exact = reference.double()(*doubled)
        found = self.run(*given, model=candidate)
        pairs = zip(found, exact, strict=True) if isinstance(exact, tuple) else [(found, exact)]
        for out, wanted in pairs:
            assert out.shape == wanted.shape
            if not wanted.is_floating_point():
                assert torch.equal(out, wanted)
                continue
            assert out.dtype in {torch.float32, dtype}
            size = wanted[wanted.isfinite()].double().square().mean().sqrt()
            scale = min(1.0, float(size or 1.0))
            torch.testing.assert_close(
                without_rounding(out, wanted),
                wanted.double(),
                rtol=tolerance,
                atol=tolerance * scale,
                equal_nan=True,
            )


def without_rounding(out: Any, exact: Any) -> Any:
    """Return floats as doubles, those of 16 bits nearer to exact ones by what rounding explains."""
    import torch

    found = out.double()
    if out.dtype == torch.float32:
        return found
    facts, off = torch.finfo(out.dtype), found - exact
    exponent = torch.frexp(exact.abs().clamp(min=facts.tiny) * (1.0 + 1e-5))[1] - 1
    half = facts.eps / 2 * torch.exp2(exponent.double())
    nearer = exact + off.sign() * (off.abs() - half).clamp(min=0.0)
    return torch.where(off.isfinite(), nearer, found)

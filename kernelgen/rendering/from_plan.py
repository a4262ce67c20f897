"""A plan to the text of its solution: its stages' kernels, and the forward that queues them."""

import re

import msgspec

from kernelgen.planning.operators import helpers
from kernelgen.planning.plan import Library, Map, Plan, Pool, Reduce, Scan, Segment, Source, Stage
from kernelgen.rendering.context import Backend
from kernelgen.rendering.environment import checked_source, cpp_environment
from kernelgen.rendering.stages.library import render_library
from kernelgen.rendering.stages.map import c_name, render_map
from kernelgen.rendering.stages.reduce import render_reduce
from kernelgen.rendering.stages.segment import render_segment
from kernelgen.rendering.stages.stage_text import StageText

_VALUE = re.compile(r"\{([\w.]+)\}")


class PlanText(msgspec.Struct, frozen=True, kw_only=True):
    """A plan as text.

    Attributes:
        ideas: a sentence for each stage that does something.
        kinds: of the stages that have templates.
        kernels: C source, "" if no stage has a kernel.
        functions: Python functions, one for each kernel.
        body: lines of forward, not indented.
    """

    ideas: tuple[str, ...]
    kinds: tuple[str, ...]
    kernels: str
    functions: tuple[str, ...]
    body: tuple[str, ...]


def plan_text(plan: Plan, backend: Backend) -> PlanText:
    """Return a plan as text."""
    stages = [(stage, _render(stage, backend)) for stage in plan.stages]
    sources = {source.name: _source(source) for source in plan.sources}
    read = {name for _, text in stages for name in _VALUE.findall(text.call)}
    body = list(_checks(plan))
    taken = {*plan.arguments, "self", "torch"}
    known = dict(sources)
    tensors = [sources[source.name] for source in plan.sources if not source.is_number]
    known[".device"] = f"{tensors[0]}.device" if tensors else "torch.get_default_device()"
    for number, (stage, text) in enumerate(stages):
        results = _results(stage)
        kept = {*plan.outputs, *plan.updates.values()} | read
        names = [_local(name, taken) if name in kept else "_" for name in results]
        known |= dict(zip(results, names, strict=True))
        call = _with_values(text.call, known)
        if (
            number == len(stages) - 1
            and plan.single
            and len(results) == 1
            and plan.outputs == results
            and not plan.updates
        ):
            body.append(f"return {call}")
            break
        body.append(f"{', '.join(names)} = {call}")
    else:
        body += [f"self.{_path(path)}.copy_({known[v]})" for path, v in plan.updates.items()]
        outputs = ", ".join(known[name] for name in plan.outputs)
        body.append(f"return {outputs}" if plan.single else f"return ({outputs},)")
    texts = [text for _, text in stages if text.kernel]
    return PlanText(
        ideas=tuple(text.idea for _, text in stages if text.idea),
        kinds=tuple(dict.fromkeys(text.kind for text in texts)),
        kernels=_kernels(texts, backend),
        functions=tuple(text.function.strip("\n") for text in texts),
        body=tuple(body),
    )


def _render(stage: Stage, backend: Backend) -> StageText:
    match stage:
        case Map():
            return render_map(stage, backend)
        case Segment():
            return render_segment(stage, backend)
        case Library():
            return render_library(stage)
        case Reduce():
            return render_reduce(stage, backend)
        case Scan() | Pool():
            raise NotImplementedError(type(stage).__name__)


def _kernels(texts: list[StageText], backend: Backend) -> str:
    if not texts:
        return ""
    operators = dict.fromkeys(name for text in texts for name in text.operators)
    suffix = "cu" if backend == "cuda" else "cpp"
    template = f"{backend}/stages/common.{suffix}.jinja"
    sources = [text.kernel for text in texts]
    common = (
        cpp_environment()
        .get_template(template)
        .render(
            helpers=helpers(operators, backend),
            accumulators={name for text in texts for name in text.accumulators},
            device="__device__ " if backend == "cuda" else "",
            some="float" if backend == "cuda" else "double",
            exp="expf" if backend == "cuda" else "std::exp",
            isnan="isnan" if backend == "cuda" else "std::isnan",
            vectors=any("Vector<" in source for source in sources),
            stores=any("store(" in source for source in sources),
        )
    )
    return checked_source(common + "\n".join(sources), template)


def _checks(plan: Plan) -> list[str]:
    """Return the lines that refuse what the plan is not for."""
    lines = [f'_expect("{name}", {name}, {value!r})' for name, value in sorted(plan.fixed.items())]
    if plan.shapes_fixed:
        lines += [
            f'_expect("shape of {source.name}", tuple({source.name}.shape), {source.type.shape})'
            for source in plan.sources
            if not source.path and not source.is_number
        ]
    return lines


def _results(stage: Stage) -> tuple[str, ...]:
    match stage:
        case Map() | Reduce():
            return tuple(result.value for result in stage.results)
        case Library():
            return stage.results
        case Segment() | Scan() | Pool():
            return (stage.result.value,)


def _source(source: Source) -> str:
    return f"self.{_path(source.path)}" if source.path else source.name


def _path(path: str) -> str:
    """Return `net[0].weight` for `net.0.weight`."""
    return re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", path)


def _local(name: str, taken: set[str]) -> str:
    wish = c_name(name)
    while wish in taken:
        wish += "_"
    taken.add(wish)
    return wish


def _with_values(call: str, known: dict[str, str]) -> str:
    return _VALUE.sub(lambda match: known[match[1]], call)

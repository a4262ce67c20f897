"""The text of a plan: its stages' kernels, and the forward that queues them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from keyword import iskeyword
from unicodedata import normalize

import msgspec

from kernelgen.engines.attention import Attention
from kernelgen.engines.engine import Target
from kernelgen.engines.environment import checked_source, cpp_environment
from kernelgen.engines.known import engine_of
from kernelgen.engines.library import render_library
from kernelgen.engines.operators import NARROW
from kernelgen.engines.pool.record import Pool
from kernelgen.engines.reduce.record import Reduce
from kernelgen.engines.scan import Scan
from kernelgen.engines.schedule import Schedule
from kernelgen.engines.segment.record import Segment
from kernelgen.engines.stage import Kernel, Library, Stage, reads, writes
from kernelgen.engines.text.alike import with_plain_names
from kernelgen.engines.text.functions import helpers
from kernelgen.engines.text.stage_text import COLUMNS, StageText, call_of
from kernelgen.graph.graph import GraphInput, strides_of
from kernelgen.planning.plan import Plan
from kernelgen.problem.record import Backend
from kernelgen.rendering.gradients import parts_of

Key = tuple[str, ...]  # a kernel and its function, with plain names
_CALLED = "_ _expect ctx getattr given self setattr torch tuple upstream"
_VALUE = re.compile(r"\{([\w.]+)\}")

_LIST = re.compile(r"^( +(?:return )?)((?:\w+, )+\w+)(?=$| = )")
_BREAK = re.compile(r", |&& |\? |; (?=\w)")


class PlanText(msgspec.Struct, frozen=True, kw_only=True):
    """A plan as text.

    Attributes:
        ideas: a sentence for each kernel, and for each operator that stays in torch.
        templates: of the kernels and their functions.
        features: of its stages.
        arguments: of forward -> what its body calls them.
        kernels: C source, "" if no stage has a kernel; what several stages share stands once.
        functions: Python functions, one for each kernel.
        body: lines of forward, indented.
        differentiated: `forward` and `backward` of the function that records gradients -> lines.
    """

    ideas: tuple[str, ...]
    templates: tuple[str, ...]
    features: frozenset[str]
    arguments: dict[str, str]
    kernels: str
    functions: tuple[str, ...]
    body: tuple[str, ...]
    differentiated: dict[str, tuple[str, ...]] = {}


def plan_text(
    plan: Plan, backend: Backend, arch: str, schedule: Schedule | None = None
) -> PlanText:
    """Return a plan as text; products and long norms are for an architecture.

    The only stage whose kernels have a schedule has this one, or that which its sizes suggest.
    """
    target, found = Target(backend, arch, schedule), plan.differentiated
    plans = [_without_views(one) for one in ([found.forward, found.backward] if found else [plan])]
    waiting = _texts([stage for one in plans for stage in one.stages], target)
    texts = [[next(waiting) for _ in one.stages] for one in plans]
    whole = [text for some in texts for text in some]
    differentiated: dict[str, tuple[str, ...]] = {}
    if found:
        called, arguments, *inner = parts_of(plan, *plans)
        for method, (one, begin), own in zip(("forward", "backward"), inner, texts, strict=True):
            names = _arguments(one, own)
            lines = [_wrapped(f"        {_with_values(line, names)}") for line in begin]
            differentiated[method] = (*lines, *_body(one, own, names))
        call = f"_Differentiated.apply({', '.join(f'{{{name}}}' for name in arguments)})"
        plans, texts = [called], [[StageText(idea="", call=call)]]
    given = _arguments(plans[0], texts[0])
    kernels = [text for text in whole if text.kernel]
    return PlanText(
        ideas=tuple(dict.fromkeys(text.idea for text in whole if text.idea)),
        templates=tuple(dict.fromkeys(name for text in kernels for name in text.templates)),
        features=frozenset(text.features for text in kernels),
        arguments=given,
        kernels=_kernels(kernels, backend),
        functions=tuple(_wrapped(text.function.strip("\n")) for text in kernels),
        body=_body(plans[0], texts[0], given),
        differentiated=differentiated,
    )


def _called(plan: Plan, texts: Iterable[StageText]) -> set[str]:
    """Return the names that a body calls or reads beside its values."""
    called = {*_CALLED.split()}
    called.update(*(re.findall(r"(?<![.\w])\w+(?=\()", text.call) for text in texts))
    called.update(re.findall(r"(?<![.\w])\w+(?=[(.])", plan.graph.returns))
    return called


def _arguments(plan: Plan, texts: Iterable[StageText]) -> dict[str, str]:
    """Return arguments of forward -> what its body calls them: other names than what it needs."""
    called = _called(plan, texts)
    return {name: f"{name}_given" if name in called else name for name in plan.graph.arguments}


def _body(plan: Plan, texts: Sequence[StageText], given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the lines of forward, indented."""
    stages = list(zip(plan.stages, texts, strict=True))
    read = Counter(name for text in texts for name in _VALUE.findall(text.call))
    paths = [*(source.path for source in plan.sources), *plan.updates]
    paths += [name.removeprefix("self.") for name in read if name.startswith("self.")]
    taken = {*given.values(), *(source.name for source in plan.sources), *_called(plan, texts)}
    modules, bound = _modules(filter(None, paths), plan, taken)
    sources = {source.name: _source(source, plan, given, modules) for source in plan.sources}
    where = next((f"{sources[s.name]}.device" for s in plan.inputs), "torch.get_default_device()")
    for source in plan.sources:
        if source.kind in {"attribute", "constant"}:
            sources[source.name] += f".to({where})"
    gathered = _read_by_kernels(plan)
    body = [*_checks(plan, given), *bound]
    known = dict(sources)
    known[".device"] = where
    known |= {name: _path(name[5:], plan, modules) for name in read if name.startswith("self.")}
    for number, (stage, text) in enumerate(stages):
        results = writes(stage)
        kept = {*plan.outputs, *plan.updates.values(), *read}
        if _is_view_of_the_models(stage, plan) and read[results[0]] in {0, 1}:
            # Where it is read, it tells more than under a name.
            known[results[0]] = _with_values(text.call, known)
            continue
        names = [_local(name, taken) if name in kept else "_" for name in results]
        known |= dict(zip(results, names, strict=True))
        call = _with_values(text.call, known)
        if call.startswith(tuple(f"{sources[one.name]}.view([" for one in plan.inputs)):
            # Of an input that lies in another way, forward may ask for a contiguous copy first.
            call = call.replace(".view([", ".reshape([", 1)
        copied = [known[name] for name in _gathered_for_each(stage, gathered)]
        if copied and len(names) == 1:
            call += ".contiguous()"
        if (
            number == len(stages) - 1
            and plan.graph.returns == "%s"
            and plan.outputs == results
            and not plan.updates
        ):
            body.append(f"return {call}")
            break
        if isinstance(stage, Library) and stage.in_place and not names[0].strip("_"):
            body.append(call)
            continue
        made = ", ".join(names)
        # In brackets, a long line can be folded anywhere.
        body.append(f"({made}) = {call}" if len(names) > 1 else f"{made} = {call}")
        body += [f"{name} = {name}.contiguous()" for name in copied if len(names) > 1]
    else:
        body += _ending(plan, known, modules)
    return tuple(_wrapped(f"        {line}") for line in body)


def _ending(plan: Plan, known: Mapping[str, str], modules: Mapping[str, str]) -> list[str]:
    """Return the lines that leave values in buffers, and return others."""
    lines: list[str] = []
    made_here = {
        name
        for stage in plan.stages
        if not (isinstance(stage, Library) and stage.view)
        for name in writes(stage)
    }
    for path, value in plan.updates.items():
        place = _path(path, plan, modules)
        if path not in plan.attributes:
            lines.append(f"{place}.copy_({known[value]})")
            continue
        # A tensor that the caller holds as well may change before the next call.
        shared = value in plan.outputs or value not in made_here
        left = f"{known[value]}{'.clone()' if shared else ''}"
        named = place.startswith("getattr(") and place.endswith(")")
        lines.append(f"set{place[3:-1]}, {left})" if named else f"{place} = {left}")
    outputs = tuple(known[name] for name in plan.outputs)
    return [*lines, f"return {plan.graph.returns % outputs}"]


def _texts(stages: Sequence[Stage], target: Target) -> Iterator[StageText]:
    """Yield each stage as text; one whose kernel stands already calls that."""
    own: dict[str, Key] = {}
    shared: dict[str, Key] = {}
    for stage in stages:
        if isinstance(stage, Kernel):
            plain, engine = with_plain_names(stage), engine_of(stage)
            own[stage.name] = _key(engine.text(plain, target))
            if (text := engine.shared_text(plain, target)) is not None:
                shared[stage.name] = _key(text)
    sizes: dict[Key, set[Key]] = {}
    for name, key in shared.items():
        sizes.setdefault(key, set()).add(own[name])
    known: dict[Key, str] = {}
    for stage in stages:
        if isinstance(stage, Library):
            yield render_library(stage)
            continue
        several = stage.name in shared and len(sizes[shared[stage.name]]) > 1
        name = known.setdefault((shared if several else own)[stage.name], stage.name)
        text = engine_of(stage).shared_text(stage, target) if several else None
        if name != stage.name:
            yield StageText(idea="", call=call_of(name, stage))
        else:
            yield text or engine_of(stage).text(stage, target)


def _key(text: StageText) -> Key:
    return *text.shared, text.kernel, text.function


def _kernels(texts: list[StageText], backend: Backend) -> str:
    if not texts:
        return ""
    operators = dict.fromkeys(name for text in texts for name in text.operators)
    suffix = "cu" if backend == "cuda" else "cpp"
    template = f"frame/common.{suffix}.jinja"
    # The first sections of all stages, then the second ones: each may read those before it.
    sections = chain.from_iterable(zip_longest(*(text.shared for text in texts), fillvalue=""))
    shared = dict.fromkeys(sections)
    sources = [_wrapped(source) for source in [*shared, *(text.kernel for text in texts)]]
    operators |= {f"to_copy_{t}": None for t in NARROW if re.search(rf"\b{t}\*", "".join(sources))}
    frame = cpp_environment().get_template(template)
    common = frame.render(
        helpers=helpers(operators, backend),
        accumulators={name for text in texts for name in text.accumulators},
        device="__device__ " if backend == "cuda" else "",
        some="float" if backend == "cuda" else "double",
        exp="expf" if backend == "cuda" else "full_exp",
        isnan="isnan" if backend == "cuda" else "std::isnan",
        vectors=any("Vector<" in source for source in sources),
        eights=any(", 8>" in source for source in sources),
        stores=any("store(" in source for source in sources),
    )
    source = re.sub(r"\n{3,}", "\n\n", common + "\n".join(sources))
    return checked_source(source, template)


def _checks(plan: Plan, given: Mapping[str, str]) -> list[str]:
    """Return the lines that refuse what the plan is not for."""
    lines = []
    for text, value in plan.graph.fixed.items():
        name = repr(text) if '"' in text else f'"{text}"'
        lines.append(f"_expect({name}, {_renamed(text, given)}, {value})")
    lines += [f"{s.name} = {_renamed(s.text, given)}" for s in plan.sources if _is_part(s)]
    # Where no size is read, one from the last dimension is checked where it was: of another number
    # of dimensions, that may be another one's.
    counted = plan.graph.asked & {"rank", *["end"] * any(s.size for s in plan.sources)}
    of_one_rank, in_memory = _read_in_one_rank(plan), _read_in_memory(plan)
    for source in plan.sources:
        name, rank = given.get(source.name, source.name), len(source.type.shape)
        dims = [d for d in range(rank) if (source.name, d) in plan.bound]
        by_place = dims and "end" in plan.graph.asked and source.name not in of_one_rank
        if (counted or by_place) and source.kind == "input" and len(dims) < max(rank, 1):
            lines.append(f'_expect("dimensions of {source.name}", {name}.dim(), {rank})')
        if len(dims) == rank > 0:
            found = f"tuple({name}.shape)"
            lines.append(f'_expect("shape of {source.name}", {found}, {source.type.shape})')
        elif dims:
            # Of fewer dimensions, a slice is empty.
            found = ", ".join(f"*{name}.shape[{d}:{d + 1}]" for d in dims)
            sizes = tuple(source.type.shape[d] for d in dims)
            where = f"sizes {', '.join(map(str, dims))} of {source.name}"
            lines.append(f'_expect("{where}", ({found},), {sizes})')
        shape, strides = source.type.shape, source.type.strides
        if source.name in plan.ordered & in_memory:
            # Of other ones, forward may ask for a contiguous copy first.
            lines.append(f'_expect("strides of {source.name}", {name}.stride(), {strides})')
        elif source.name in plan.ordered and len(shape) > 1:
            traced = f'torch.empty_strided({shape}, {strides}, device="meta").dim_order()'
            lines.append(f"if {name}.stride() != {strides}:")
            where = f'"order of {source.name} in memory"'
            lines.append(f"    _expect({where}, {name}.dim_order(), {traced})")
    named = {*plan.graph.arguments, *(source.name for source in plan.sources)}
    for size in (source.size for source in plan.sources if source.size is not None):
        own = f"{given.get(size.input, size.input)}.shape[{size.dim}]"
        for name, dim in sorted(one for one in size.alike - plan.bound if one[0] in named):
            found = f"{given.get(name, name)}.shape[{dim}]"
            lines.append(f'_expect("size {dim} of {name}", {found}, {own})')
    return [*dict.fromkeys(lines)]


def _read_in_one_rank(plan: Plan) -> set[str]:
    """Return the values that reach a kernel which refuses another number of dimensions."""
    reach = set[str]()
    for stage in reversed(plan.stages):
        gathers = isinstance(stage, Attention | Pool | Reduce | Scan | Segment)
        whole = isinstance(stage, Reduce) and stage.extent_in_words == "all"
        if (gathers and not whole) or not reach.isdisjoint(writes(stage)):
            reach.update(reads(stage))
    return reach


def _read_in_memory(plan: Plan) -> set[str]:
    """Return the values whose memory `as_strided` reads, by way of views or as they are."""
    found = set[str]()
    for stage in reversed([one for one in plan.stages if isinstance(one, Library)]):
        views = stage.view and not found.isdisjoint(writes(stage))
        if views or stage.aten.startswith("as_strided"):
            found.update(reads(stage))
    return found


def _read_by_kernels(plan: Plan) -> Counter[str]:
    """Return how many kernels read each value that is read by nobody else."""
    kernels = [{*reads(stage)} for stage in plan.stages if not isinstance(stage, Library)]
    others = (reads(stage) for stage in plan.stages if isinstance(stage, Library))
    others_read = {*plan.outputs}.union(*others)
    return Counter(name for read in kernels for name in read - others_read)


def _gathered_for_each(stage: Stage, kernels: Counter[str]) -> list[str]:
    """Return the views out of memory's order that several kernels would each put in order."""
    if not isinstance(stage, Library) or not stage.view:
        return []
    return [
        name
        for name, found in zip(stage.results, stage.types, strict=True)
        if kernels[name] > 1 and found is not None and found.strides != strides_of(found.shape)
    ]


def _without_views(plan: Plan) -> Plan:
    """Return a plan whose kernels read parameters and buffers of one dimension as they are.

    Torch takes as long for a view with further dimensions of size 1 as for half a stage.
    """
    own = {s.name: s.type.shape for s in plan.sources if s.path and len(s.type.shape) == 1}
    views: dict[str, tuple[str, int, int]] = {}  # what of, and the span of its dimension
    for stage in plan.stages:
        if isinstance(stage, Library) and _is_view_of_the_models(stage, plan) and stage.types[0]:
            of, shape = reads(stage)[0], stage.types[0].shape
            if tuple(size for size in shape if size > 1) == own.get(of):
                first = shape.index(own[of][0]) - len(shape)
                views[stage.results[0]] = of, first, first + 1

    read = set().union(*map(reads, plan.stages))

    def flat(stage: Stage) -> Stage:
        if isinstance(stage, Library):
            return stage
        # A value left in a buffer has the buffer's shape; others read that of the view.
        shaped = {result.into for result in stage.results if result.value in read}
        changed = {
            one.name: msgspec.structs.replace(one, value=views[one.value][0], flat=True)
            for one in stage.spread
            if one.value in views and one.span in {views[one.value][1:], (0, 0)}
            if one.name not in shaped
        }
        operands = tuple(changed.get(one.name, one) for one in stage.operands)
        beside = tuple(changed.get(one.name, one) for one in stage.beside)
        return msgspec.structs.replace(stage, operands=operands, beside=beside)

    return msgspec.structs.replace(plan, stages=tuple(map(flat, plan.stages)))


def _is_view_of_the_models(stage: Stage, plan: Plan) -> bool:
    """Whether a stage is a view of a parameter or a buffer."""
    own = {source.name for source in plan.sources if source.path}
    return (
        isinstance(stage, Library)
        and stage.view
        and len(stage.results) == 1
        and own.issuperset(reads(stage))
    )


def _source(
    source: GraphInput, plan: Plan, given: Mapping[str, str], modules: Mapping[str, str]
) -> str:
    if source.size is not None:
        size = f"{given.get(source.size.input, source.size.input)}.shape[{source.size.dim}]"
        return size if source.size.factor == 1 else f"{size} * {source.size.factor}"
    if source.path:
        return _path(source.path, plan, modules)
    if source.text and not _is_part(source):
        return source.text
    return given.get(source.name, source.name)


def _is_part(source: GraphInput) -> bool:
    """Whether forward reads it from a structure, under a name of its own."""
    return bool(source.text) and not source.text.startswith(("self.", "torch."))


def _renamed(text: str, given: Mapping[str, str]) -> str:
    """Return Python for a part of forward's arguments, under their names in its body."""
    quoted = r"'[^']*'|\"[^\"]*\""
    return re.sub(rf"{quoted}|(?<!\.)\b\w+", lambda found: given.get(found[0], found[0]), text)


def _modules(paths: Iterable[str], plan: Plan, taken: set[str]) -> tuple[dict[str, str], list[str]]:
    """Return the variables of modules that several things are read of, and the lines that set them.

    A name in a module takes Python as long as a small operator takes torch.
    """
    children: dict[str, set[str]] = {}
    for path in paths:
        parts = path.split(".")
        for end in range(1, len(parts)):
            children.setdefault(".".join(parts[:end]), set()).add(parts[end])
    modules: dict[str, str] = {}
    lines = []
    for module in [m for m, own in children.items() if len(own) > 1]:
        text = _path(module, plan, modules)
        wish = re.sub(r"\W", "_", module, flags=re.ASCII)
        plain = wish.isidentifier() and not iskeyword(wish) and wish.strip("_")
        modules[module] = _local(wish if plain else f"module_{wish}", taken)
        lines.append(f"{modules[module]} = {text}")
    return modules, lines


def _path(path: str, plan: Plan, modules: Mapping[str, str]) -> str:
    """Return `self.net[0].weight` for `net.0.weight`; what is no name in Python is quoted.

    Names that begin with two underscores mean something else in a class. A module may have a
    variable.
    """
    text, parts = "self", path.split(".")
    for end, part in enumerate(parts, 1):
        if (known := modules.get(".".join(parts[:end]))) is not None:
            text = known
            continue
        plain = part.isidentifier() and not iskeyword(part) and not part.startswith("__")
        if part.isdecimal() and ".".join(parts[:end]) in plan.graph.indexed:
            text += f"[{int(part)}]"
        elif plain and part == normalize("NFKC", part):
            text += f".{part}"
        else:
            quoted = ascii(part)
            quoted = quoted if '"' in quoted else f'"{quoted[1:-1]}"'
            text = f"getattr({text}, {quoted})"
    return text


def _local(name: str, taken: set[str]) -> str:
    wish = name.replace(".", "_")  # a part of several has a dot in the plan
    while wish in taken:
        wish += "_"
    taken.add(wish)
    return wish


def _with_values(call: str, known: dict[str, str]) -> str:
    return _VALUE.sub(lambda match: known[match[1]], call)


def _wrapped(source: str) -> str:
    """Return source with lines of at most 100 columns, where they have a place to be folded at.

    A line of C that is a comment, or has one, stays. Python is folded where it is in brackets: its
    lines here begin with a short name or a few, before a call.
    """
    return "\n".join(part for line in source.split("\n") for part in _folded(line))


def _folded(line: str) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    if len(line) > COLUMNS:
        line = _LIST.sub(r"\1(\2)", line)
    parts = []
    while len(line) > COLUMNS and "//" not in line:
        places = [found.end() for found in _BREAK.finditer(line) if found.end() <= COLUMNS]
        # A short list stays in one line.
        ends = [at for at in places if line.count("[", 0, at) == line.count("]", 0, at)] or places
        # Or what a long name calls begins a line.
        ends = ends or [line.rfind("(", 0, COLUMNS) + 1]
        if ends[-1] <= len(indent):
            break
        parts.append(line[: ends[-1]].rstrip())
        line = indent + line[ends[-1] :]
    return [*parts, line]

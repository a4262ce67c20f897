"""The parts of a plan with gradients: what the Model calls, and the function that it calls."""

from collections.abc import Iterable

import msgspec

from kernelgen.engines.stage import Library
from kernelgen.graph.graph import GraphInput, Reference
from kernelgen.planning.plan import Plan


def parts_of(
    plan: Plan, forward: Plan, backward: Plan
) -> tuple[Plan, tuple[str, ...], tuple[Plan, list[str]], tuple[Plan, list[str]]]:
    """Return the Model's forward, which calls a function, its arguments, and its two methods.

    Of these all sources are arguments; the lines with each name them, as `{x}`.
    """
    graph, of, found = plan.graph, plan.graph.backward, plan.differentiated
    assert of is not None
    assert found is not None
    read = {source.name for one in (plan, forward, backward) for source in one.sources}
    known = {source.name: source for source in (*graph.inputs, *plan.sources)}
    sources = tuple(known[i.name] for i in graph.inputs if i.name in read - of.upstream.keys())
    given = tuple(source.name for source in sources)
    ends = len(forward.outputs) - len(found.saved)
    results = tuple(f"output_{n}" for n in range(ends))
    read_by = {name: Reference(name) for name in given}
    none = (None,) * ends
    call = Library(name="", aten="", arguments={**read_by}, given=0, results=results, types=none)
    outputs = results[: ends - len(graph.updates)]
    called = msgspec.structs.replace(
        plan,
        graph=msgspec.structs.replace(graph, outputs=outputs, backward=None),
        sources=sources,
        stages=(call,),
        outputs=outputs,
        updates=dict(zip(graph.updates, results[len(outputs) :], strict=True)),
    )
    own = {s.name: s for s in backward.sources}
    tensors = {name: name for name in given if name in own and not own[name].is_number}
    left = zip(found.saved, forward.outputs[ends:], strict=True)
    tensors |= {name: value for name, value in left if name in own}
    numbers = [name for name in given if name in own and own[name].is_number]
    records = [n in of.upstream.values() for n in range(ends)]
    texts = [", ".join(["%s"] * len(some)) for some in (results, tensors, numbers)]
    ahead = _plain(
        msgspec.structs.replace(forward, sources=sources),
        f"_left(ctx, [{texts[0]}], {records}, [{texts[1]}], [{texts[2]}])",
        (*forward.outputs[:ends], *tensors.values(), *numbers),
    )
    gradients = dict(zip(of.gradients, backward.outputs, strict=True))
    asked = ", ".join("%s" if name in gradients else "None" for name in given)
    values = tuple(gradients[name] for name in given if name in gradients)
    behind = _plain(backward, f"_asked(ctx, [{asked}])", values)
    upstream = ((name, number) for name, number in of.upstream.items() if name in own)
    begin = [
        *_unpacked(tensors, "ctx.saved_tensors"),
        *_unpacked(numbers, "ctx.numbers"),
        *(f"{{{name}}} = upstream[{number}].contiguous()" for name, number in upstream),
    ]
    return called, given, (ahead, _unpacked(given, "given")), (behind, begin)


def _unpacked(names: Iterable[str], of: str) -> list[str]:
    """Return Python that gives names to values, none for nothing."""
    text = "".join(f"{{{name}}}, " for name in names).rstrip()
    return [f"({text}) = {of}"] if text else []


def _plain(plan: Plan, returns: str, outputs: tuple[str, ...]) -> Plan:
    """Return a plan all of whose sources are arguments, and which returns otherwise."""
    sources = tuple(
        GraphInput(name=s.name, kind="scalar" if s.is_number else "input", type=s.type)
        for s in plan.sources
    )
    arguments = tuple(source.name for source in sources)
    graph = msgspec.structs.replace(plan.graph, arguments=arguments, returns=returns)
    return msgspec.structs.replace(
        plan, graph=graph, sources=sources, outputs=outputs, ordered=frozenset()
    )

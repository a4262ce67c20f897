"""Whether a candidate's own kernels did the work: the judgement on traced calls.

Nothing here rests on one number of a trace alone. Times come from the candidate's process, and an
honest kernel may be a small part of a call; docs/own-kernels.md gives the reason for each rule.
"""

import re
from collections.abc import Sequence

import msgspec

from kernelgen.grading.kernels.attribution import LIBRARIES, AttributedWork, attribute
from kernelgen.grading.kernels.names import (
    library_of,
    only_moves,
    operator_computes,
    parse_kernel_name,
    plain_name,
)
from kernelgen.grading.verdict import OWN_KERNELS
from kernelgen.grading.wire.trace import Trace, Work, covered
from kernelgen.problem.record import Libraries, Require
from kernelgen.solution.declared_kernels import DeclaredKernels

# No multiprocessor and no GPU moves more, in bytes a microsecond (250 GB/s and 20 TB/s).
_BLOCK_BYTES_PER_US = 250e3
_DEVICE_BYTES_PER_US = 20e6
# A thread that writes 16 bytes in every cycle at 2 GHz, several times what any does.
_THREAD_BYTES_PER_US = 32e3
# One process moves no more on a CPU (200 GB/s).
_HOST_BYTES_PER_US = 200e3
# An empty launch takes 1 to 3 us.
_NEXT_TO_NOTHING_US = 5.0
_NO_SHARE = 0.002
_SMALL_LAUNCH_THREADS = 256
_MOST_ELEMENTS_A_THREAD = 64
_FORBIDDEN_SHARE = 0.05
# Of their time, what own kernels must run by themselves if a library's run too.
_ALONE_SHARE = 0.05
# Beside all that the reference computes, a kernel that does some of its moves takes as much of the
# time, and a decoy made to take as much makes the candidate slower by nearly a half.
_OWN_SHARE_OF_A_REPETITION = 0.3
# Of the operators that the reference calls, the part that must be found again to speak of a copy.
_SAME_SIZE = 0.9
_OWN_HOST_SHARE = 0.2
_OWN_HOST_US = 1000.0
_TOLD = 4
# Kernels of ATen's that take a weight or a bias, or none: their names do not say all they compute.
_TAKES_PARAMETERS = re.compile(r"conv|norm|linear", re.IGNORECASE)
# Operators of which the result may be the operand, element by element.
_LEAVES = re.compile(r"lu|clamp|hardtanh|threshold|mish|softplus|m(ax|in)imum|where|mask|drop|abs")
# Operators that count as computing beside a reference, and only move values.
_MOVES = re.compile(r"flip\w*|roll|rot90|tile|repeat|gather|index(_select)?|\w*(cat|stack|pad\w*)")

Span = tuple[float, float]


class TracedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A verified call of the main case and what ran in it; `by_torch` as of a trace.

    `followed` are the operators that were followed in such a call, None if that is not known.
    """

    trace: Trace
    output_elements: int
    output_bytes: int
    by_torch: bool | None = None
    followed: tuple[Work, ...] | None = None


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Requirements of a problem; see Problem."""

    require: Require
    libraries: Libraries


def objection(
    calls: Sequence[TracedCall],
    declared: DeclaredKernels,
    policy: Policy,
    *,
    on_gpu: bool,
    reference: Trace | None,
) -> str | None:
    """Return why the calls do not satisfy the policy, or None.

    `reference` traces the reference: always there on a CPU, and on a GPU where
    `depends_on_reference`. No trace may be missing.
    """
    for call in calls:
        works = attribute(call.trace, declared, reference)
        reasons = []
        if policy.require == "own_kernel":
            if on_gpu:
                reasons += [_device_decoy(call, works), _hidden(call.trace, works)]
                if reference is not None:
                    reasons.append(_repetition(call.trace, works, reference))
            else:
                assert reference is not None
                reasons.append(_host_decoy(call, works, reference))
        if policy.libraries == "forbidden":
            # On a CPU the candidate's own code is not among the works: the call is the whole.
            total_us = _time(works) if on_gpu else call.trace.call_us
            reasons.append(_forbidden(works, total_us))
        found = next((reason for reason in reasons if reason), None)
        if found:
            return found
    return None


def depends_on_reference(
    calls: Sequence[TracedCall], declared: DeclaredKernels, policy: Policy
) -> bool:
    """Whether, on a GPU, only a trace of the reference can tell own kernels from a decoy."""
    # Every repetition runs a computing kernel of ATen's.
    return policy.require == "own_kernel" and any(
        _sizes(call.trace.operators)
        or any(work.owner == "aten" and work.computes for work in attribute(call.trace, declared))
        for call in calls
    )


def _device_decoy(call: TracedCall, works: Sequence[AttributedWork]) -> str | None:
    own, library = _own(works), _computing(works)
    if not own:
        return _nothing_own(call.trace, works, library)
    own_us, library_us = _time(own), _time(library)
    share = own_us / (own_us + library_us)
    told = f"its own kernels ({_names(own)}) take {own_us:.1f} us, {share:.2%} of the GPU time, "
    did = f"; the work was done by {_told(library)}"
    if library and _reach_bytes(own) < call.output_bytes:
        return f"{told}too little to write the output of {call.output_bytes} bytes once{did}"
    if library_us <= own_us:
        return None
    if own_us < _NEXT_TO_NOTHING_US and share < _NO_SHARE:
        return f"{told}no more than a launch that does nothing{did}"
    threads = sum(work.work.count * work.work.threads for work in own)
    if (
        own_us < _NEXT_TO_NOTHING_US
        and 0 < threads <= _SMALL_LAUNCH_THREADS
        and threads * _MOST_ELEMENTS_A_THREAD < call.output_elements
    ):
        return f"{told}in {threads} threads for {call.output_elements} output elements{did}"
    return None


def _does_much_itself(works: Sequence[AttributedWork]) -> bool:
    own_us = _time(_own(works))
    whole_us = own_us + _time(_computing(works))
    return own_us > max(_NEXT_TO_NOTHING_US, _OWN_SHARE_OF_A_REPETITION * whole_us)


def _hidden(trace: Trace, works: Sequence[AttributedWork]) -> str | None:
    """Return an objection if own kernels ran only while a library's did: none of the time."""
    own, library = list[Span](), list[Span]()
    for run in trace.runs:
        if run.work < len(works):
            work = works[run.work]
            spans = own if work.owner in OWN_KERNELS else library
            if work.computes:
                spans.append((run.begin_us, run.begin_us + run.time_us))
    own_us = covered(own)
    alone_us = covered([*own, *library]) - covered(library)
    if not own or not library or alone_us >= _ALONE_SHARE * own_us:
        return None
    return (
        f"its own kernels took {own_us:.1f} us beside kernels of libraries and {alone_us:.1f} us "
        "by themselves, none of the time; run them one after the other if they do a part; "
        f"the work was done by {_told(_computing(works))}"
    )


def _repetition(trace: Trace, works: Sequence[AttributedWork], reference: Trace) -> str | None:
    repeated = _repeated_kernels(works, reference)
    operators = _repeated_operators(trace.operators, reference.operators)
    if _moves_less(works, reference):
        # An own kernel may do what the reference does by moving.
        operators = ()
        if _does_much_itself(works):
            return None
    if not repeated and not operators:
        return None
    if repeated:
        did = f"runs all kernels that the reference runs ({', '.join(repeated[:_TOLD])}), as often"
        did += " and in as many threads"
    else:
        did = _calls_alike(operators)
    return (
        f"forward {did}, so that its own ({_names(_own(works))}) add nothing that is needed; "
        f"the work was done by {_told(_computing(works))}"
    )


def _repeated_operators(called: Sequence[Work], reference: Sequence[Work]) -> tuple[str, ...]:
    """Return the reference's computing operators if all are called on as many elements, else ()."""
    asked, done = _sizes(reference), _sizes(called)
    covered_all = all(done.get(name, 0) >= _SAME_SIZE * asked[name] for name in asked)
    return tuple(sorted(asked)) if covered_all else ()


def _calls_alike(operators: tuple[str, ...]) -> str:
    return f"calls torch's {', '.join(operators[:_TOLD])} on all that the reference calls them on"


def _moves_less(works: Sequence[AttributedWork], reference: Trace) -> bool:
    """Whether the reference copies or moves what the call does not: the own kernel may do that."""
    done = {found.work.name: found.work for found in works}
    moves = [work for work in reference.works if work.kind == "copy" or only_moves(work.name)]
    return any(work.name not in done or not _covers(done[work.name], work) for work in moves)


def _repeated_kernels(works: Sequence[AttributedWork], reference: Trace) -> tuple[str, ...]:
    """Return the names of the reference's computing kernels if the call runs them all, else ().

    Each must run at least as often, in at least as many blocks and threads: the same kernel on a
    part of the elements, beside own kernels that do the rest, is no repetition. Nor is anything of
    a reference with a product, a convolution or a norm: such a kernel may add a bias, or leave it
    to somebody else's under the same name.
    """
    done = {found.work.name: found.work for found in works if found.work.kind == "kernel"}
    asked = [
        work for work in reference.works if work.kind == "kernel" and not only_moves(work.name)
    ]
    if not asked or any(_may_hide_more(work) for work in asked):
        return ()
    if not all(work.name in done and _covers(done[work.name], work) for work in asked):
        return ()
    return tuple(parse_kernel_name(work.name).shown for work in asked)


def _may_hide_more(work: Work) -> bool:
    name = parse_kernel_name(work.name)
    return library_of(name) != "aten" or _TAKES_PARAMETERS.search(name.base) is not None


def _covers(done: Work, asked: Work) -> bool:
    return (
        done.count >= asked.count
        and done.blocks >= asked.blocks
        and done.threads >= asked.threads
        and done.all_threads >= asked.all_threads
    )


def _nothing_own(
    trace: Trace, works: Sequence[AttributedWork], library: Sequence[AttributedWork]
) -> str | None:
    if trace.unseen_graphs and not library:
        return None
    if not works:
        return "no kernel ran on the GPU during forward"
    return f"none of its own kernels ran in forward; what ran: {_told(library or works)}"


def _reach_bytes(own: Sequence[AttributedWork]) -> float:
    """Return more bytes than these kernels can have written in their time."""
    total = 0.0
    for attributed in own:
        work = attributed.work
        by_blocks = (work.blocks or 1 << 20) * _BLOCK_BYTES_PER_US
        by_threads = (work.threads or 1 << 30) * _THREAD_BYTES_PER_US
        total += work.time_us * min(by_blocks, by_threads, _DEVICE_BYTES_PER_US)
    return total


def _host_decoy(call: TracedCall, works: Sequence[AttributedWork], reference: Trace) -> str | None:
    library, trace = _computing(works), call.trace
    if call.by_torch and not (library and _may_leave_values(trace.works, reference.works)):
        ran = _told(library) or "operators that were not recorded"
        return f"torch's operators alone make the outputs, whatever else runs in forward: {ran}"
    if not library:
        return None
    own_us = max(0.0, trace.call_us - trace.busy_us)
    did = f"the work was done by {_told(library)}"
    repeated = _repeated_operators(trace.works, reference.works)
    leaves_more = call.by_torch is False and _leaves_parameters(trace.works, reference.works)
    # A call also takes long when it waits for a thread or for its turn: only work counts here.
    worked_us = min(trace.call_us, trace.cpu_us or trace.call_us)
    own_work_us = own_us * worked_us / trace.call_us if trace.call_us else 0.0
    much_of_its_own = own_work_us > max(_OWN_HOST_US, _OWN_HOST_SHARE * worked_us)
    if repeated and not leaves_more and not much_of_its_own:
        return f"forward {_calls_alike(repeated)}; {did}"
    if (others := _unfollowed(call, reference)) and not much_of_its_own:
        return (
            f"torch's {', '.join(others[:_TOLD])} may make the outputs unseen: not all operators "
            "that run could be followed, as in another thread, beside gigabytes, or where a mode "
            f"is turned off; call them in forward's thread, as they are; {did}"
        )
    if own_us * _HOST_BYTES_PER_US < call.output_bytes:
        return (
            f"{own_us:.1f} us of forward are not torch's operators, too little to write the output "
            f"of {call.output_bytes} bytes once; {did}"
        )
    return None


def _unfollowed(call: TracedCall, reference: Trace) -> tuple[str, ...]:
    """Return operators that the reference does not call, where not all could be followed, or ()."""
    if call.followed is None:
        return ()
    ran, seen = _sizes(call.trace.works), _sizes(call.followed)
    others = {name for name in ran.keys() - _sizes(reference.works) if not _MOVES.fullmatch(name)}
    hidden = any(seen.get(name, 0) < _SAME_SIZE * size for name, size in ran.items())
    enough = sum(ran[name] for name in others) >= call.output_elements
    return tuple(sorted(others)) if hidden and enough else ()


def _may_leave_values(called: Sequence[Work], reference: Sequence[Work]) -> bool:
    """Whether an own kernel may do what leaves all values as they are, such as a clamp."""
    done, asked = _sizes(called), _sizes(reference)
    left, leaves = ([n for name, n in of.items() if _LEAVES.search(name)] for of in (done, asked))
    fewer = sum(done.values()) < _SAME_SIZE * sum(asked.values())
    return fewer and sum(left) < _SAME_SIZE * sum(leaves)


def _leaves_parameters(called: Sequence[Work], reference: Sequence[Work]) -> bool:
    """Whether a norm or a convolution leaves weight or bias to an own kernel."""
    given = {work.name: work.operands for work in called if _TAKES_PARAMETERS.search(work.name)}
    return any(
        given.get(one.name, one.operands) < one.operands for one in reference if one.elements
    )


def _sizes(works: Sequence[Work]) -> dict[str, int]:
    """Return how many elements each computing operator of torch's was called on."""
    sizes: dict[str, int] = {}
    for work in works:
        if work.kind == "operator" and work.elements and operator_computes(work.name):
            name = plain_name(work.name)
            sizes[name] = sizes.get(name, 0) + work.elements
    return sizes


def _forbidden(works: Sequence[AttributedWork], total_us: float) -> str | None:
    library = _computing(works)
    share = _time(library) / total_us if total_us else 0.0
    if share <= _FORBIDDEN_SHARE:
        return None
    return f"the problem forbids libraries, and they take {share:.0%} of the time: {_told(library)}"


def _own(works: Sequence[AttributedWork]) -> list[AttributedWork]:
    return [work for work in works if work.owner in OWN_KERNELS]


def _names(works: Sequence[AttributedWork]) -> str:
    return ", ".join(work.name for work in works[:_TOLD])


def _computing(works: Sequence[AttributedWork]) -> list[AttributedWork]:
    return [work for work in works if work.owner in LIBRARIES and work.computes]


def _time(works: Sequence[AttributedWork]) -> float:
    return sum(work.work.time_us for work in works)


def _told(works: Sequence[AttributedWork]) -> str:
    told = [f"{work.name} ({work.owner})" for work in works[:_TOLD]]
    rest = len(works) - len(told)
    return ", ".join(told) + (f" and {rest} more" if rest else "")

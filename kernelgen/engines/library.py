"""A library stage: an operator that stays in torch, as a Python expression."""

from kernelgen.engines.naming import without_overload
from kernelgen.engines.stage import Library
from kernelgen.engines.text.stage_text import StageText
from kernelgen.graph.graph import Argument, Named, Reference, written

# Methods of a tensor that take what the operator takes, in the same order.
_METHODS = frozenset(
    """
    bmm chunk clone contiguous cumsum detach expand flatten flip matmul movedim narrow permute
    repeat reshape select softmax split squeeze sum t transpose unbind unflatten unfold unsqueeze
    view
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
# Functions of torch with an operator's arguments and overloads, which take half of its time.
_FUNCTIONS = tuple(f"{kind}{dims}d" for kind in ("conv", "conv_transpose") for dims in (1, 2, 3))


def render_library(stage: Library) -> StageText:
    """Return the call of an operator as text."""
    base = without_overload(stage.aten)
    arguments = list(stage.arguments.items())[: stage.given]
    first = next(iter(stage.arguments.values()), None)
    if (
        base in _METHODS
        and isinstance(first, Reference)
        and stage.aten.endswith((".default", ".int", ".groups", ".using_ints"))
    ):
        call = f"{_python(first)}.{base}({', '.join(_call(stage, arguments[1:]))})"
    elif base == "numpy_T":
        call = f"{_python(first)}.T"
    elif base in _FUNCTIONS:
        call = f"torch.{base}({', '.join(_call(stage, arguments))})"
    elif base == "getitem":
        call = f"{_python(first)}[{arguments[1][1]}]"
    else:
        space, _, name = stage.aten.rpartition("::")
        name = name.replace(".", "_.", 1) if stage.in_place else name
        call = f"torch.ops.{space or 'aten'}.{name}({', '.join(_call(stage, arguments))})"
    # In place, torch would refuse what it broadcasts here.
    wholes = stage.whole * (not stage.in_place)
    call += "".join(f".expand_as({_python(stage.arguments[name])})" for name in wholes)
    idea = "" if stage.view else f"{base} stays in torch"
    return StageText(idea=idea, call=call)


def _call(stage: Library, arguments: list[tuple[str, Argument]]) -> list[str]:
    """Return the arguments of a call."""
    named = stage.named
    if stage.aten == "_to_copy.default":  # rewrites make it, which know no names
        named = tuple(name for name, _ in arguments if name != "self")
    return [f"{name}=" * (name in named) + _python(value) for name, value in arguments]


def _python(argument: Argument) -> str:
    match argument:
        case Reference():
            return "{" + argument.name + "}"
        case Named(name="device"):  # a factory's is the inputs'
            return "{.device}"
        case Named():
            return f"torch.{argument.name}"
        case tuple():
            return f"[{', '.join(_python(item) for item in argument)}]"
        case _:
            return written(argument)

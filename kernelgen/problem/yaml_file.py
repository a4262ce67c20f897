"""A YAML file as a problem. `docs/adding-a-problem.md` describes the format."""

import builtins
import keyword
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

from kernelgen.errors import ProblemError
from kernelgen.problem import record
from kernelgen.problem.python_block import GIVEN_IMPORTS, INTERFACE, PythonBlock
from kernelgen.problem.schedules import read_schedules
from kernelgen.problem.text import read_raw
from kernelgen.problem.yaml_tree import YamlValue, read_tree

_REQUIRED = ("summary", "model", "get_inputs", "get_init_inputs")
_LARGEST_COUNT = 10**18
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_KERNELBENCH = re.compile(r"[1-9]/[1-9][0-9]{0,3}", re.ASCII)

Constants = dict[str, record.ConstantValue]


def read_yaml_problem(path: Path) -> record.Problem:
    """Read a problem from a YAML file, having checked all that can be checked without running it.

    Raises:
        ProblemError: the file cannot be read or is wrong; the message names line, key, what was
            expected, what was found, and how to fix it.
    """
    if (tuned := path.with_suffix(".schedules.json")).exists():
        message = f"not read any more; write its entries under `schedules` in {path.name}"
        raise ProblemError(tuned, None, None, f"{message}, and remove the file")
    try:
        return problem_of(path, read_raw(path))
    except RecursionError as error:
        raise ProblemError(path, None, None, "nested too deeply; a problem is flat") from error


def problem_of(path: Path, raw: bytes) -> record.Problem:
    """Return the problem that the bytes of a file are.

    Raises:
        ProblemError: they are wrong, or the file's name is none for a problem.
    """
    if not _NAME.fullmatch(path.stem):
        message = "expected a file name of letters, digits, `_` and `-`; rename the file"
        raise ProblemError(path, None, None, message)
    tree = read_tree(path, raw)
    for name, value in tree.items():
        if name == "template":
            message = "not needed any more, the kernels follow from the Model; remove the key"
            raise value.error(message, line=value.key_line)
    blocks = ("summary", "constants", "cpu", "model", "get_inputs", "get_init_inputs")
    fields = tree.fields((*blocks, *_READERS, "cases"), _REQUIRED)
    summary = fields["summary"].one_line()
    constants = read_constants(fields["constants"]) if "constants" in fields else {}
    cpu = fields["cpu"].fields(("constants", "minimal"), ("constants",)) if "cpu" in fields else {}
    model = PythonBlock(fields["model"])
    inputs = PythonBlock(fields["get_inputs"])
    init_inputs = PythonBlock(fields["get_init_inputs"])
    _check_blocks(constants, model, inputs, init_inputs)
    given = frozenset((*GIVEN_IMPORTS, *constants)) | model.names | init_inputs.names
    return record.Problem(
        name=path.stem,
        summary=summary,
        path=path,
        sha256=record.digest(raw),
        constants=constants,
        cpu_constants=_replacements(cpu["constants"], constants) if cpu else {},
        model=model.text,
        get_inputs=inputs.text,
        get_init_inputs=init_inputs.text,
        cases=_cases(fields["cases"], constants, given, model) if "cases" in fields else (),
        cpu_minimal=_minimal(cpu["minimal"]) if "minimal" in cpu else record.Minimal(),
        **{key: read(fields[key]) for key, read in _READERS.items() if key in fields},
    )


def read_constants(value: YamlValue) -> Constants:
    """Return a mapping of names to constants.

    Raises:
        ProblemError: a name has a meaning already, or a value is no constant.
    """
    constants: Constants = {}
    for name, item in value.items():
        if not name.isidentifier() or name != name.strip() or not name.isascii():
            raise item.error("expected a Python name of letters, digits and `_`; rename it")
        if keyword.iskeyword(name):
            raise item.error(f"`{name}` is a keyword of Python; rename it")
        hidden = name in (*GIVEN_IMPORTS, *INTERFACE, "ModelNew") or name in dir(builtins)
        if hidden or name.startswith("__"):
            raise item.error(f"`{name}` already has a meaning in the Python blocks; rename it")
        constants[name] = item.constant()
    return constants


def _replacements(value: YamlValue, constants: Constants) -> Constants:
    """Return constants that replace some of the problem's own, each by a value of its kind."""
    replaced: Constants = {}
    for name, item in value.items():
        if name not in constants:
            known = ", ".join(constants) or "none"
            message = "expected a name from the problem's `constants`, found a new one"
            raise item.error(f"{message}; add it there first (known: {known})")
        replaced[name] = item.constant()
        expected, found = _kind(constants[name]), _kind(replaced[name])
        if expected != found:
            raise item.error(f"expected {expected}, as under `constants`, found {found}")
    return replaced


def _kind(value: record.ConstantValue) -> str:
    if isinstance(value, tuple):
        return "a list"
    if isinstance(value, bool):
        return "true or false"
    return "text" if isinstance(value, str) else "a number"


def _check_blocks(
    constants: Constants, model: PythonBlock, inputs: PythonBlock, init_inputs: PythonBlock
) -> None:
    blocks = {"Model": model, "get_inputs": inputs, "get_init_inputs": init_inputs}
    for name, block in blocks.items():
        block.require(name)
    for name, block in blocks.items():
        block.refuse_rebinding((*constants, *(other for other in blocks if other != name)))
    # The blocks become one module, so each may use what another defines.
    known = frozenset((*GIVEN_IMPORTS, *constants))
    known |= model.names | inputs.names | init_inputs.names
    for block in blocks.values():
        block.refuse_undefined(known)
    inputs.require_count("get_inputs", model)
    init_inputs.require_count("get_init_inputs", model)


def _cases(
    value: YamlValue, constants: Constants, given: frozenset[str], model: PythonBlock
) -> tuple[record.Case, ...]:
    cases: list[record.Case] = []
    for item in value.elements():
        fields = item.fields(("name", "why", "constants", "get_inputs"), ("name",))
        name = fields["name"].one_line()
        if not _NAME.fullmatch(name):
            message = f"expected letters, digits, `_` and `-`, found {name[:40]!r}"
            raise fields["name"].error(f"{message}; rename the case")
        if name == record.MAIN_CASE:
            message = f"`{record.MAIN_CASE}` is the case that the problem itself describes"
            raise fields["name"].error(f"{message}; rename this one")
        if any(case.name == name for case in cases):
            raise fields["name"].error(f"two cases are called `{name}`; rename one")
        if "constants" not in fields and "get_inputs" not in fields:
            raise item.error("the case repeats main; give it `constants` or `get_inputs`")
        own = fields.get("constants")
        inputs = fields.get("get_inputs")
        cases.append(
            record.Case(
                name=name,
                why=fields["why"].one_line() if "why" in fields else "",
                constants=_replacements(own, constants) if own else {},
                get_inputs=_case_inputs(inputs, constants, given, model) if inputs else None,
            )
        )
    return tuple(cases)


def _case_inputs(
    value: YamlValue, constants: Constants, given: frozenset[str], model: PythonBlock
) -> str:
    block = PythonBlock(value)
    block.require("get_inputs")
    block.refuse_rebinding((*constants, "Model", "get_init_inputs"))
    block.refuse_undefined(given | block.names)
    block.require_count("get_inputs", model)
    return block.text


def _tolerance(value: YamlValue) -> float:
    tolerance = value.number()
    if not 0 < tolerance <= record.LARGEST_TOLERANCE:
        message = (
            f"expected a number above 0 and at most {record.LARGEST_TOLERANCE}, found {tolerance}"
        )
        raise value.error(f"{message}; write for example 1.0e-5")
    return tolerance


def _minimal(value: YamlValue) -> record.Minimal:
    fields = value.fields(("bytes", "flops"), ())
    if not fields:
        raise value.error("expected `bytes`, `flops` or both, found neither; remove the key")
    counts = {name: field.whole_number() for name, field in fields.items()}
    for name, count in counts.items():
        least = 1 if name == "bytes" else 0
        if not least <= count <= _LARGEST_COUNT:
            message = f"expected a whole number from {least} to {_LARGEST_COUNT}, found {count}"
            raise fields[name].error(f"{message}; leave the key out to have them counted")
    return record.Minimal(bytes=counts.get("bytes"), flops=counts.get("flops"))


def _one_of(allowed: tuple[str, ...], value: YamlValue) -> str:
    text = value.one_line()
    if text not in allowed:
        raise value.error(f"expected {' or '.join(f'`{c}`' for c in allowed)}, found {text[:40]!r}")
    return text


def _kernelbench(value: YamlValue) -> str:
    written = value.node.value  # as it stands, so that of a lone number the form is said as well
    if not isinstance(written, str) or not _KERNELBENCH.fullmatch(written):
        message = f"expected KernelBench's level and number such as 1/23, found {value.found()}"
        raise value.error(f"{message}; remove the key if it is none of KernelBench's problems")
    return written


def _imports(value: YamlValue) -> tuple[str, ...]:
    names: list[str] = []
    for item in value.elements():
        name = item.one_line()
        if not name.isidentifier():
            message = f"expected a top-level module such as `triton`, found {name[:40]!r}"
            raise item.error(message)
        names.append(name)
    return tuple(names)


# The problem's own default counts where a key is left out.
_READERS: dict[str, Callable[[YamlValue], Any]] = {
    "tolerance": _tolerance,
    "batch_independent": YamlValue.flag,
    "kernelbench": _kernelbench,
    "allowed_imports": _imports,
    "precision": partial(_one_of, get_args(record.Precision)),
    "gradients": YamlValue.flag,
    "require": partial(_one_of, get_args(record.Require)),
    "libraries": partial(_one_of, get_args(record.Libraries)),
    "buffers": partial(_one_of, get_args(record.Buffers)),
    "algebra": partial(_one_of, get_args(record.Algebra)),
    "minimal": _minimal,
    "schedules": read_schedules,
}

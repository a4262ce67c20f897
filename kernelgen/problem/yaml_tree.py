"""YAML values that know where they stand, so that every complaint names file, line and key.

The tree is what YAML's composer makes, before any value is built: lines are exact, duplicate keys
are still there to be refused, and nothing in the file can make an object other than text, numbers,
lists and mappings.
"""

import contextlib
import difflib
import math
import re
from pathlib import Path

import yaml

from kernelgen.errors import ProblemError
from kernelgen.problem.record import ConstantValue
from kernelgen.problem.text import decode

_TAG = "tag:yaml.org,2002:"
# YAML 1.1 takes `1e-5` for text because it has no dot; its author means the number.
_NUMBER_WITHOUT_DOT = re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+")
_ARITHMETIC = re.compile(r"[\d\s.()+-]*\d[\s)]*[-+*/][\d\s.()*/+-]*")
# YAML 1.1 takes `1:30` for the base-60 number 90 and `012` for 10; their author does not.
_SURPRISING_NUMBER = re.compile(r"[-+]?(0[0-7_]+|[0-9][0-9_]*(:[0-9.]+)+)")
# How to fix the mistakes that the parser's own words do not make plain.
_MENDS = {
    r"'\t'": "indent with spaces, YAML takes no tabs",
    "mapping values are not allowed": "indent this line like its neighbours, or put a text that "
    "holds `: ` in quotes",
    "block mapping start": "indent this line like its neighbours",
    "unexpected end of stream": "close it with the same quote or bracket",
    "another document": "remove the line `---`",
}
_KINDS = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false"}


class _Loader(yaml.SafeLoader):
    """The safe loader without aliases, which make a tree endless or exponentially large."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            reason = f"found the alias *{event.anchor}; write the value out"
            raise yaml.composer.ComposerError(None, None, reason, event.start_mark)
        return super().compose_node(parent, index)


class YamlValue:
    """One value of the file, with its key.

    Args:
        key: dotted key, such as `cases[1].name`, or None for the whole file.
        key_line: 1-based line of the key, where it has one: the value may begin further down.
    """

    def __init__(
        self, path: Path, node: yaml.Node, key: str | None, key_line: int | None = None
    ) -> None:
        self.path, self.node, self.key, self.key_line = path, node, key, key_line

    @property
    def line(self) -> int:
        """1-based line where the value begins."""
        return int(self.node.start_mark.line) + 1

    def error(self, message: str, *, line: int | None = None) -> ProblemError:
        """Return the error that blames this value."""
        return ProblemError(self.path, self.line if line is None else line, self.key, message)

    def found(self) -> str:
        """Return in words what stands here."""
        if isinstance(self.node, yaml.MappingNode):
            return "a mapping"
        if isinstance(self.node, yaml.SequenceNode):
            return "a list"
        kind = _KINDS.get(self._tag(), self._tag() if self._tag() != "null" else "nothing")
        shown = str(self.node.value)
        return f"{kind} ({shown[:40]!r})" if shown else kind

    def items(self) -> list[tuple[str, "YamlValue"]]:
        """Return the keys and values of a mapping whose keys are distinct texts."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.error(f"expected a mapping of keys to values, found {self.found()}")
        pairs: list[tuple[str, YamlValue]] = []
        lines: dict[str, int] = {}
        for key_node, value_node in self.node.value:
            key = YamlValue(self.path, key_node, self.key)
            if not isinstance(key_node, yaml.ScalarNode) or key._tag() != "str":
                raise key.error(f"expected text as a key, found {key.found()}; put it in quotes")
            name = key.text()
            dotted = f"{self.key}.{name}" if self.key else name
            if name in lines:
                message = f"the key stands twice, first on line {lines[name]}; remove one of them"
                raise ProblemError(self.path, key.line, dotted, message)
            lines[name] = key.line
            pairs.append((name, YamlValue(self.path, value_node, dotted, key.line)))
        return pairs

    def fields(self, allowed: tuple[str, ...], required: tuple[str, ...]) -> "dict[str, YamlValue]":
        """Return a mapping's values by key, having refused unknown and missing keys."""
        pairs = self.items()
        names = [name for name, _ in pairs]
        for name, value in pairs:
            if name not in allowed:
                close = difflib.get_close_matches(name, [k for k in allowed if k not in names], n=1)
                known = f"known keys: {', '.join(allowed)}"
                mend = f"did you mean `{close[0]}`?" if close else known
                raise value.error(f"unknown key; {mend}", line=value.key_line)
        missing = [name for name in required if name not in names]
        if missing:
            listed = ", ".join(f"`{name}`" for name in missing)
            raise self.error(
                f"expected the key{'s' * (len(missing) > 1)} {listed}, found none; add it"
            )
        return dict(pairs)

    def elements(self) -> "list[YamlValue]":
        """Return the elements of a list."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.error(f"expected a list, found {self.found()}")
        key = self.key or ""
        return [YamlValue(self.path, n, f"{key}[{i}]") for i, n in enumerate(self.node.value)]

    def text(self) -> str:
        """Return a text."""
        if self._tag() != "str" or not isinstance(self.node, yaml.ScalarNode):
            hint = "; put it in quotes" if isinstance(self.node, yaml.ScalarNode) else ""
            raise self.error(f"expected text, found {self.found()}{hint}")
        value = str(self.node.value)
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise self.error("expected text, found a lone surrogate, which is no character")
        return value

    def one_line(self) -> str:
        """Return a text of exactly one line."""
        value = self.text().strip()
        if not value or len(value.splitlines()) != 1:
            raise self.error(f"expected one line of text, found {len(value.splitlines())} lines")
        return value

    def flag(self) -> bool:
        """Return true or false."""
        value = self._scalar()
        if not isinstance(value, bool):
            raise self.error(f"expected true or false, found {self.found()}")
        return value

    def number(self) -> float:
        """Return a finite number."""
        value = self._scalar()
        if isinstance(value, bool | str):
            raise self.error(f"expected a number such as 1.0e-5, found {self.found()}")
        return float(value)

    def whole_number(self, example: int = 15032385536) -> int:
        """Return a whole number, which may be written with an exponent, such as 2e9."""
        value = self._scalar()
        if isinstance(value, bool | str) or value != int(value):
            message = f"expected a whole number such as {example}, found {self.found()}"
            mend = "; write a product out, there are no expressions" if "*" in str(value) else ""
            raise self.error(message + mend)
        return int(value)

    def constant(self) -> ConstantValue:
        """Return a scalar, or a (nested) list as a tuple."""
        if isinstance(self.node, yaml.SequenceNode):
            return tuple(element.constant() for element in self.elements())
        if isinstance(self.node, yaml.MappingNode):
            raise self.error("expected a number, text, true, false or a list, found a mapping")
        return self._scalar()

    def _tag(self) -> str:
        return str(self.node.tag).removeprefix(_TAG)

    def _scalar(self) -> bool | int | float | str:
        tag = self._tag()
        if not isinstance(self.node, yaml.ScalarNode) or tag not in _KINDS:
            raise self.error(f"expected a number, text, true or false, found {self.found()}")
        plain = not self.node.style
        if tag == "str":
            value = self.text()
            if plain and _ARITHMETIC.fullmatch(value):
                message = f"expected a number, found the text {value!r}: YAML computes nothing"
                raise self.error(f"{message}; write the number itself, or quote the text")
            return float(value) if plain and _NUMBER_WITHOUT_DOT.fullmatch(value) else value
        if tag != "bool" and _SURPRISING_NUMBER.fullmatch(self.node.value):
            raise self.error(f"YAML reads {self.found()} in base 8 or 60; quote it or write it out")
        build = getattr(yaml.constructor.SafeConstructor(), f"construct_yaml_{tag}")
        try:
            built: bool | int | float = build(self.node)
            finite = math.isfinite(built)
        except (ValueError, KeyError, IndexError, OverflowError) as error:
            raise self.error(f"expected {_KINDS[tag]}, found {self.node.value[:40]!r}") from error
        if not finite:
            raise self.error(f"expected a finite number, found {self.node.value}")
        return built


def _composed(text: str) -> yaml.Node | None:
    """Compose by libyaml, which is quick; by PyYAML, with better words, what that refuses."""
    # Without an anchor there is no alias.
    if yaml.__with_libyaml__ and "&" not in text:
        with contextlib.suppress(yaml.YAMLError, ValueError):
            return yaml.compose(text, Loader=yaml.CSafeLoader)
    return yaml.compose(text, Loader=_Loader)


def as_yaml(value: ConstantValue) -> str:
    """Return a constant as YAML has it, in one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**9)
    return text.removesuffix("...\n").strip()


def read_tree(path: Path, raw: bytes) -> YamlValue:
    """Return a YAML file's content as a tree of located values.

    Raises:
        ProblemError: it is not UTF-8, not YAML, empty, more than one document, or uses aliases.
    """
    text = decode(path, raw)
    language = "JSON" if path.suffix == ".json" else "YAML"  # YAML reads JSON too
    try:
        node = _composed(text)
    except yaml.MarkedYAMLError as error:
        # A bracket left open is found at the end of the file; the mistake is where it begins.
        problem = str(error.problem)
        left_open = "end of stream" in problem
        mark = (error.context_mark if left_open else None) or error.problem_mark
        context = f"{error.context}: " if error.context else ""
        mend = next((f"; {mend}" for words, mend in _MENDS.items() if words in problem), "")
        message = f"not {language}: {context}{problem}{mend}"
        raise ProblemError(path, mark.line + 1 if mark else None, None, message) from error
    except yaml.reader.ReaderError as error:
        line = 1 + text.count("\n", 0, error.position)
        name = f"U+{ord(text[error.position]):04X}"
        message = f"not {language}: the character {name} is not allowed; remove it"
        raise ProblemError(path, line, None, message) from error
    except RecursionError as error:
        raise ProblemError(path, None, None, "nested too deeply; a problem is flat") from error
    except (ValueError, OverflowError) as error:
        message = f"not {language}: a number or an escape is out of range ({error})"
        raise ProblemError(path, None, None, message) from error
    if node is None:
        raise ProblemError(path, None, None, "expected a mapping of keys to values, found nothing")
    return YamlValue(path, node, None)

"""Python source that is never run, and the names that it lacks: none is wrongly claimed."""

import concurrent.futures
import sys
import warnings

import pytest

from kernelgen.problem.python_text import NotPythonError, bound_names, parse_python, undefined_names

HONEST = {
    "comprehension": "rows = [1]\nx = [row for row in rows if row]\n",
    "nested comprehension": "x = {a: [b for b in range(a)] for a in range(3)}\n",
    "walrus in a comprehension": "if any((last := n) > 1 for n in (1, 2)):\n    y = last\n",
    "match": "def f(p):\n    match p:\n        case {'a': [x, *rest], **more}:\n"
    "            return x, rest, more\n        case int() as whole:\n            return whole\n",
    "class body": "class A:\n    n = 3\n    m = [i for i in range(n)]\n"
    "    def f(self):\n        return __class__, self\n    where = __qualname__ + __module__\n",
    "closure": "def outer():\n    k = 1\n    def inner():\n        nonlocal k\n        k += 1\n"
    "        return k\n    return inner\n",
    "global from a function": "def load():\n    global mod\n    mod = 1\n"
    "def use():\n    return mod\n",
    "used before it is defined": "def f():\n    return later\n\nlater = 3\n",
    "star import": "from math import *\nx = sqrt(2)\n",
    "conditional import": "try:\n    import numpy as np\n"
    "except ImportError:\n    np = None\nx = np\n",
    "exception name": "try:\n    pass\nexcept ValueError as error:\n    x = str(error)\n",
    "with and for": "with open('x') as f:\n    for line in f:\n        y = line\n",
    "del": "for i in range(3):\n    pass\ndel i\n",
    "dunders": "x = (__file__, __name__, __doc__, __builtins__, __spec__)\n",
    "decorator": "import functools\n@functools.cache\ndef f():\n    return 1\n",
    "postponed annotation": "from __future__ import annotations\ndef f(a: Foo, *b: Bar) -> Baz:\n"
    "    c: Qux = 1\n    return c\nx: T = 3\n",
    "local annotation": "def f():\n    a: Foo = 1\n"
    "    b: Bar[\n        int, 'x'\n    ] = 2\n    return a, b\n",
    "one-letter annotation": "def f():\n    a: T = 1\n    return a\n",
    "text annotation": "def f(a: 'Foo') -> 'Bar':\n    return a\n",
    "lambda": "f = lambda a, *b, c=1, **d: (a, b, c, d)\n",
    "non-ASCII before an annotation": "def f():\n    s = 'äöü€'; a: Foo = s\n    return a\n",
    "carriage returns": "def f():\r\n    a: Foo = 1\r\n    return a\r\n",
    "bound where nothing gets": "while True:\n    pass\nx = 1\ndef f():\n    return x\n",
    "comprehension in a lambda": "f = sorted([1], key=lambda n: [m for m in (n,) if m])\n",
    "byte order mark": "\ufeffx = 1\ny = x\n",
}


@pytest.mark.parametrize("name", HONEST)
def test_defined_names_are_not_claimed(name: str) -> None:
    text = HONEST[name]

    assert undefined_names(text, parse_python(text)) == ()


MISSING = {
    "module level": ("x = y\n", "y", 1),
    "function": ("def f():\n    a = 1\n    return a + b\n", "b", 3),
    "a local of another function": ("def f():\n    a = 1\n\ndef g():\n    return a\n", "a", 5),
    "class scope is not seen by f": ("class A:\n  k = 1\n  def f(s):\n    return k\n", "k", 4),
    "attribute of an absent module": ("def f(x):\n    return math.sqrt(x)\n", "math", 2),
    "decorator": ("@jit\ndef f():\n    pass\n", "jit", 1),
    "default": ("def f(a=eps):\n    return a\n", "eps", 1),
    "annotation of a parameter": ("def f(a: Tensor):\n    return a\n", "Tensor", 1),
    "comprehension": ("x = [r for r in rows]\n", "rows", 1),
    "same name where it is dead": ("def f():\n    a: Foo = 1\n    return Foo(a)\n", "Foo", 3),
}  # fmt: skip


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_name_is_found_with_its_line(name: str) -> None:
    text, missing, line = MISSING[name]
    uses = undefined_names(text, parse_python(text))

    assert [(use.name, use.line) for use in uses] == [(missing, line)]


def test_bound_names_are_those_of_the_module() -> None:
    text = (
        "import a.b as c\nimport d.e\nfrom f import g\nclass H:\n    i = 1\ndef j():\n    k = 1\n"
    )

    assert bound_names(text) == {"c", "d", "g", "H", "j"}


def test_what_stands_where_nothing_gets_is_bound() -> None:
    assert bound_names("while True:\n    pass\nclass ModelNew:\n    pass\n") == {"ModelNew"}


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("x = 1\ny = (\n", 2, "never closed"),
        ("x = 1\nreturn x\n", 2, "outside function"),
        ("x = 1\n\0\n", 2, "null byte"),
        ("x = " + "(" * 300 + ")" * 300, 1, "nested"),
        ("x = '\ud800'\n", 1, "surrogate"),
    ],
)
def test_what_is_not_python_is_told_with_its_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(NotPythonError, match=reason) as caught:
        parse_python(text)

    assert caught.value.line == line


def test_a_doubtful_escape_is_no_error() -> None:
    parse_python("pattern = '\\d'\n")


def test_texts_are_parsed_in_several_threads_at_once() -> None:
    """A doubtful escape is a warning, and here warnings are errors."""
    text = "\n".join(f"def f{n}(a):\n    return [a + {n}], 'a\\d'" for n in range(60))

    def names(_: int) -> int:
        parse_python(text)
        return len(bound_names(text))

    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with concurrent.futures.ThreadPoolExecutor(6) as threads:
                assert set(threads.map(names, range(1200))) == {60}
    finally:
        sys.setswitchinterval(usual_s)

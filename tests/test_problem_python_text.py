"""Python source that is parsed and never run."""

import concurrent.futures
import sys
import warnings

from kernelgen.problem.python_names import bound_names
from kernelgen.problem.python_text import parse_python


def test_texts_are_parsed_in_several_threads_at_once() -> None:
    """A doubtful escape is a warning, and here warnings are errors."""
    text = "\n".join(f"def f{n}(a):\n    return [a + {n}], 'a\\d'" for n in range(60))

    def names(_: int) -> int:
        return len(bound_names(text, parse_python(text)))

    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with concurrent.futures.ThreadPoolExecutor(6) as threads:
                assert set(threads.map(names, range(1200))) == {60}
    finally:
        sys.setswitchinterval(usual_s)

"""A candidate as a file: its text, its hash, and which problem it says it solves."""

import itertools
import re
import tokenize
from pathlib import Path

import msgspec

from kernelgen.errors import UserError
from kernelgen.problem.python_text import tokens_of
from kernelgen.problem.record import Device, digest
from kernelgen.problem.text import encodable
from kernelgen.solution.answer import code_of

# In the header of a rendered file; grading does not read it.
NO_KERNEL = "# kernels: none of its own, all of it stays in torch"
STAYS = "# stays in torch: "  # why
# Of KernelBench's runs: level, problem and sample.
GENERATED_NAME = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
# The one line of a rendered file's header that grading reads; hand-written files may carry it too.
_HEADER = re.compile(r"^#\s*problem:\s*([\w.-]+)", re.MULTILINE)
# With a space around each token; an argument that is empty is no source.
_CUDA_SIGNS = re.compile(
    r"__global__|cuda_sources\b(?! = (?:None|''|\"\"|\[ \]) [,)])|\b(?:import|from) triton\b"
)
# Types of two tokens, of which the second is a statement.
_REMARKS = {(end, tokenize.STRING) for end in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)}
_HEADER_LINES = 20
LARGEST_BYTES = 2 << 20
"""Of a file: the largest that people and models write are a tenth of that."""


class SolutionFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file under grading; `path` is as the user gave it, `sha256` of the file's bytes.

    `text` is its Python, line by line as in the file, also where that is Markdown around it.
    """

    path: Path
    text: str
    sha256: str

    @property
    def name(self) -> str:
        """Return the file's name as text, which records can carry."""
        return encodable(self.path.name)

    @property
    def declared_problem(self) -> str | None:
        """Return the problem named by a `# problem: NAME` line near the top, if any."""
        match = _HEADER.search("\n".join(self.text.lstrip().splitlines()[:_HEADER_LINES]))
        return match.group(1) if match else None

    @property
    def problem_name(self) -> str:
        """Return the name of the problem that it solves: as declared, else its own."""
        return self.declared_problem or self.path.stem

    @property
    def has_no_kernel(self) -> bool:
        """Whether the file says near the top that it has no kernel, as rendered ones do."""
        return NO_KERNEL in self.text.lstrip().splitlines()[:_HEADER_LINES]

    @property
    def wants(self) -> Device:
        """Return the device that the file's source is written for."""
        return "cuda" if _CUDA_SIGNS.search(_without_remarks(self.text)) else "cpu"


def read_solution(path: Path, data: bytes | None = None) -> SolutionFile:
    """Read a candidate; `data` takes the place of the file's content.

    Raises:
        UserError: the file cannot be read, is too large or is not UTF-8 text.
    """
    try:
        raw = read_bytes(path) if data is None else data
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    if len(raw) > LARGEST_BYTES:
        message = f"{path}: larger than {LARGEST_BYTES} bytes, which no solution needs to be"
        raise UserError(message)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"{path}: not UTF-8 text (byte {error.start}); save the file as UTF-8"
        raise UserError(message) from error
    return SolutionFile(path=path, text=code_of(text), sha256=digest(raw))


def read_bytes(path: Path) -> bytes:
    """Return a file's content, as far as it may be that of a solution, and a byte more."""
    with path.open("rb") as file:
        return file.read(LARGEST_BYTES + 1)


def _without_remarks(text: str) -> str:
    """Return a text's tokens but comments and docstrings."""
    tokens = [t for t in tokens_of(text) if t.type not in (tokenize.COMMENT, tokenize.NL)]
    types = (tokenize.NEWLINE, *(token.type for token in tokens))
    is_code = (pair not in _REMARKS for pair in itertools.pairwise(types))
    return " ".join(token.string for token in itertools.compress(tokens, is_code))

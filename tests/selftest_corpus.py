"""A corpus that a test makes for itself."""

from pathlib import Path

from click.testing import CliRunner, Result

from kernelgen.cli import program

TESTS = Path(__file__).resolve().parent
# Where the header names the verdict that a file of this text gets.
BROKEN = "# problem: tiny_polynomial\n# expect: BROKEN_CONTRACT\n"


class Folder:
    """A corpus that a test makes for itself, on the problems of the shipped one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "candidates" / "cuda").mkdir(parents=True)
        (path / "problems").symlink_to(TESTS / "problems")

    def add(self, name: str, header: str = BROKEN) -> Path:
        """Add a file that is no Python, which is seen without running anything."""
        return self.copy(name, f"{header}def forward(:\n")

    def copy(self, name: str, text: str) -> Path:
        """Add a file with this text."""
        file = self.path / "candidates" / name
        file.write_text(text, encoding="utf-8")
        return file

    def run(self, *arguments: str) -> Result:
        """Run `kernelgen selftest` on it."""
        return CliRunner().invoke(program, ["selftest", "--corpus", str(self.path), *arguments])

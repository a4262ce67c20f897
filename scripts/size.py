"""Print the size of what is committed, and with `--against REF` the difference to a commit.

Of kernelgen it is each folder's code lines, without blank ones, comments and docstrings; of tests
all lines of Python, of templates, docs and solutions all lines.
"""

import argparse
import ast
import io
import subprocess
import tarfile
import tokenize
from collections import Counter

LAYOUT = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER", "ENCODING"}


def code_lines(source: bytes) -> int:
    tokens = tokenize.tokenize(io.BytesIO(source).readline)
    code = [token for token in tokens if tokenize.tok_name[token.type] not in LAYOUT]
    lines = {line for token in code for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str):
            lines -= set(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(lines)


def sizes(commit: str) -> Counter[str]:
    folders = ("kernelgen", "templates", "tests", "docs", "solutions")
    archive = subprocess.check_output(["git", "archive", commit, "--", *folders])
    found: Counter[str] = Counter()
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            top, *below = member.name.split("/")
            file = files.extractfile(member)
            picture = member.name.endswith(".png")
            code = top in {"kernelgen", "tests"}
            if file is None or picture or (code and not member.name.endswith(".py")):
                continue
            if top == "kernelgen":
                room = "/".join([top, *below[:-1][:2]])
                found.update(dict.fromkeys((top, room), code_lines(file.read())))
            else:
                found[top] += len(file.readlines())
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", metavar="REF", help="show the difference to this commit")
    against = parser.parse_args().against
    now = sizes("HEAD")
    before = sizes(against) if against else now
    for name in sorted(now | before):
        print(f"{now[name]:8} {now[name] - before[name]:+8} {name}")

"""Text from candidates, made safe to print.

Reasons, logs, warnings and file names hold what a candidate chose to write. Printed raw, it could
move the cursor, recolour the report or reverse the reading order, and so paint its own verdict.
"""

import re
import unicodedata

# Colour and cursor sequences are decoration: they go without a trace. In order: CSI sequences, the
# strings such as a window's title, the short escapes. What is left of an unfinished one is escaped
# below. No part can match where another may start, so that the search stays linear.
_TERMINAL_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x90\x98\x9b-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-Z\\^-~]"
)
# Control, format (bidirectional overrides, zero-width), lone surrogate, private and unassigned
# characters, and the two separators that some terminals take for a line's end.
_UNPRINTABLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
# Most of a source is printable ASCII, with tabs and line ends, and is passed over at once.
_NOT_PLAIN = re.compile(r"[^\n\t -~]")
_TAB_CELLS = 4
_MAX_LINE = 2000


def printable(text: str, *, ascii_only: bool = False) -> str:
    """Return one line of text without anything that a terminal would act on.

    Returns:
        The text without terminal sequences, tabs as spaces, other unprintable characters (line ends
        among them, and what ASCII lacks if asked) as Python's escapes, cut at 2000 characters.
    """
    bare = _TERMINAL_SEQUENCE.sub("", text).expandtabs(_TAB_CELLS)
    cut = bare if len(bare) <= _MAX_LINE else bare[:_MAX_LINE] + " (cut here)"
    shown = "".join(map(_shown, cut))
    return shown.encode("ascii", "backslashreplace").decode("ascii") if ascii_only else shown


def printable_lines(text: str) -> list[str]:
    """Return the lines of a text, each made printable; blank lines are left out."""
    # A terminal sequence may span lines, so they go first. A lone carriage return starts a line
    # too: it would otherwise overwrite what stands before it.
    lines = _TERMINAL_SEQUENCE.sub("", text).splitlines()
    return [printable(line).rstrip() for line in lines if line.strip()]


def printable_block(text: str) -> str:
    """Return a whole text, lines, blanks and tabs kept, with nothing in it that acts.

    For documents, which hold what a terminal's line cannot: terminal sequences are left out, every
    other unprintable character is shown as Python's escape. Lines end with a line feed.
    """
    return visible(_TERMINAL_SEQUENCE.sub("", text))


def visible(text: str) -> str:
    """Return a text with every unprintable character shown, terminal sequences included.

    Lines are kept as Python's tokenizer counts them, so that line numbers stay true.
    """
    unified = text.replace("\r\n", "\n").replace("\r", "\n")
    return _NOT_PLAIN.sub(lambda found: _shown(found[0]), unified)


def _shown(char: str) -> str:
    if unicodedata.category(char) not in _UNPRINTABLE:
        return char
    return char.encode("unicode_escape").decode("ascii")

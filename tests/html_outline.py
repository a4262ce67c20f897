"""Reads a page as a browser would, and complains of what a browser would mend in silence."""

from html.parser import HTMLParser

VOID = {"meta", "link", "input", "wbr", "br", "img", "hr"}


class Outline(HTMLParser):
    """The contents of a page: elements, addresses, text; and each mistake in its structure."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.mistakes: list[str] = []
        self.shape: set[tuple[str, ...]] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.text: list[str] = []
        self.count: dict[str, int] = {}
        self._open: list[str] = []
        self.feed(page)
        self.close()
        self.mistakes += [f"<{tag}> is not closed" for tag in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self._note(tag, attrs)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element without content, as drawings have."""
        self._note(tag, attrs)
        if "svg" not in self._open and tag != "svg":
            self.mistakes.append(f"<{tag}/> outside a drawing")

    def handle_endtag(self, tag: str) -> None:
        """Check that it closes what was opened last."""
        if not self._open or self._open.pop() != tag:
            self.mistakes.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        """Keep the text of the page itself."""
        if not {"style", "script"} & set(self._open):
            self.text.append(data)

    @property
    def words(self) -> str:
        """All text."""
        return "".join(self.text)

    def _note(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if len(given) < len(attrs):
            self.mistakes.append(f"<{tag}> has an attribute twice")
        self.shape.add((tag, *sorted(given)))
        self.count[tag] = self.count.get(tag, 0) + 1
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name == "href" and tag == "a"]
        self.loads += [
            value or ""
            for name, value in attrs
            if name in ("src", "srcset", "data", "action", "xlink:href")
            or (name == "href" and tag != "a")
        ]

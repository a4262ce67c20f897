"""The page in a real browser: what it shows, by mouse and by keyboard, in light and in dark."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from browser import chromium
from report_runs import every_status, full, harmful, passed, run_of, wrong

from kernelgen.grading.verdict import Verdict
from kernelgen.report.html import document
from kernelgen.report.json_report import Recorded

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

Scheme = Literal["light", "dark"]
VERDICTS = (passed("b/slow.py"), full("a/fast.py"), wrong(), *every_status().verdicts[1:])

# Every text that is seen, and every bar, against what is behind it: WCAG 2.1, 1.4.3 and 1.4.11.
CONTRAST = """() => {
  const parse = (colour) => (colour.match(/[\\d.]+/g) || []).map(Number);
  const light = (colour) => {
    const [r, g, b] = parse(colour).map((part) => part / 255)
      .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const parts = parse(getComputedStyle(at).backgroundColor);
      if (parts.length === 3 || parts[3] === 1) return getComputedStyle(at).backgroundColor;
    }
    return "rgb(255, 255, 255)";
  };
  const ratio = (one, other) => {
    const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (element.closest("script, title")) continue;
    const style = getComputedStyle(element);
    const ink = element.closest("svg") ? style.fill : style.color;
    found.push(["text", ratio(ink, behind(element)), walker.currentNode.data.trim().slice(0, 30)]);
  }
  for (const bar of document.querySelectorAll("svg rect")) {
    if (bar.checkVisibility()) {
      found.push(["bar", ratio(getComputedStyle(bar).fill, behind(bar)), bar.className.baseVal]);
    }
  }
  return found;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Return a browser for all tests here."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Return a function that writes a page of verdicts and returns its address."""

    def written(*verdicts: Verdict) -> str:
        place = tmp_path_factory.mktemp("page") / "page.html"
        place.write_bytes(
            document.page([Recorded(name="run.json", run=run_of(*verdicts))]).encode()
        )
        return place.as_uri()

    return written


@pytest.fixture(scope="module")
def address(write: Callable[..., str]) -> str:
    """Return the address of a page with everything on it."""
    return write(*VERDICTS)


@contextmanager
def opened(
    browser: "Browser", address: str, *, width: int = 1280, scheme: Scheme = "light", **more: Any
) -> Iterator["Page"]:
    """Open a page, and fail if it says anything to the console or asks for anything else."""
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, **more
    )
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.on("requestfailed", lambda request: said.append(f"failed: {request.url}"))
    page.on("request", lambda request: said.append(f"asked: {request.url}"))
    page.goto(address)
    yield page
    own = {f"asked: {address.partition('#')[0]}", "asked: data:,"}
    context.close()
    assert [line for line in said if line not in own] == []


def names(page: "Page") -> list[str]:
    """Return the solutions in the order of the table's rows that are shown."""
    return page.locator("table.all tbody tr:visible th a").all_inner_texts()


def unfold(page: "Page") -> None:
    """Open everything that can be opened."""
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true })")


def test_every_verdict_is_shown(browser: "Browser", address: str) -> None:
    with opened(browser, address) as page:
        assert names(page) == [verdict.solution for verdict in VERDICTS]
        assert page.locator("details.solution").count() == len(VERDICTS)
        assert page.locator("h1").inner_text() == f"2 of {len(VERDICTS)} passed on NVIDIA H200"


def test_a_click_sorts_and_another_turns_it_round(browser: "Browser", address: str) -> None:
    with opened(browser, address) as page:
        heading = page.get_by_role("columnheader", name="time ms")
        heading.get_by_role("button").click()
        assert names(page)[:2] == ["a/fast.py", "b/slow.py"]
        assert heading.get_attribute("aria-sort") == "ascending"
        heading.get_by_role("button").click()
        assert names(page)[:2] == ["b/slow.py", "a/fast.py"], "what has no time stays last"
        assert heading.get_attribute("aria-sort") == "descending"
        assert page.locator("th[aria-sort]").count() == 1


def test_the_keyboard_reaches_and_sorts(browser: "Browser", address: str) -> None:
    with opened(browser, address) as page:
        page.keyboard.press("Tab")
        skip = page.locator(":focus")
        assert skip.inner_text() == "Skip to the results"
        box = skip.bounding_box()
        assert box is not None
        assert box["x"] >= 0, "it is seen once it is reached"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        for _ in range(6):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == "solution":
                break
        assert page.evaluate("document.activeElement.tagName") == "BUTTON"
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", "the focus is seen"
        page.keyboard.press("Enter")
        upward = names(page)
        assert upward[:2] == ["a/fast.py", "b/slow.py"]
        page.keyboard.press("Space")
        assert names(page) == upward[::-1]


def test_a_filter_keeps_what_matches_and_counts_it(browser: "Browser", address: str) -> None:
    with opened(browser, address) as page:
        page.get_by_label("Show only").fill("timeout")
        assert names(page) == ["candidates/timeout.py"]
        assert page.locator("output").inner_text() == f"1 of {len(VERDICTS)}"
        page.get_by_label("Show only").fill("")
        assert len(names(page)) == len(VERDICTS)


def test_a_link_opens_the_solution_s_section(browser: "Browser", address: str) -> None:
    with opened(browser, address) as page:
        section = page.locator("#v-a-fast")
        assert not section.is_visible()
        page.locator("table.all").get_by_role("link", name="a/fast.py").click()
        assert page.url.endswith("#v-a-fast")
        assert section.get_by_text("Clocks", exact=True).is_visible()
        assert section.evaluate("it => it.getBoundingClientRect().top") < 400
        page.go_back()


def test_an_address_with_a_fragment_opens_it_too(browser: "Browser", address: str) -> None:
    with opened(browser, f"{address}#v-a-fast") as page:
        assert page.locator("#v-a-fast").is_visible()


def test_without_javascript_it_reads(browser: "Browser", address: str) -> None:
    with opened(browser, f"{address}#v-a-fast", java_script_enabled=False) as page:
        assert page.locator("#v-a-fast").get_by_text("Clocks", exact=True).is_visible()
        assert not page.locator(".filter").is_visible(), "what would do nothing is not there"
        assert page.locator("table.all button").count() == 0
        assert page.get_by_role("columnheader", name="time ms").is_visible()


@pytest.mark.parametrize("width", [360, 700, 1280])
def test_nothing_scrolls_the_page_sideways(
    browser: "Browser", write: Callable[..., str], width: int
) -> None:
    long = full("very_long_name" * 12 + "/" + "solution" * 20 + ".py", problem="p" * 150)
    with opened(browser, write(*VERDICTS, *harmful(), long), width=width) as page:
        unfold(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        boxes = page.locator(".scroll:visible").all()
        assert len(boxes) > 10
        assert all(box.get_attribute("tabindex") == "0" for box in boxes)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_told_from_what_is_behind_it(
    browser: "Browser", address: str, scheme: Scheme
) -> None:
    with opened(browser, address, scheme=scheme) as page:
        unfold(page)
        found = page.evaluate(CONTRAST)
    assert len([kind for kind, *_ in found if kind == "bar"]) == 5
    assert len([kind for kind, *_ in found if kind == "text"]) > 500
    least = {"text": 4.5, "bar": 3.0}
    assert [
        (kind, round(ratio, 2), what) for kind, ratio, what in found if ratio < least[kind]
    ] == []


def test_light_and_dark_are_not_the_same(browser: "Browser", address: str) -> None:
    papers = []
    for scheme in ("light", "dark"):
        with opened(browser, address, scheme=scheme) as page:
            papers.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    bright = [sum(map(int, re.findall(r"\d+", paper))) for paper in papers]
    assert bright[0] > 700
    assert bright[1] < 100


def test_a_drawing_is_as_wide_as_its_place_and_says_what_it_shows(
    browser: "Browser", address: str
) -> None:
    with opened(browser, f"{address}#v-a-fast") as page:
        images = page.get_by_role("img")
        assert images.count() == 8
        for image in images.all():
            assert image.locator("title").text_content()
        bar = page.get_by_role("img", name="2.250", exact=False).first
        box = bar.bounding_box()
        assert box is not None
        assert box["width"] > 200
        # The bar of 2.25 reaches further right than the whiskers of 1 do.
        reach = bar.locator("rect").evaluate("it => it.getBoundingClientRect().right")
        one = bar.locator(".one").evaluate("it => it.getBoundingClientRect().left")
        assert reach > one + 50


def test_harm_does_nothing(browser: "Browser", write: Callable[..., str]) -> None:
    with opened(browser, write(*harmful())) as page:
        dialogs: list[str] = []
        # Nobody dismisses it: playwright would, only if none listened.
        page.on("dialog", lambda dialog: dialogs.append(dialog.message))
        unfold(page)
        page.get_by_role("columnheader", name="status").get_by_role("button").click()
        assert dialogs == []
        assert page.locator("img, iframe, object").count() == 0
        assert page.locator("script").count() == 1


def test_paper_gets_all_of_it(browser: "Browser", address: str, tmp_path: Path) -> None:
    with opened(browser, address, scheme="dark") as page:
        folded = page.locator("details.solution:not([open])").count()
        assert folded == len(VERDICTS)
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details.solution:not([open])").count() == 0
        page.emulate_media(media="print", color_scheme="dark")
        ink = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ink == "rgb(255, 255, 255)", "dark is for screens"
        assert not page.locator("nav").is_visible()
        page.emulate_media(media="screen")
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator("details.solution:not([open])").count() == folded
        page.pdf(path=tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")

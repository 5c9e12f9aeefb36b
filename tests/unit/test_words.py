"""Documents: short enough to read, linked, and with one title."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md"))]

README_WORDS = 900
"""Words that can be read in six minutes."""

each_page = pytest.mark.parametrize(
    "page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES]
)


def without_blocks(page: Path) -> str:
    """Return a page without code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.S | re.M)


def without_targets(page: Path) -> str:
    """Return a page without code blocks and link targets."""
    return re.sub(r"\]\([^)]*\)", "]", without_blocks(page))


def test_the_readme_is_short() -> None:
    words = [
        word for word in without_targets(PAGES[0]).split() if re.search(r"\w", word)
    ]
    assert len(words) <= README_WORDS


def test_the_glossary_is_in_order_and_names_each_word_once() -> None:
    text = (DOCS / "glossary.md").read_text("utf-8")
    listed = re.findall(r"^\| (.+?) \| .+ \|$", text, re.M)[1:]
    assert len(listed) > 20
    assert listed == sorted(listed, key=str.lower)
    assert len(listed) == len(set(listed))


@each_page
def test_a_page_is_linked_from_another_one(page: Path) -> None:
    if page == PAGES[0]:
        return
    linked = {
        (other.parent / target).resolve()
        for other in PAGES
        if other != page
        for target in re.findall(r"\]\(([^)#:]+)", other.read_text("utf-8"))
    }
    assert page in linked


@each_page
def test_a_page_starts_with_its_only_title(page: Path) -> None:
    text = re.sub(r"^<!--.*-->\n\n", "", without_blocks(page))
    assert text.startswith("# ")
    assert len(re.findall(r"^# ", text, re.M)) == 1

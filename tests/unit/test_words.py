"""The documents: short enough, each page found, one word for one thing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md"))]

README_WORDS = 900
"""So many can be read in six minutes."""

each_page = pytest.mark.parametrize(
    "page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES]
)


def without_blocks(page: Path) -> str:
    """A page without blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.S | re.M)


def without_targets(page: Path) -> str:
    """The same without what links point to."""
    return re.sub(r"\]\([^)]*\)", "]", without_blocks(page))


def words_to_avoid() -> dict[str, str]:
    """By each of them, the word that stands for it in the glossary."""
    rows = re.findall(
        r"^\| (.+?) \| .+? \| (.+?) \|$",
        (DOCS / "glossary.md").read_text("utf-8"),
        re.M,
    )
    return {
        avoided: word for word, listed in rows[1:] for avoided in listed.split(", ")
    }


def test_the_readme_can_be_read_to_the_end() -> None:
    words = [
        word for word in without_targets(PAGES[0]).split() if re.search(r"\w", word)
    ]
    assert len(words) <= README_WORDS


@each_page
def test_a_page_uses_the_words_of_the_glossary(page: Path) -> None:
    prose = re.sub(r"`[^`]*`", "`", without_targets(page))
    text = " ".join(prose.split())
    if page.name == "glossary.md":
        return
    for avoided, word in words_to_avoid().items():
        found = re.search(rf"\b{re.escape(avoided)}s?\b", text)
        assert not found, f"{avoided!r} is called {word!r}"


def test_the_glossary_is_in_order_and_names_each_word_once() -> None:
    text = (DOCS / "glossary.md").read_text("utf-8")
    listed = re.findall(r"^\| (.+?) \|", text, re.M)[1:]
    assert len(words_to_avoid()) > 20
    assert listed == sorted(listed, key=str.lower)
    assert len(listed) == len(set(listed))
    assert not set(listed) & set(words_to_avoid())


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
def test_a_page_has_one_title_and_it_comes_first(page: Path) -> None:
    text = re.sub(r"^<!--.*-->\n\n", "", without_blocks(page))
    assert text.startswith("# ")
    assert len(re.findall(r"^# ", text, re.M)) == 1

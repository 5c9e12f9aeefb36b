"""Pages: the generated ones are up to date, and all are linked and have one title."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import agentcore_patches
from agentcore_patches import errors
from agentcore_patches.landing.http import metrics

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md"))]

README_WORDS = 900
"""Words that can be read in six minutes."""


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pages", DOCS / "pages.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_follows_from_the_code_is_up_to_date(pages: ModuleType) -> None:
    for file, text in pages.made().items():
        assert file.read_text("utf-8") == text, "run `make docs`, then read `git diff`"


def test_the_pages_have_every_error_and_exit_code() -> None:
    page, cli = (
        (DOCS / f"reference/{name}.md").read_text("utf-8") for name in ("python", "cli")
    )
    for error in errors.AgentcoreError.__subclasses__():
        assert f"| `{error.__name__}` | {error.exit_code} | `{error.kind}` |" in page
        assert re.search(rf"^ +{error.exit_code}  ", cli, re.M)


@pytest.mark.parametrize("name", ["apply", "status", "revert", "apply_patch"])
def test_the_python_page_has_each_functions_signature(name: str) -> None:
    page = " ".join((DOCS / "reference/python.md").read_text("utf-8").split())
    signature = inspect.signature(getattr(agentcore_patches, name))
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]
    bare = signature.replace(
        parameters=parameters, return_annotation=inspect.Signature.empty
    )
    assert f"`{name}{bare} -> {signature.return_annotation}`" in page


def test_the_page_of_metrics_lists_each_one_with_its_labels_and_values() -> None:
    page = (DOCS / "reference/metrics.md").read_text("utf-8")
    found = re.findall(r"^\| `agentcore_.+", page, re.M)
    rows = [[cell.strip() for cell in row.split("|")[1:3]] for row in found]
    assert [name for name, _ in rows] == [f"`{one.name}`" for one in metrics.METRICS]
    for metric, (_, labels) in zip(metrics.METRICS, rows, strict=True):
        of_labels = {*metric.labels}.union(*metric.labels.values())
        assert {*re.findall(r"`([^`]+)`", labels)} == of_labels, metric.name


def test_the_picture_of_retokenization_has_the_ids_that_its_page_prints() -> None:
    page, picture = (
        (DOCS / f"explanation/retokenization.{kind}").read_text("utf-8")
        for kind in ("md", "svg")
    )
    [printed] = re.findall(r"^```text\n(.*?)^```", page, re.S | re.M)
    assert re.findall(r">(\d+)<", picture) == re.findall(r"\d+", printed)


def without_blocks(page: Path) -> str:
    """Return a page without code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.S | re.M)


def test_the_readme_is_short() -> None:
    text = re.sub(r"\]\([^)]*\)", "]", without_blocks(PAGES[0]))
    assert (
        len([word for word in text.split() if re.search(r"\w", word)]) <= README_WORDS
    )


def test_the_glossary_is_in_order_and_names_each_word_once() -> None:
    text = (DOCS / "glossary.md").read_text("utf-8")
    listed = re.findall(r"^\| (.+?) \| .+ \|$", text, re.M)[1:]
    assert len(listed) > 20
    assert listed == sorted({*listed}, key=str.lower)


def test_a_page_has_one_title_and_is_linked_from_another_one() -> None:
    linked = {
        (page.parent / target).resolve()
        for page in PAGES
        for target in re.findall(r"\]\(([^)#:]+)", page.read_text("utf-8"))
        if (page.parent / target).resolve() != page
    }
    assert {*PAGES[1:]} <= linked
    for page in PAGES:
        text = re.sub(r"^<!--.*-->\n\n", "", without_blocks(page))
        assert text.startswith("# "), page
        assert len(re.findall(r"^# ", text, re.M)) == 1, page

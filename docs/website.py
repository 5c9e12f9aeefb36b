"""Builds the pages of the documentation as a site with search, in `build/site`.

    python docs/website.py

It needs the dependency group `site`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
STAGED = ROOT / "build/site-pages"
SITE = ROOT / "build/site"
CONFIG = ROOT / "docs/mkdocs.yml"

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)[^)]*\)")


def pages() -> list[Path]:
    """Return the pages, from the root of the project."""
    top = (ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING"))
    return [*top, ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]


def for_the_site(text: str, folder: Path) -> str:
    """Return a page of a folder as the site needs it.

    HTML comments are left out. A link to a file that is no page becomes the file's path.
    """
    text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL)

    def link(found: re.Match[str]) -> str:
        label, target = found.groups()
        if "://" in target or target.endswith(".md"):
            return found[0]
        path = (folder / target).resolve(strict=True).relative_to(ROOT)
        return label if label.strip("`") == path.name else f"{label} (`{path}`)"

    return _LINK.sub(link, text)


def stage() -> None:
    """Write the pages and pictures for mkdocs."""
    shutil.rmtree(STAGED, ignore_errors=True)
    pictures = (ROOT / "docs/explanation").glob("*.[sp][vn]g")
    for page in [*pages(), *pictures, ROOT / "docs/site.css"]:
        target = STAGED / page.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix != ".md":
            shutil.copyfile(page, target)
        else:
            text = for_the_site(page.read_text("utf-8"), page.parent)
            target.write_text(text, "utf-8")


if __name__ == "__main__":
    stage()
    # Not --quiet, which would hide the warnings from --strict.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean"]
    subprocess.run(
        [*command, "--config-file", CONFIG],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    # A site may be below a path of its host.
    missing = SITE / "404.html"
    text = missing.read_text("utf-8")
    missing.write_text(
        re.sub(r'((?:href|src)="|"(?:base|search)": ")/', r"\1./", text), "utf-8"
    )

"""The pages of the documentation, which are part of the package."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from agentcore_patches.errors import refuse_unknown

_PACKAGED = Path(__file__).parents[1] / "pages"
"""The folder of the pages in an installed package; setup.py copies them there."""
_CHECKOUT = Path(__file__).parents[2] / "docs"

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]*)\)")


@dataclass(frozen=True)
class Page:
    """One page.

    Attributes:
        topic: its name for `agentcore-patch docs`.
        title: its first heading.
        file: where it is.
    """

    topic: str
    title: str
    file: Path

    def markdown(self) -> str:
        """Return the page's text; links to other pages become their topics."""
        text = self.file.read_text("utf-8")
        text = re.sub(r"<!--.*?-->\n*", "", text, flags=re.DOTALL)
        topics = {page.topic for page in pages()} - {self.topic}

        def link(found: re.Match[str]) -> str:
            picture, label, target = found.groups()
            if picture:
                return ""
            if "://" in target:
                return found[0]
            topic = Path(target.partition("#")[0]).stem
            return f"{label} (`docs {topic}`)" if topic in topics else label

        return _LINK.sub(link, text)


def pages() -> tuple[Page, ...]:
    """Return all pages, folder by folder."""
    folder = _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT
    files = sorted(folder.rglob("*.md"), key=lambda file: (file.parent, file.stem))
    return tuple(
        Page(file.stem, _title(file), file) for file in files if file.stem != "README"
    )


def page(topic: str) -> Page:
    """Return the page with this topic.

    Raises:
        UsageError: there is none.
    """
    known = {page.topic: page for page in pages()}
    refuse_unknown([topic], [*known], "topic", "topics")
    return known[topic]


def _title(file: Path) -> str:
    found = re.search(r"^# (.+)$", file.read_text("utf-8"), re.MULTILINE)
    return found[1].replace("`", "") if found else file.stem

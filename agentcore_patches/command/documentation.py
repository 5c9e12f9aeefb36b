"""The pages of the documentation, which are part of the package."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from agentcore_patches.errors import PROGRAM, UsageError

_PACKAGED = Path(__file__).parents[1] / "pages"
"""The folder of the pages in an installed package; setup.py copies them there."""
_CHECKOUT = Path(__file__).parents[2] / "docs"

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]*)\)")


@dataclass(frozen=True)
class Page:
    """One page.

    Attributes:
        topic: its name for `agentcore-patch docs`.
        section: the folder that it is in; empty for the top folder.
        title: its first heading.
        file: where it is.
    """

    topic: str
    section: str
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
    """Return all pages, the ones in the top folder first."""
    folder = _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT
    found = [
        Page(
            file.stem, "/".join(file.relative_to(folder).parts[:-1]), _title(file), file
        )
        for file in folder.rglob("*.md")
        if file.stem != "README"
    ]
    return tuple(sorted(found, key=lambda page: (page.section, page.topic)))


def page(topic: str) -> Page:
    """Return the page with this topic.

    Raises:
        UsageError: there is none.
    """
    known = {page.topic: page for page in pages()}
    if topic in known:
        return known[topic]
    from difflib import get_close_matches

    close = get_close_matches(topic.lower().replace("_", "-"), known, n=1)
    raise UsageError(
        f"There is no topic named {topic}.",
        hint="".join(f"Did you mean {name}? " for name in close)
        + f"`{PROGRAM} docs` lists the topics.",
    )


def _title(file: Path) -> str:
    found = re.search(r"^# (.+)$", file.read_text("utf-8"), re.MULTILINE)
    return found[1].replace("`", "") if found else file.stem

"""Settings that `setup.cfg` cannot express: the packages, and the page on an index.

`README.md` is the long description. An index shows it without the files beside it, so
there each link to one of these becomes the file's name, and each picture is left out.
"""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import find_packages, setup

REPOSITORY = ""
"""URL of the files on the web, up to the slash before `docs/`; links use it if set."""


def long_description(readme: str, repository: str = REPOSITORY) -> str:
    """The README, to be read without the files beside it."""
    text = re.sub(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n*", "", readme)

    def link(found: re.Match[str]) -> str:
        label, target = found.groups()
        if repository:
            return f"[{label}]({repository}/{target})"
        file = target.partition("#")[0]
        return label if label.strip("`") == file else f"{label} (`{file}`)"

    return re.sub(r"\[([^\]]*)\]\((?!https?:|#)([^)]*)\)", link, text)


if __name__ == "__main__":
    setup(
        long_description=long_description(Path("README.md").read_text("utf-8")),
        packages=[
            *find_packages(include=["agentcore_patches", "agentcore_patches.*"]),
            *find_packages(
                "verify", include=["agentcore_verify", "agentcore_verify.*"]
            ),
        ],
        project_urls={"Source": REPOSITORY} if REPOSITORY else {},
    )

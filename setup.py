"""Settings that `setup.cfg` cannot express: packages, documentation, the index page.

`README.md` is the long description. An index shows it without the files beside it, so
there each link to one of these becomes the file's name, and each picture is left out.
"""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

REPOSITORY = ""
"""URL of the files on the web, up to the slash before `docs/`; links use it if set."""


PAGES = "agentcore_patches/pages"
"""Where a wheel has the pages of docs/, for `agentcore-patch docs`."""


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


class BuildWithPages(build_py):
    """Builds the package with the pages of the documentation in it."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return  # The pages are read where they are.
        for page in sorted(Path("docs").rglob("*.md")):
            target = Path(self.build_lib, PAGES, page.relative_to("docs"))
            self.mkpath(str(target.parent))
            self.copy_file(str(page), str(target))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        pages = Path(self.build_lib, PAGES).rglob("*.md")
        return [*super().get_outputs(include_bytecode), *map(str, sorted(pages))]


if __name__ == "__main__":
    setup(
        cmdclass={"build_py": BuildWithPages},
        long_description=long_description(Path("README.md").read_text("utf-8")),
        packages=[
            *find_packages(include=["agentcore_patches", "agentcore_patches.*"]),
            *find_packages(
                "verify", include=["agentcore_verify", "agentcore_verify.*"]
            ),
        ],
        project_urls={"Source": REPOSITORY} if REPOSITORY else {},
    )

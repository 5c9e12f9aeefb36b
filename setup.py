"""Settings that `setup.cfg` cannot express: packages, documentation, the index page.

`README.md` is the long description. An index shows it without the files beside it, so
there each link to one of these becomes the file's name, and each picture is left out.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

SETTINGS = ConfigParser()
SETTINGS.read("setup.cfg", "utf-8")
URLS = dict(
    line.split(" = ")
    for line in SETTINGS["metadata"]["project_urls"].split("\n")
    if line
)
VERSION_FILE = "agentcore_patches/_version.py"
_VERSION = runpy.run_path(VERSION_FILE)
VERSION: str = _VERSION["full_version"]()

PAGES = "agentcore_patches/pages"
"""Where a wheel has the pages of docs/, for `agentcore-patch docs`."""


def long_description(readme: str, source: str | None = URLS.get("Source")) -> str:
    """The README, to be read without the files beside it."""
    text = re.sub(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n*", "", readme)

    def link(found: re.Match[str]) -> str:
        label, target = found.groups()
        if source:
            return f"[{label}]({source}/blob/HEAD/{target})"
        file = target.partition("#")[0]
        return label if label.strip("`") == file else f"{label} (`{file}`)"

    return re.sub(r"\[([^\]]*)\]\((?!https?:|#)([^)]*)\)", link, text)


def write_version(folder: str) -> None:
    """Write the version with its commit into a copy, which has no git to ask."""
    file = Path(folder, VERSION_FILE)
    text = Path(VERSION_FILE).read_text("utf-8")
    file.unlink()  # It may be a hard link to the source.
    file.write_text(
        text.replace(f'"{_VERSION["__version__"]}"', f'"{VERSION}"'), "utf-8"
    )


class SourceWithVersion(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        write_version(base_dir)


class BuildWithPages(build_py):
    """Builds the package with its version, and the pages of the documentation in it."""

    def run(self) -> None:
        if self.editable_mode:
            super().run()  # The pages are read where they are; git knows the commit.
            return
        # An earlier build may have left modules that are gone.
        for package in ("agentcore_patches", "agentcore_verify"):
            shutil.rmtree(Path(self.build_lib, package), ignore_errors=True)
        super().run()
        write_version(self.build_lib)
        for page in sorted(Path("docs").rglob("*.md")):
            target = Path(self.build_lib, PAGES, page.relative_to("docs"))
            self.mkpath(str(target.parent))
            self.copy_file(str(page), str(target))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        pages = Path(self.build_lib, PAGES).rglob("*.md")
        return [*super().get_outputs(include_bytecode), *map(str, sorted(pages))]


if __name__ == "__main__":
    # Wheels have the permissions of the files that are written here.
    os.umask(0o022)
    setup(
        version=VERSION,
        cmdclass={"build_py": BuildWithPages, "sdist": SourceWithVersion},
        long_description=long_description(Path("README.md").read_text("utf-8")),
        packages=[
            *find_packages(include=["agentcore_patches", "agentcore_patches.*"]),
            *find_packages(
                "verify", include=["agentcore_verify", "agentcore_verify.*"]
            ),
        ],
    )

"""The reference pages that follow from the code are as the code is now."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import re
from pathlib import Path
from types import ModuleType

import click
import pytest

import agentcore_patches
from agentcore_patches import errors, results
from agentcore_patches.cli import commands
from agentcore_verify import checks
from agentcore_verify.command import verify

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pages", DOCS / "pages.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["cli.md", "checks.md", "json.md"])
def test_a_page_is_as_the_code_is_now(pages: ModuleType, name: str) -> None:
    kept = (DOCS / "reference" / name).read_text("utf-8")
    assert kept == pages.page(name), "run `make docs`, then read `git diff`"


def test_a_page_that_changed_is_written(pages: ModuleType, tmp_path: Path) -> None:
    assert [file.name for file in pages.write(tmp_path)] == [*pages.PAGES]
    assert pages.write(tmp_path) == []
    (tmp_path / "cli.md").write_text("old")
    assert pages.write(tmp_path) == [tmp_path / "cli.md"]


def test_the_page_of_checks_has_each_of_them(pages: ModuleType) -> None:
    page = pages.page("checks.md")
    for name in checks.NAMES:
        assert f"\n### {name}\n" in page


@pytest.mark.parametrize(
    ("name", "command"), {**commands.commands, "verify": verify}.items()
)
def test_the_page_of_the_command_has_every_option(
    pages: ModuleType, name: str, command: click.Command
) -> None:
    _, _, after = pages.page("cli.md").partition(f"\n## {name}\n")
    printed = after.partition("\n## ")[0]
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert re.search(rf"^  .*{parameter.opts[-1]}\b", printed, re.M)


def test_the_page_of_the_command_has_every_exit_code(pages: ModuleType) -> None:
    page = pages.page("cli.md")
    for error in errors.AgentcoreError.__subclasses__():
        assert re.search(rf"^ +{error.exit_code}  ", page, re.M)


@pytest.mark.parametrize("name", ["apply", "status", "revert", "apply_patch"])
def test_the_page_on_python_has_each_function_as_it_is(name: str) -> None:
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


@pytest.mark.parametrize(
    ("title", "result"),
    [
        ("apply", results.ApplyResult),
        ("status", results.StatusResult),
        ("revert", results.RevertResult),
    ],
)
def test_the_page_of_documents_has_each_attribute_of_a_result(
    pages: ModuleType, title: str, result: type
) -> None:
    _, _, after = pages.page("json.md").partition(f"\n## {title}\n")
    document = after.partition("\n## ")[0]
    for field in dataclasses.fields(result):
        name = "sglang" if field.name == "install" else field.name
        assert f"\n| `{name}` |" in document


def test_the_page_on_python_has_every_error() -> None:
    page = (DOCS / "reference/python.md").read_text("utf-8")
    for error in errors.AgentcoreError.__subclasses__():
        assert f"| `{error.__name__}` | {error.exit_code} | `{error.kind}` |" in page

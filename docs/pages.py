"""Make the pages of `docs/reference` that follow from the code.

    python -m docs.pages

Prints the name of each changed page.
"""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import Any

from agentcore_patches import listing, results
from agentcore_patches._version import __version__, full_version
from agentcore_patches.edits import Check, Land, ScopedEdit
from agentcore_patches.patches import registry
from agentcore_patches.patches.releases import SUPPORTED_VERSIONS
from agentcore_patches.shell.json_output import KEYS
from agentcore_verify import checks as all_checks
from agentcore_verify import results as verify_results
from agentcore_verify.audit import results as audit_results
from agentcore_verify.contract import LEVELS
from tests.helpers.documents import Error, Nodes, keys

REFERENCE = Path(__file__).parent / "reference"
CONFORMANCE = REFERENCE / "conformance.json"
"""The record of `docs/conformance.py`."""

README = Path(__file__).parents[1] / "README.md"
FACTS, FACTS_OF = Path(registry.__file__).parents[1] / "landing/release.py", "0.5.9"
"""The module of a release's facts, and the release whose facts the repository has."""

START, END = "<!-- made by docs/pages.py -->", "<!-- /made -->"
"""The marks around the part of a page that is made here."""


def _joined(*parts: str) -> str:
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


# The checks of `verify`.


def checks() -> str:
    rows = []
    for check in map(all_checks.get, all_checks.NAMES):
        summary, _, text = _backticks(check.text).partition("\n")
        numbers = ", ".join(map(str, check.rules))
        proof = f"**{summary}** {' '.join(text.split())}"
        rows.append((f"`{check.name}`", numbers, proof))
    return _table(("check", "rules", "what it proves"), rows)


def _backticks(text: str) -> str:
    """Field names in code spans, so that Markdown does not read their underscores."""
    return re.sub(r"(?<![`\w/])([a-z]+(?:_[a-z]+)+)(?![\w`])", r"`\1`", text)


# The JSON documents.

DOCUMENTS: dict[Any, str] = {
    results.ApplyResult: "apply",
    results.StatusResult: "status",
    results.RevertResult: "revert",
    listing.PatchList: "list",
    listing.EditList: "list --edits",
    verify_results.Report: "verify",
    audit_results.Audit: "audit",
    Nodes: "apply and status with --ray",
    Error: "any command that fails",
}


def documents() -> str:
    titles = dict(DOCUMENTS)
    kinds = [*DOCUMENTS]
    for kind in kinds:
        for inner in chain(*map(_classes, keys(kind).values())):
            if inner in kinds:
                titles.setdefault(inner, inner.__name__)
            else:
                kinds.append(inner)
    parts = []
    for kind, title in titles.items():
        parts.append(f"## {title}")
        if kind not in DOCUMENTS:
            parts.append((inspect.getdoc(kind) or "").partition("\n")[0])
        parts.append(_table(("key", "type", "meaning"), _keys(kind, titles)))
    return _joined(*parts)


def _keys(kind: Any, titles: dict[Any, str], within: str = "") -> Iterator[list[str]]:
    """Yield a row for each key, also for those of types that only this one has."""
    texts = {KEYS.get(name, name): text for name, text in _attributes(kind)}
    for key, hint in keys(kind).items():
        yield [f"`{within}{key}`", _type(hint, titles), _meaning(key, texts, kind)]
        many = "[]" if typing.get_origin(hint) in (list, tuple) else ""
        for inner in _classes(hint):
            if inner not in titles:
                yield from _keys(inner, titles, f"{within}{key}{many}.")


def _classes(hint: Any) -> list[Any]:
    """The result classes in a type."""
    if isinstance(hint, type) and is_dataclass(hint):
        return [hint]
    return [*chain(*map(_classes, typing.get_args(hint)))]


def _meaning(key: str, texts: dict[str, str], explained: Any) -> str:
    described = getattr(explained, key, None)
    found = inspect.getdoc(described) if isinstance(described, property) else ""
    text = texts.get(key) or " ".join((found or "").split())
    return re.sub(r"\bNone\b", "null", text).removesuffix(".")


def _attributes(explained: Any) -> Iterator[tuple[str, str]]:
    """Yield each attribute below `Attributes:` of a docstring, with its text."""
    _, _, listed = (inspect.getdoc(explained) or "").partition("Attributes:\n")
    for found in re.finditer(
        r"^    (\w+(?:, \w+)*): (.*(?:\n {8}.*)*)", listed, re.MULTILINE
    ):
        for name in found[1].split(", "):
            yield name, " ".join(found[2].split())


def _type(hint: Any, titles: dict[Any, str]) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if _classes(hint) == [hint]:
        if hint not in titles:
            return "object"
        return f"[{titles[hint]}](#{titles[hint].lower().replace(' ', '-')})"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(argument, titles) for argument in arguments)
    if origin is typing.Literal:
        return " or ".join(f'`"{argument}"`' for argument in arguments)
    if origin in (list, tuple):
        return f"list of {_type(arguments[0], titles)}"
    if origin is not None:
        return f"object of {_type(arguments[1], titles)}"
    if issubclass(hint, Enum):
        return " or ".join(f'`"{member.value}"`' for member in hint)
    return NAMES[hint]


NAMES: Mapping[Any, str] = {
    str: "string",
    Path: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


# The verdicts on servers.


def conformance() -> str:
    """The verdicts that `docs/conformance.py` recorded."""
    rows = json.loads(CONFORMANCE.read_text("utf-8"))
    judged = [row for row in rows if "rules" in row]
    levels = [
        [
            *(row["name"], *_verdicts_on_levels(row)),
            *(row.get(key, "") for key in ("flat", "profile", "date")),
        ]
        for row in rows
    ]
    return _joined(
        _table(("server", *LEVELS, "flat logprobs", "profile", "date"), levels),
        "## Rules that a server does not pass",
        *map(_reasons, judged),
    )


def _verdicts_on_levels(row: dict[str, Any]) -> list[str]:
    if "error" in row:
        return [f"not judged: {_plain(row['error'])}", *[""] * (len(LEVELS) - 1)]
    return list(row["levels"])


def _reasons(row: dict[str, Any]) -> str:
    """The messages of the verdicts that are not a pass, each once."""
    numbers: dict[str, list[str]] = {}
    for rule in row["rules"]:
        if rule["verdict"] != "pass":
            text = f"{rule['verdict']}: {_plain(rule['message'])}"
            numbers.setdefault(text, []).append(str(rule["number"]))
    lines = [f"- {', '.join(which)}, {text}" for text, which in numbers.items()]
    notes = [f"- Note: {_plain(note)}" for note in row["notes"]]
    return _joined(f"### {row['name']}", "\n".join([*lines, *notes]))


def _plain(text: str) -> str:
    """A text as Markdown shows it, without the URL of a server that was started."""
    text = re.sub(r"http://127\.0\.0\.1:\d+", "", " ".join(text.split()))
    return re.sub(r"([\\`*_<>\[\]|])", r"\\\1", text)


def sizes() -> str:
    """A row for the core and for each extra, with the size of its change."""
    release = SUPPORTED_VERSIONS[-1]
    rows = []
    for name in registry.names():
        edits = [*registry.edits(name, release)]
        if name == registry.CORE:
            edits.append(registry.facts([name], release))
        landed = [edit for edit in edits if isinstance(edit, Land)]
        hooks = [
            edit
            for edit in edits
            if isinstance(edit, ScopedEdit) and not isinstance(edit, Check)
        ]
        files = {edit.file for edit in hooks}
        lines, landed_lines = (
            sum(text.count("\n") + 1 for text in texts)
            for texts in (
                [edit.new_code for edit in hooks],
                [edit.text.rstrip("\n") for edit in landed],
            )
        )
        rows.append(
            (
                name if name == registry.CORE else f"`{name}`",
                f"{len(files)} files, by {len(hooks)} edits of {lines} lines",
                f"{len(landed)} modules of {landed_lines:,} lines",
            )
        )
    return _table((f"on SGLang {release}", "changes", "adds"), rows)


def made() -> dict[Path, str]:
    """Return the text of each file of which something is made here."""
    parts = {
        REFERENCE / "checks.md": checks(),
        REFERENCE / "json.md": documents(),
        REFERENCE / "conformance.md": conformance(),
        README: sizes(),
    }
    texts = {}
    for file, part in parts.items():
        before, start, rest = file.read_text("utf-8").partition(START)
        _, end, after = rest.partition(END)
        if not (start and end):
            raise SystemExit(f"{file} needs these two lines: {START} and {END}")
        texts[file] = f"{before}{START}\n{part.strip()}\n{END}{after}"
    # No commit: the text would change with each.
    facts = registry.facts([registry.CORE], FACTS_OF).text
    return {**texts, FACTS: facts.replace(full_version(), __version__)}


if __name__ == "__main__":
    for file, text in made().items():
        if file.read_text("utf-8") != text:
            file.write_text(text, "utf-8")
            print(file)

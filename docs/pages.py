"""Makes the pages of `docs/reference` that follow from the code.

    python -m docs.pages

Prints the name of each page that it changed.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentcore_patches import listing, results
from agentcore_patches.cluster import results as cluster_results
from agentcore_patches.command import exit_codes
from agentcore_patches.command.cli import commands, deferred
from agentcore_patches.command.help_format import HelpContext
from agentcore_patches.command.help_topics import TOPICS
from agentcore_patches.installs import install
from agentcore_patches.patches import registry
from agentcore_patches.planning import plan
from agentcore_verify import checks
from agentcore_verify import results as verify_results
from agentcore_verify.audit import results as audit_results
from tests.helpers import json_documents

REFERENCE = Path(__file__).parent / "reference"

FACTS_OF = "0.5.9"
"""The release whose facts are in the repository."""

NOTICE = "<!-- Made by docs/pages.py: `make docs`. -->"


# The command.

CLI_INTRODUCTION = """\
# The command

`agentcore-patch COMMAND [OPTIONS]`, or `python -m agentcore_patches COMMAND [OPTIONS]`.
Errors go to stderr as a line `error:` and, if there is something to do, a line `hint:`. With
`--json`, a command prints one document on stdout, errors included
([the documents](json.md)). Another page explains
[what to do about each exit code](../how-to/troubleshooting.md#by-exit-code).

<!--
```console
$ pip install agentcore-patches
```
-->
"""

CLI_END = """\
## Tab completion

For bash, in `~/.bashrc`; `completion zsh` and `completion fish` are for the others:

```bash
eval "$(agentcore-patch completion bash)"
```
"""


def cli_page() -> str:
    """The help of every command, as it is printed."""
    settings = {**commands.context_settings, "terminal_width": 78}
    context = HelpContext(commands, info_name="agentcore-patch", **settings)
    found = {name: commands.get_command(context, name) for name in commands.commands}
    # The group has stand-ins for these, and has them first.
    last = {name: deferred(name) for name in ("verify", "serve", "audit")}
    for name in last:
        del found[name]
    parts = [CLI_INTRODUCTION, _printed("", commands.get_help(context))]
    for name, command in {**found, **last}.items():
        assert command
        within = HelpContext(command, context, name, **settings)
        parts += [f"## {name}", _printed(f"{name} ", command.get_help(within))]
    for topic, text in TOPICS.items():
        shown = f"```console\n$ agentcore-patch help {topic}\n{text}\n```"
        parts += [f"## {topic.replace('-', ' ').capitalize()}", shown]
    return _joined(*parts, CLI_END)


def _printed(command: str, text: str) -> str:
    return f"```console\n$ agentcore-patch {command}--help\n{text}\n```"


def _joined(*parts: str) -> str:
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


# The checks of `verify`.

CHECKS_INTRODUCTION = """\
# The checks of `verify`

`agentcore-patch verify` starts an SGLang server, sends requests like those of RL trainers,
and compares the token IDs and logprobs of the responses. It uses greedy decoding, except
where it samples several choices. `--check NAME` runs only one check.
"""

CHECKS_END = """\
## Outcomes

| outcome | meaning | counts as |
|---|---|---|
| passed | the property holds | passed |
| failed | the property does not hold; the details show where two sequences differ | failed |
| inconclusive | two equal requests got different responses, so nothing can be compared | failed |
| not exercised | the model did not show the tested behavior, for example called no tool | neither; failed with `--strict` |
| skipped | the check cannot run on this server, for example without a reasoning parser, or needs a patch that was left out on purpose | neither; failed with `--strict` if a patch was left out |

A run passes if at least one check passed and none failed.

## The scripted model

`--model scripted` needs no download. The command trains a model of two layers once, in
about 20 s on two cores, and stores it in the user's cache folder. With greedy decoding, in
float32, bfloat16 and float16, the model answers fourteen questions word for word, with
emoji, Chinese and Japanese text, tool calls, reasoning and a long answer. Its probabilities
differ from token to token, so that `verify` notices a logprob of another token. It does not
support images.

## Reports

`--json` prints [one document](json.md) instead of the table, and `--json-file FILE` writes
it to a file. `--junit FILE` writes a test suite with one test case per check. `--svg FILE`
writes the table as a picture, and `--log FILE` the output of the server.
"""


def checks_page() -> str:
    """Every check with its docstring."""
    rows, parts = [], []
    for check in map(checks.get, checks.NAMES):
        summary, _, text = _backticks(check.text).partition("\n")
        needs = ", ".join(f"`{patch}`" for patch in check.patches)
        rows.append((f"[`{check.name}`](#{check.name})", summary, needs or "none"))
        parts += [f"### {check.name}", text]
    return _joined(
        CHECKS_INTRODUCTION,
        _table(("check", "property", "required patches"), rows),
        "## Each check",
        *parts,
        CHECKS_END,
    )


def _backticks(text: str) -> str:
    """Field names in code spans, so that Markdown does not read their underscores."""
    return re.sub(r"(?<![`\w/])([a-z]+(?:_[a-z]+)+)(?![\w`])", r"`\1`", text)


# The JSON documents.

JSON_INTRODUCTION = """\
# The JSON documents

With `--json`, every command prints one document on stdout, errors included. Later versions
may add keys, but remove none. A key has the name of the result attribute that it represents;
the results of `apply`, `status` and `revert` are classes in `agentcore_patches.results`.
"""

DOCUMENTS = (
    ("apply", json_documents.ApplyDocument, results.ApplyResult),
    ("status", json_documents.StatusDocument, results.StatusResult),
    ("revert", json_documents.RevertDocument, results.RevertResult),
    ("list", json_documents.ListDocument, None),
    ("list --edits", json_documents.EditsDocument, None),
    ("verify", json_documents.ReportDocument, verify_results.Report),
    ("audit", json_documents.AuditDocument, audit_results.Audit),
    ("apply and status with --ray", json_documents.RayDocument, None),
    ("any command that fails", json_documents.ErrorDocument, None),
)

PARTS: dict[str, Any] = {
    "LeftoversDocument": install.Leftovers,
    "SGLangDocument": install.Install,
    "EditDocument": plan.EditOutcome,
    "EditInfoDocument": listing.EditInfo,
    "CheckDocument": verify_results.Result,
    "ExampleDocument": audit_results.Example,
    "FindingDocument": audit_results.Row,
    "VersionsDocument": verify_results.Versions,
    "FileChangeDocument": results.FileChange,
    "FailureDocument": exit_codes.Failure,
    "FileDocument": results.FileStatus,
    "NodeDocument": cluster_results.NodeResult,
}
"""Of types within documents, the classes whose docstrings explain their keys."""


def json_page() -> str:
    """Every document, key by key, and below them the types that they use."""
    parts, used = [JSON_INTRODUCTION], dict[str, Any]()
    shown: set[str] = set()
    for title, document, explained in DOCUMENTS:
        used[document.__name__] = document
        shown.add(document.__name__)
        parts += [f"## {title}", _typed(document, explained, used)]
    parts.append("## Types within")
    while left := [name for name in used if name not in shown]:
        name = left[0]
        shown.add(name)
        summary = (inspect.getdoc(used[name]) or "").partition("\n")[0]
        parts += [f"### {name}", summary, _typed(used[name], PARTS.get(name), used)]
    return _joined(*parts)


def _typed(document: Any, explained: Any, used: dict[str, Any]) -> str:
    texts = dict(_attributes(document)) | dict(_attributes(explained))
    rows = (
        (f"`{key}`", _type(hint, used), _meaning(key, texts, explained))
        for key, hint in typing.get_type_hints(document).items()
    )
    return _table(("key", "type", "meaning"), rows)


def _meaning(key: str, texts: dict[str, str], explained: Any) -> str:
    described = getattr(explained, key, None)
    found = inspect.getdoc(described) if isinstance(described, property) else ""
    text = texts.get(key) or " ".join((found or "").split())
    return re.sub(r"\bNone\b", "null", text).removesuffix(".")


def _attributes(explained: Any) -> Iterator[tuple[str, str]]:
    """Yield each attribute below `Attributes:` of a docstring, with its text."""
    text = inspect.getdoc(explained) or "" if explained else ""
    _, _, listed = text.partition("Attributes:\n")
    for found in re.finditer(
        r"^    (\w+(?:, \w+)*): (.*(?:\n {8}.*)*)", listed, re.MULTILINE
    ):
        for name in found[1].split(", "):
            yield name, " ".join(found[2].split())


def _type(hint: Any, used: dict[str, Any]) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if typing.is_typeddict(hint):
        used.setdefault(hint.__name__, hint)
        titles = {document.__name__: title for title, document, _ in DOCUMENTS}
        title = titles.get(hint.__name__, hint.__name__)
        return f"[{title}](#{title.lower().replace(' ', '-')})"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(argument, used) for argument in arguments)
    if origin is typing.Literal:
        return " or ".join(f'`"{argument}"`' for argument in arguments)
    if origin is list:
        return f"list of {_type(arguments[0], used)}"
    if origin is not None and len(arguments) == 2:
        return f"object of {_type(arguments[1], used)}"
    if isinstance(hint, type) and issubclass(hint, str) and hint is not str:
        return " or ".join(f'`"{member.value}"`' for member in hint)  # type: ignore[attr-defined]
    names = {str: "string", bool: "boolean", int: "integer", float: "number"}
    return names.get(hint, "null" if hint is type(None) else str(hint))


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "checks.md": checks_page,
    "json.md": json_page,
}


def page(name: str) -> str:
    """A page as it should be now."""
    return f"{NOTICE}\n\n{PAGES[name]()}"


def write(folder: Path = REFERENCE) -> list[Path]:
    """Writes the pages that are not as they should be; returns these."""
    return _written({folder / name: page(name) for name in PAGES})


def write_facts() -> list[Path]:
    """Writes the facts that the modules that land have in the repository."""
    file = Path(registry.__file__).parents[1] / "landing" / "release.py"
    return _written({file: registry.facts(registry.names(), FACTS_OF).text})


def _written(texts: Mapping[Path, str]) -> list[Path]:
    changed = [
        file
        for file, text in texts.items()
        if not file.exists() or file.read_text("utf-8") != text
    ]
    for file in changed:
        file.write_text(texts[file], "utf-8")
    return changed


if __name__ == "__main__":
    for made in [*write_facts(), *write()]:
        print(made)

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
from agentcore_verify import checks
from agentcore_verify import results as verify_results
from agentcore_verify.audit import results as audit_results
from agentcore_verify.contract import LEVELS
from tests.helpers.documents import Error, Nodes, keys

REFERENCE = Path(__file__).parent / "reference"
CONFORMANCE = REFERENCE / "conformance.json"
"""The record of `docs/conformance.py`."""

README = Path(__file__).parents[1] / "README.md"
"""It says how large the change is, between two comments."""

FACTS, FACTS_OF = Path(registry.__file__).parents[1] / "landing/release.py", "0.5.9"
"""The module of a release's facts, and the release whose facts the repository has."""

NOTICE = "<!-- Made by docs/pages.py: `make docs`. -->"


def _joined(*parts: str) -> str:
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


# The checks of `verify`.

CHECKS_INTRODUCTION = """\
# The checks of `verify`

`agentcore-patch verify` starts an SGLang server, sends requests like those of RL trainers,
and compares the token IDs and logprobs of the responses. It uses greedy decoding, except
where it samples. `--check NAME` runs only one check. A check of an extra that is not
installed is skipped.

The checks judge the [rules of a token-exact server](token-exact.md). On a server without
agentcore-patch, only the checks with a rule are run, and the verdict is on the rules.
"""

CHECKS_END = """\
## Outcomes

| outcome | meaning | counts as |
|---|---|---|
| passed | the property holds | passed |
| failed | the property does not hold; the details show where two sequences differ | failed |
| inconclusive | two equal requests got different responses, so nothing can be compared | failed |
| not exercised | the model did not show the tested behavior, for example called no tool | neither; failed with `--strict` |
| skipped | the check cannot run on this server, for example without a reasoning parser or an extra | neither |

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
    rows = []
    for check in map(checks.get, checks.NAMES):
        summary, _, text = _backticks(check.text).partition("\n")
        numbers = ", ".join(map(str, check.rules))
        proof = f"**{summary}** {' '.join(text.split())}"
        rows.append((f"`{check.name}`", numbers, proof))
    table = _table(("check", "rules", "what it proves"), rows)
    return _joined(CHECKS_INTRODUCTION, table, CHECKS_END)


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


def json_page() -> str:
    titles = dict(DOCUMENTS)
    kinds = [*DOCUMENTS]
    for kind in kinds:
        for inner in chain(*map(_classes, keys(kind).values())):
            if inner in kinds:
                titles.setdefault(inner, inner.__name__)
            else:
                kinds.append(inner)
    parts = [JSON_INTRODUCTION]
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

CONFORMANCE_INTRODUCTION = """\
# Conformance of servers

`make conformance` starts each of these servers on the CPU with the scripted model, judges it by
the [rules of a token-exact server](token-exact.md), and writes this page: nobody edits it. The
rules are judged on `/v1/chat/completions`. Other endpoints serve only prompts of token IDs. Rule
19 needs new weights, which a running server never gets: `agentcore-patch verify --model scripted`
judges it on a server of its own.
"""

CONFORMANCE_END = """\
## How the servers are started

- SGLang: `--tool-call-parser qwen25 --reasoning-parser qwen3`, and what the CPU needs. *Patched*
  means `agentcore-patch apply`, without extras.
- vLLM: `--enable-auto-tool-choice --tool-call-parser hermes --reasoning-parser qwen3`.
- LiteLLM: the provider is `hosted_vllm`.
- rllm-model-gateway: `strip_vllm_fields: false`. By default it removes the token IDs from
  responses, and only records them.
- The gateways have no `/detokenize`, so `token-exact` is given the model's `--tokenizer`,
  which it loads by the extra `audit`.
"""


def conformance_page() -> str:
    """The verdicts that `docs/conformance.py` recorded."""
    rows = json.loads(CONFORMANCE.read_text("utf-8"))
    judged = [row for row in rows if "rules" in row]
    levels = [
        [
            *(row["name"], *_verdicts_on_levels(row)),
            *(row.get(key, "") for key in ("profile", "date")),
        ]
        for row in rows
    ]
    return _joined(
        CONFORMANCE_INTRODUCTION,
        "## Levels",
        _table(("server", *LEVELS, "profile", "date"), levels),
        "## Rules that a server does not pass",
        *map(_reasons, judged),
        CONFORMANCE_END,
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
    """Return the text of each file that is made here."""
    pages = {
        "checks.md": checks_page(),
        "json.md": json_page(),
        "conformance.md": conformance_page(),
    }
    start, end = "<!-- sizes -->", "<!-- /sizes -->"
    before, _, rest = README.read_text("utf-8").partition(start)
    # No commit: the text would change with each.
    facts = registry.facts([registry.CORE], FACTS_OF).text
    return {
        **{REFERENCE / name: f"{NOTICE}\n\n{text}" for name, text in pages.items()},
        README: f"{before}{start}\n{sizes()}\n{end}{rest.partition(end)[2]}",
        FACTS: facts.replace(full_version(), __version__),
    }


if __name__ == "__main__":
    for file, text in made().items():
        if file.read_text("utf-8") != text:
            file.write_text(text, "utf-8")
            print(file)

"""`docs/reference/api.md` has every field of the API that patches add, and no other.

What patches add is read off the models in SGLang's files, before and after, of every
release.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agentcore_patches.patches import registry
from agentcore_patches.planning.classes import statements
from tests.sglang_sources.releases import FAMILIES, NAMES, patched, sources

PAGE = Path(__file__).parents[2] / "docs/reference/api.md"

CHAT, COMPLETIONS, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
RESPONSES = "/v1/responses"

# Models: endpoint, part of the page, and place of their fields.
MODELS = {
    "ChatCompletionRequest": (CHAT, "Request", ""),
    "ChatCompletionResponse": (CHAT, "Whole answers", ""),
    "ChatCompletionResponseChoice": (CHAT, "Whole answers", "choices[i]."),
    "ChatCompletionStreamResponse": (CHAT, "Chunks", ""),
    "ChatCompletionResponseStreamChoice": (CHAT, "Chunks", "choices[0]."),
    "_StreamChunk": (CHAT, "Chunks", ""),
    "_StreamChoice": (CHAT, "Chunks", "choices[0]."),
    "StreamChunk": (CHAT, "Chunks", ""),
    "StreamChoice": (CHAT, "Chunks", "choices[0]."),
    "CompletionRequest": (COMPLETIONS, "Request", ""),
    "CompletionResponse": (COMPLETIONS, "Whole answers", ""),
    "CompletionResponseChoice": (COMPLETIONS, "Whole answers", "choices[i]."),
    "CompletionStreamResponse": (COMPLETIONS, "Chunks", ""),
    "CompletionResponseStreamChoice": (COMPLETIONS, "Chunks", "choices[0]."),
    "AnthropicMessagesRequest": (MESSAGES, "Request", ""),
    "AnthropicMessagesResponse": (MESSAGES, "Whole answers", ""),
    "ResponsesRequest": (RESPONSES, "Request", ""),
    "ResponsesResponse": (RESPONSES, "Whole answers", ""),
    "TokenizeResponse": ("/tokenize", "Answers", ""),
    "DetokenizeResponse": ("/detokenize", "Answers", ""),
    "GenerateReqInput": ("/generate", "Request", ""),
    "EmbeddingReqInput": ("/generate", "Request", ""),
}

INSIDE = {
    *("ReqState", "BaseMultiModalProcessorOutput", "ScheduleBatch"),
    *("BatchTokenIDOutput", "BatchStrOutput", "_GenerationStreamAccumulator"),
    *("SchedulerWeightUpdaterManager", "ReleaseMemoryOccupationReqOutput"),
    "ResumeMemoryOccupationReqOutput",
}
"""Classes that no client sees."""

UNCHECKED = {
    *("ChatCompletionMessageGenericParam", "TokenizeRequest"),
    *("LoadLoRAAdapterReqInput", "LoadLoRAAdapterFromTensorsReqInput"),
}
"""Classes whose new fields are declared otherwise than clients send them, or are in the
table of control endpoints.
"""

Place = tuple[str, str, str]
"""Endpoint, part of the page, field."""


# Declared differently so that pydantic does not check each ID; equal on the wire.
SAME_ON_THE_WIRE = {("/generate", "Request", "input_ids")}

OLDEST = ("0.5.8", "0.5.9")
"""Releases that lack all that patches give."""


@dataclass(frozen=True)
class Row:
    """A row of the page; `when` is the default of a request field."""

    when: str
    extra: str
    upstream: str


@cache
def rows() -> dict[Place, Row]:
    found: dict[Place, Row] = {}
    part = endpoint = ""
    for line in PAGE.read_text("utf-8").splitlines():
        if head := re.fullmatch(r"### (.+) of (/\S+)", line):
            part, endpoint = head.groups()
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| `") or len(cells) < 5:
            continue
        name, _, when, *_, upstream, vllm = cells
        place = endpoint, part, name.strip("`")
        assert place not in found, f"{place} has two rows"
        extra = vllm.partition("; extra ")[2].strip("`")
        found[place] = Row(when, extra, upstream)
    return found


@cache
def classes(text: bytes) -> tuple[ast.ClassDef, ...]:
    body = statements(ast.parse(text).body)
    return tuple(node for node in body if isinstance(node, ast.ClassDef))


@cache
def fields(text: bytes) -> Mapping[tuple[str, str], str]:
    """Return the declarations of a file, by class and name."""
    return {
        (node.name, item.target.id): ast.unparse(item)
        for node in classes(text)
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }


@cache
def added(version: str, selection: tuple[str, ...] = NAMES) -> dict[Place, str]:
    """Return the fields that patches declare or change in a release."""
    found: dict[Place, str] = {}
    for (model, name), declared in _changed(version, selection):
        if model in MODELS:
            endpoint, part, where = MODELS[model]
            place = endpoint, part, where + name
            if place not in SAME_ON_THE_WIRE:
                found.setdefault(place, declared)
    return found


def _changed(
    version: str, selection: tuple[str, ...]
) -> Iterator[tuple[tuple[str, str], str]]:
    after = patched(version, selection)
    for path, text in sources(version).items():
        before, known = fields(text), {node.name for node in classes(text)}
        for (model, name), declared in fields(after[path]).items():
            if name.startswith("_") or name == "vllm_fields":
                continue  # It is never read from a request.
            if model in known and before.get((model, name)) != declared:
                yield (model, name), declared


@cache
def native(version: str) -> frozenset[Place]:
    """Return the fields that the unpatched models of a release have."""
    return frozenset(
        (*MODELS[model][:2], MODELS[model][2] + name)
        for text in sources(version).values()
        for model, name in fields(text)
        if model in MODELS
    )


@cache
def every_added() -> frozenset[Place]:
    return frozenset(place for version in FAMILIES for place in added(version))


def test_every_added_field_has_a_row_and_every_request_field_is_added() -> None:
    """Fields of answers may also be put into dicts, or into the lines of a stream."""
    assert every_added() <= set(rows())
    # The messages of /tokenize are those of chat.
    asked = {place for place in rows() if place[1] == "Request"}
    assert {place for place in asked if place[0] != "/tokenize"} <= every_added()


def test_no_other_class_gets_a_field_that_a_client_might_see() -> None:
    for version in FAMILIES:
        classes = {model for (model, _), _ in _changed(version, NAMES)}
        assert classes <= set(MODELS) | INSIDE | UNCHECKED, version


def test_defaults_of_requests_are_those_of_the_code() -> None:
    for version in FAMILIES:
        for place, declared in added(version).items():
            value = declared.partition("=")[2].strip()
            assert value in ("None", "False", "0", "msgspec.UNSET"), place
            if place[1] == "Request":
                shown = {"None": "absent", "False": "`false`", "0": "0"}[value]
                assert rows()[place].when == shown, place


def test_a_row_names_the_extra_that_gives_the_field() -> None:
    for extra in ("", *registry.extras()):
        selection = (registry.CORE, extra) if extra else (registry.CORE,)
        given = {place for version in OLDEST for place in added(version, selection)}
        named = {place for place, row in rows().items() if row.extra in ("", extra)}
        assert given == named & every_added(), extra


def test_the_page_names_the_fields_that_sglang_has_by_itself() -> None:
    for place, row in rows().items():
        if place not in every_added():
            continue
        having = [version for version in FAMILIES if place in native(version)]
        if not having:
            assert row.upstream.startswith("no"), place
        elif having[-1] == FAMILIES[-1]:
            assert row.upstream.startswith(f"from {having[0]}"), place
            assert having == list(FAMILIES[FAMILIES.index(having[0]) :]), place
        else:
            assert row.upstream.startswith(f"{' and '.join(having)} only"), place

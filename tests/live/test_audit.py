"""`audit` of recorded responses: a patched server is clean, an unpatched one not."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from agentcore_patches.command.cli import main
from agentcore_verify.audit.readers import turns_of
from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.helpers.built_records import write
from tests.helpers.endpoints import (
    CHAT,
    COMPLETIONS,
    HISTORY_OF,
    MESSAGES,
    RESPONSES,
    Json,
    answers,
    body_to,
    is_traced,
    prompt_of,
)

pytestmark = pytest.mark.parametrize(
    "mode", ["default"], indirect=True, scope="session"
)

SHORT = ("plain", "emoji", "two_tools", "reasoning_then_tool", "cjk")
PATHS = (CHAT, COMPLETIONS, MESSAGES, RESPONSES)


def request_to(path: str, name: str, **more: Any) -> Json:
    """Return the request with a line of the script, with tools if the line calls some."""
    body = body_to(path, 700, name, tools="tool" in name and path != COMPLETIONS)
    logprobs: Json = {CHAT: {"logprobs": True}, COMPLETIONS: {"logprobs": 1}}
    return {**body, **logprobs.get(path, {}), **more}


def record(
    server: Server, path: str, body: Json, streaming: bool, session: str
) -> Json:
    """Send a request; return it and its response as a line of a recording."""
    body = {"model": Subject(server.base_url).served_model(), **body}
    if streaming and path in (CHAT, COMPLETIONS):
        body = {**body, "stream_options": {"include_usage": True}}
    events = answers(server, path, streaming, **body)
    answer = {"chunks": events} if streaming else {"response": events[0]}
    return {"request": body, **answer, "session": f"{session} {streaming}"}


def two_turns(server: Server, path: str, streaming: bool) -> list[Json]:
    """Record a conversation whose second turn requires the tokens of the first."""
    body = request_to(path, "plain", return_token_ids=True)
    first = record(server, path, body, streaming, f"{path} turns")
    [turn] = turns_of(first)
    [answer] = turn.answers
    key = HISTORY_OF[path]
    body[key] = [
        *body[key],
        {"role": "assistant", "content": answer.text},
        {"role": "user", "content": "Say nothing."},
    ]
    body["required_prefix_token_ids"] = [*(turn.prompt or ()), *(answer.ids or ())]
    return [first, record(server, path, body, streaming, f"{path} turns")]


def audited(
    capsys: pytest.CaptureFixture[str], file: Path, model: Path
) -> tuple[int, Any]:
    capsys.readouterr()
    code = main(["audit", str(file), "--tokenizer", str(model), "--json"])
    return code, json.loads(capsys.readouterr().out)


def found(document: Json) -> set[str]:
    return {row["name"] for row in document["findings"] if row["state"] == "found"}


def test_answers_of_a_patched_server_are_clean(
    server: Server,
    scripted_model: Path,
    release: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines, later = [], []
    prompts = {name: prompt_of(server, name) for name in SHORT}
    traced = [path for path in PATHS if is_traced(path, release)]
    for path, streaming in itertools.product(traced, (False, True)):
        for name in SHORT:
            body = request_to(path, name, return_token_ids=True)
            if path == COMPLETIONS:
                body["prompt"] = prompts[name]
            lines.append(record(server, path, body, streaming, f"{path} {name}"))
        if path != COMPLETIONS:
            later += two_turns(server, path, streaming)
    file = write(tmp_path / "patched.jsonl", [*lines, *later])

    code, document = audited(capsys, file, scripted_model)

    assert found(document) == set() and code == 0, document
    assert document["turns"] == len(lines) + len(later)
    assert document["failed"] == document["unmatched"] == 0
    assert document["compared"] == len(later) // 2
    assert all(row["of"] for row in document["findings"])


def test_answers_of_an_unpatched_server_have_drift_and_holes(
    vanilla: Server,
    scripted_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = [
        record(
            vanilla, CHAT, request_to(CHAT, name, **more), streaming, f"{name} {more}"
        )
        for streaming in (False, True)
        for name, more in (
            ("plain", {}),
            ("two_tools", {}),
            *(("emoji", {"max_tokens": cut}) for cut in (8, 9, 10, 11)),
        )
    ]
    file = write(tmp_path / "unpatched.jsonl", lines)

    code, document = audited(capsys, file, scripted_model)

    assert code == 1 and document["turns"] == len(lines)
    assert found(document) >= {"ids-missing", "prompt-ids-missing", "drift"}
    rows = {row["name"]: row for row in document["findings"]}
    assert rows["ids-missing"]["count"] == len(lines)
    causes = rows["drift"]["causes"].keys()
    assert causes and causes <= {"emoji", "another number of tokens"}

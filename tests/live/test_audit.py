"""`audit` of recorded responses: a patched server is clean, an unpatched one not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agentcore_patches.command.cli import main
from agentcore_verify.audit.readers import turns_of
from agentcore_verify.server import Server
from tests.helpers.built_records import write
from tests.helpers.endpoints import CHAT, COMPLETIONS, Json
from tests.helpers.recorded_turns import (
    conversations,
    endpoints,
    next_turns,
    record,
    request_to,
    served_model,
)

pytestmark = pytest.mark.parametrize(
    "mode", ["default"], indirect=True, scope="session"
)

SHORT = ("plain", "emoji", "two_tools", "reasoning_then_tool", "cjk")


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
    model, paths = served_model(server), endpoints(release)
    lines = list(conversations(server, paths, SHORT, model))
    later = next_turns(server, [path for path in paths if path != COMPLETIONS], model)
    file = write(tmp_path / "patched.jsonl", [*lines, *later])

    code, document = audited(capsys, file, scripted_model)

    assert found(document) == set() and code == 0, document
    assert document["turns"] == len(lines) + len(later)
    assert document["failed"] == document["unmatched"] == 0
    assert document["compared"] == len(later) // 2
    assert all(row["of"] for row in document["findings"])


def test_two_calls_of_one_tool_are_clean(
    server: Server,
    scripted_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a whole message, SGLang's `index` of a call may be that of its tool."""
    text = "\n".join(
        f'<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "{city}"}}}}\n'
        "</tool_call>"
        for city in ("Oslo", "Lima")
    )
    body = request_to(CHAT, "two_tools", regex=re.escape(text), return_token_ids=True)
    body["model"] = served_model(server)
    whole, stream = (
        record(server, CHAT, body, streaming=streaming, session=str(streaming))
        for streaming in (False, True)
    )
    [turn] = turns_of(whole)
    assert [call.name for call in turn.answers[0].calls] == ["get_weather"] * 2, whole

    file = write(tmp_path / "calls.jsonl", [whole, stream])
    _, document = audited(capsys, file, scripted_model)

    # The grammar leaves one token at a time, whose logprob is 0.
    assert found(document) <= {"logprobs-padded"}, document


def test_answers_of_an_unpatched_server_have_drift_and_holes(
    vanilla: Server,
    scripted_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = [
        record(
            vanilla,
            CHAT,
            request_to(CHAT, name, **more),
            streaming=streaming,
            session=f"{name} {streaming} {more}",
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

"""Record a server's responses in the format that `audit` reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from agentcore_patches.patches.releases import is_between
from agentcore_verify.audit.readers import turns_of
from agentcore_verify.scripted_model import TOOLS, line
from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.helpers.endpoints import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    MESSAGES_TOOLS,
    RESPONSES,
    RESPONSES_TOOLS,
    Json,
    answers,
)

_WITH_TOOLS = ("tool", "two_tools", "text_then_tool", "reasoning_then_tool")


def endpoints(release: str) -> tuple[str, ...]:
    """Return the endpoints of a release whose responses can have token IDs."""
    last = {MESSAGES: "0.5.8", RESPONSES: "0.5.13"}
    return tuple(
        path
        for path in (CHAT, COMPLETIONS, MESSAGES, RESPONSES)
        if path not in last or not is_between(release, "", last[path])
    )


def request_to(path: str, name: str, **more: Any) -> Json:
    """Return the request with a line of the script."""
    messages = line(name).messages
    body: Json = {"temperature": 0, "max_tokens": 700}
    if path == RESPONSES:
        body = {"temperature": 0, "input": messages, "max_output_tokens": 700}
    elif path == COMPLETIONS:
        body |= {"logprobs": 1}
    else:
        body |= {"messages": messages}
    if path == CHAT:
        body |= {"logprobs": True}
    body |= more
    if name in _WITH_TOOLS and path != COMPLETIONS:
        tools = {MESSAGES: MESSAGES_TOOLS, RESPONSES: RESPONSES_TOOLS}
        body["tools"] = tools.get(path, list(TOOLS))
    return body


def record(
    server: Server, path: str, body: Json, *, streaming: bool, session: str
) -> Json:
    """Send a request; return it and its response as a line of a recording."""
    if streaming and path in (CHAT, COMPLETIONS):
        body = {**body, "stream_options": {"include_usage": True}}
    events = answers(server, path, streaming, **body)
    answer = {"chunks": events} if streaming else {"response": events[0]}
    return {"request": body, **answer, "session": session}


def conversations(
    server: Server, paths: Sequence[str], lines: Sequence[str], model: str
) -> Iterator[Json]:
    """Record each line of the script at each endpoint, streaming and not."""
    prompts = {name: _prompt(server, name) for name in lines}
    for path in paths:
        for streaming in (False, True):
            for name in lines:
                body = request_to(path, name, return_token_ids=True, model=model)
                if path == COMPLETIONS:
                    body["prompt"] = prompts[name]
                session = f"{path} {name} {streaming}"
                yield record(server, path, body, streaming=streaming, session=session)


def next_turns(server: Server, paths: Sequence[str], model: str) -> list[Json]:
    """Record conversations whose second turn requires the tokens of the first."""
    found = []
    for path in paths:
        for streaming in (False, True):
            session = f"{path} turns {streaming}"
            body = request_to(path, "plain", return_token_ids=True, model=model)
            first = record(server, path, body, streaming=streaming, session=session)
            [turn] = turns_of(first)
            answer = [
                {"role": "assistant", "content": turn.answers[0].text},
                {"role": "user", "content": "Say nothing."},
            ]
            key = "input" if path == RESPONSES else "messages"
            prefix = [*(turn.prompt or ()), *(turn.answers[0].ids or ())]
            body = {
                **body,
                key: [*body[key], *answer],
                "required_prefix_token_ids": prefix,
            }
            found += [
                first,
                record(server, path, body, streaming=streaming, session=session),
            ]
    return found


def _prompt(server: Server, name: str) -> list[int]:
    [answer] = answers(server, CHAT, False, **request_to(CHAT, name, max_tokens=1))
    found: list[int] = answer["prompt_token_ids"]
    return found


def served_model(server: Server) -> str:
    return Subject(server.base_url).served_model()

"""Non-streaming responses of SGLang's own application, over a stand-in engine.

Run in an interpreter with SGLang, with `benchmarks` on its path. The argument is a
file, to which it writes one JSON object: for each case of `cases` the status, the
headers, the body (as Latin-1), True if FastAPI's encoder was called, and the number of
Pydantic models of a token's logprobs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/generate"
CALL = '<tool_call>\n{"name": "f", "arguments": {"é": 1e-07}}\n</tool_call>'
TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {}}},
}
USUAL: list[Any] = [(-0.5, 5, "a"), (-1e-7, 6, "é")]
USUAL += [(-3.4028234663852886e38, 7, '"\n'), (0.0, 8, "_sa")]
NAMELESS = [(value, token_id, None) for value, token_id, _ in USUAL]
TOPS = [[*USUAL, (-0.25, 9, "a")] for _ in USUAL]
BAD: dict[str, list[Any]] = {
    "NaN": [*USUAL, (float("nan"), 9, "b")],
    "infinite": [*USUAL, (float("-inf"), 9, "b")],
    "None at first": [(None, 9, "b"), *USUAL],
    "an integer": [*USUAL, (0, 9, "b")],
    "half a surrogate pair": [*USUAL, (-0.5, 9, "\ud83d")],
}

REFUSED = ValueError("The input is too long.")
FORK = "a fork's logprobs, bad"
"""The last case: the endpoint writes other tokens from there on."""

Asked = tuple[str, dict[str, Any], Any]
Case = tuple[str, str, dict[str, Any], Any]


def answer(text: str = "Hello é 😀", **meta_info: Any) -> dict[str, Any]:
    """Build the tokenizer manager's result."""
    entries = meta_info.get("output_token_logprobs", USUAL)
    return {
        "text": text,
        "output_ids": [row[1] for row in entries],
        "prompt_token_ids": [1, 2, 3],
        "meta_info": {
            "id": "0" * 32,
            "finish_reason": {"type": "stop", "matched": 2},
            "prompt_tokens": 3,
            "weight_version": "default",
            "total_retractions": 0,
            "completion_tokens": len(entries),
            "cached_tokens": 2,
            "e2e_latency": 1.25e-05,
            **meta_info,
        },
    }


def logprobs(entries: Any = USUAL, tops: Any = None) -> dict[str, Any]:
    more = {} if tops is None else {"output_top_logprobs": tops}
    return {
        "output_token_logprobs": entries,
        "input_token_logprobs": [(None, 1, "p"), (-1e-7, 2, "q")],
        "input_top_logprobs": [None, [(-1e-7, 2, "q"), (-2.0, 3, "_sa")]],
        **more,
    }


def chat_cases() -> Iterator[Asked]:
    ask = {"logprobs": True}
    yield "plain", {}, [answer()]
    yield "no text", ask, [answer("", **logprobs([]))]
    yield "logprobs", ask, [answer(**logprobs())]
    yield "top_logprobs", ask, [answer(**logprobs(tops=TOPS))]
    yield "no alternatives", ask, [answer(**logprobs(tops=[]))]
    two = [answer(**logprobs()), answer("", **logprobs([]))]
    yield "n = 2", {**ask, "n": 2}, two
    for name, reason in {
        "stopped by a string": {"type": "stop", "matched": "end"},
        "aborted": {"type": "abort", "message": "Aborted", "status_code": None},
        "stopped by a large ID, bad": {"type": "stop", "matched": 2**70},
    }.items():
        yield name, ask, [answer(finish_reason=reason, **logprobs())]
    tools = {**ask, "tools": [TOOL]}
    yield "a tool call", tools, [answer("é " + CALL, **logprobs())]
    yield "two tool calls", tools, [answer(CALL + CALL, **logprobs())]
    required = {**tools, "tool_choice": "required"}
    listed = '[{"name": "f", "parameters": {"a": 1}}]'
    yield "a required call", required, [answer(listed, **logprobs())]
    yield "a broken call", required, [answer("[{", **logprobs())]
    yield "reasoning", ask, [answer("<think>hm</think>Yes", **logprobs())]
    hidden = {**ask, "return_hidden_states": True}
    for name, states in {
        "hidden states": [[0.5, 1e-7], [[0.25, -1e-9]], [1e22, 1e16, 5e-324]],
        "hidden states, bad: NaN": [[0.5], [float("nan")]],
    }.items():
        yield name, hidden, [answer(hidden_states=states, **logprobs())]
    experts = dict.fromkeys(
        ("return_routed_experts", "return_cached_tokens_details"), True
    )
    details = {"device": 1, "host": 2, "storage": 3, "storage_backend": "x"}
    found: Any = {"routed_experts": "AAAA", "cached_tokens_details": details}
    yield "routed experts", {**ask, **experts}, [answer(**found, **logprobs())]
    yield "text, bad: half a surrogate pair", ask, [answer("a\ud83d", **logprobs())]
    for name, entries in BAD.items():
        yield f"logprobs, bad: {name}", ask, [answer(**logprobs(entries))]
        n = len(entries)
        for tops in ([entries] * n, [USUAL] * (n - 1) + [entries]):
            result = [answer(**logprobs([USUAL[0]] * n, tops))]
            yield f"top_logprobs, bad: {name}, {len(tops[0])}", ask, result
    few: dict[str, Any] = {"one None": [*TOPS[:3], None], "few": TOPS[:2]}
    for name, tops in few.items():
        yield f"top_logprobs, bad: {name}", ask, [answer(**logprobs(tops=tops))]
    yield "logprobs, bad: none", ask, [answer()]
    yield "the engine refuses", ask, REFUSED
    yield "the engine fails", ask, RuntimeError("é")


def completion_cases() -> Iterator[Asked]:
    ask = {"logprobs": 2}
    two = logprobs(tops=[row[:2] for row in TOPS])
    yield "plain", {}, [answer()]
    yield "logprobs", ask, [answer(**logprobs(tops=[[], [], [], []]))]
    yield "top_logprobs", ask, [answer(**two)]
    dropped = "a token _sa, left to FastAPI: dropped"
    yield dropped, ask, [answer(**logprobs(tops=TOPS))]
    echo = {"echo": True, "prompt": ["p", "q"], "n": 2}
    yield "echo", echo, [answer(str(i)) for i in range(4)]
    few = {**two, "input_top_logprobs": [None, None]}
    yield "echo, logprobs", {**ask, "echo": True}, [answer(**few)]
    hidden = {"return_hidden_states": True}
    yield "hidden states", hidden, [answer(hidden_states=[[0.5], [1e-7]])]
    yield "text, bad: half a surrogate pair", ask, [answer("\ud83d", **logprobs())]
    for name, entries in BAD.items():
        yield f"logprobs, bad: {name}", ask, [answer(**logprobs(entries))]
    yield "the engine refuses", ask, REFUSED


def generate_cases() -> Iterator[Asked]:
    yield "plain", {}, answer()
    yield "logprobs", {}, answer(**logprobs(tops=TOPS))
    yield "without text", {}, answer(**logprobs(NAMELESS))
    yield "a batch", {}, [answer(**logprobs()), answer("")]
    own: Any = {"mirror": [5, 6], "nested": [[1, {"a": [0.5]}]]}
    yield "a custom sampler's", {}, answer(**own)
    for name, value in {
        "NaN": float("nan"),
        "NaN inside": [[(0.5, float("inf"))], [(0.5, 0.5)]],
        "_sa": {"_sa_key": 1},
        "bytes": b"a",
        "large": 2**70,
        "object": object,
        "half a surrogate pair": "\ud83d",
    }.items():
        yield f"a custom sampler's, bad: {name}", {}, answer(mirror=value)
    for name in ("NaN", "infinite", "half a surrogate pair"):
        yield f"logprobs, bad: {name}", {}, answer(**logprobs(BAD[name]))
    yield "the engine refuses", {}, REFUSED


def cases() -> Iterator[Case]:
    """Yield name, endpoint, request and the engine's result or error."""
    by_path = {
        CHAT: chat_cases,
        COMPLETIONS: completion_cases,
        GENERATE: generate_cases,
    }
    for path, some in by_path.items():
        for name, body, result in some():
            yield name, path, body, result
    yield FORK, CHAT, {"logprobs": True}, [answer(**logprobs())]


def change_tokens(endpoint: Any) -> None:
    """Let an endpoint write another token into its logprobs, as a fork may."""
    stock = endpoint._process_response_logprobs

    def changed(self: Any, ret_item: Any) -> Any:
        made = stock(self, ret_item)
        for entry in made.content:
            entry.token += " of a fork"
        return made

    endpoint._process_response_logprobs = changed


def main() -> None:
    import fastapi.routing
    from application import Application
    from sglang.srt.entrypoints.openai import serving_chat

    logging.disable(logging.CRITICAL)
    routing: Any = fastapi.routing
    routing.jsonable_encoder = encoder = mock.Mock(wraps=routing.jsonable_encoder)
    wrapped = serving_chat.ChatCompletionTokenLogprob
    serving_chat.ChatCompletionTokenLogprob = models = mock.Mock(wraps=wrapped)
    application = Application(
        tool_call_parser="qwen25",
        reasoning_parser="deepseek-r1",
        enable_cache_report=True,
    )
    answers = {}
    for name, path, body, result in cases():
        if name == FORK:
            change_tokens(serving_chat.OpenAIServingChat)
        application.result = result
        encoder.reset_mock()
        models.reset_mock()
        if path == CHAT:
            body = {"return_token_ids": False, **body}
        body = {**application.smallest(path), **body}
        status, headers, data = asyncio.run(application.post(path, body))
        ways = encoder.called, models.call_count
        text = data.decode("latin-1")
        answers[f"{path}: {name}"] = [status, headers, text, *ways]
    Path(sys.argv[1]).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()

"""Five turns by the `openai` SDK, in three ways of an agent that trains."""

from __future__ import annotations

import json
from typing import Any

import openai


def read(task: dict[str, Any]) -> dict[str, Any]:
    client: Any = openai.OpenAI(base_url=f"{task['base_url']}/v1", api_key="none")
    ways = {"field": _by_field, "streamed": _by_stream, "NeMo Gym": _as_nemo_gym}
    return {name: _turns(client, task, way) for name, way in ways.items()}


def _turns(client: Any, task: dict[str, Any], way: Any) -> list[dict[str, Any]]:
    """Return prompt, completion and prefix metadata, turn by turn."""
    messages: list[Any] = []
    past: dict[str, Any] = {}
    turns = []
    for question in task["questions"]:
        messages.append({"role": "user", "content": question})
        asked = {"model": "default", "temperature": 0, "max_tokens": 60}
        turn, message, past = way(
            client, {**asked, "messages": messages, "tools": task["tools"]}, past
        )
        turns.append(turn)
        messages.append(message)
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}
            for call in message.get("tool_calls") or ()
        ]
    return turns


def _by_field(client: Any, asked: Any, past: Any) -> Any:
    answer = client.chat.completions.create(**asked, extra_body=past)
    choice = answer.choices[0]
    turn = {
        "prompt": answer.prompt_token_ids,
        "token_ids": choice.token_ids,
        "prefix": answer.metadata.get("prefix"),
    }
    past = {"required_prefix_token_ids": [*turn["prompt"], *turn["token_ids"]]}
    return turn, _message(choice.message), past


def _by_stream(client: Any, asked: Any, past: Any) -> Any:
    with client.chat.completions.stream(**asked, extra_body=past) as stream:
        chunks = [event.chunk for event in stream if event.type == "chunk"]
        message = _message(stream.get_final_completion().choices[0].message)
    parts = [choice for chunk in chunks for choice in chunk.choices]
    turn = {
        "prompt": chunks[0].prompt_token_ids,
        "token_ids": [
            i for part in parts for i in getattr(part, "token_ids", None) or ()
        ],
        "prefix": chunks[0].metadata.get("prefix"),
    }
    past = {"required_prefix_token_ids": [*turn["prompt"], *turn["token_ids"]]}
    return turn, message, past


def _as_nemo_gym(client: Any, asked: Any, past: Any) -> Any:
    """Read the token IDs from logprobs; send them back on the assistant's message."""
    answer = client.chat.completions.create(
        **asked, logprobs=True, extra_body={"return_tokens_as_token_ids": True}
    )
    choice = answer.choices[0]
    named = [entry.token for entry in choice.logprobs.content]
    generated = [int(token.removeprefix("token_id:")) for token in named]
    turn = {
        "prompt": answer.prompt_token_ids,
        "token_ids": generated,
        "prefix": answer.metadata.get("prefix"),
    }
    message = {
        **_message(choice.message),
        "prompt_token_ids": answer.prompt_token_ids,
        "generation_token_ids": generated,
        "generation_log_probs": [entry.logprob for entry in choice.logprobs.content],
    }
    return turn, message, past


def _message(message: Any) -> dict[str, Any]:
    """Return a message as agents keep it: its text, and the calls they can run."""
    kept: dict[str, Any] = {"role": "assistant", "content": message.content or ""}
    calls = []
    for call in message.tool_calls or ():
        try:
            # Agents reformat the arguments.
            arguments = json.dumps(json.loads(call.function.arguments), indent=1)
        except ValueError:
            continue
        function = {"name": call.function.name, "arguments": arguments}
        calls.append({"id": call.id, "type": "function", "function": function})
    return {**kept, "tool_calls": calls} if calls else kept

"""Saved rollouts of verifiers: `results.jsonl` of 0.1, `traces.jsonl` of 0.4."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress
from typing import Any

from ..turns import Answer, History, Json, Message, Turn, joined
from . import fields
from .fields import BadRecord, count, ids, numbers, obj, objs, optional_text


def turns_of_rollout(record: Json) -> Iterator[Turn]:
    """The turns in a line of `results.jsonl`.

    Without the column `trajectory`, which has the IDs, each answer is a turn.
    """
    if record.get("trajectory") is None:
        for message in _messages(record["completion"], "completion"):
            if message.role == "assistant":
                answer = Answer(message.text, message.reasoning, message.calls)
                yield Turn("verifiers", None, None, None, (answer,))
        return
    tools = record.get("tool_defs")
    for step in objs(record["trajectory"], "trajectory"):
        tokens = obj(step.get("tokens"), "trajectory[].tokens")
        completion = joined(
            _messages(step.get("completion"), "trajectory[].completion")
        )
        prompt = _messages(step.get("prompt"), "trajectory[].prompt", role="user")
        response = obj(step.get("response"), "trajectory[].response")
        usage = obj(response.get("usage"), "trajectory[].response.usage")
        n_tokens = usage.get("completion_tokens")
        # verifiers truncates turns beyond the model's length, and records that.
        is_cut = step.get("is_truncated") or tokens.get("is_truncated")
        yield Turn(
            shape="verifiers",
            session=optional_text(step.get("trajectory_id"), "trajectory_id"),
            history=History.of(prompt, tools),
            prompt=ids(tokens.get("prompt_ids"), "prompt_ids"),
            answers=(
                Answer(
                    text=completion.text,
                    reasoning=completion.reasoning,
                    calls=completion.calls,
                    ids=ids(tokens.get("completion_ids"), "completion_ids"),
                    logprobs=numbers(
                        tokens.get("completion_logprobs"), "completion_logprobs"
                    ),
                    tokens=None if is_cut else count(n_tokens, "completion_tokens"),
                ),
            ),
        )


def _messages(value: Any, name: str, role: str = "assistant") -> list[Message]:
    """Return messages, or the text of an environment without chat."""
    if isinstance(value, str):
        return [Message(role, value)]
    return fields.chat(value, name)


def turns_of_traces(record: Json) -> Iterator[Turn]:
    traces = [record] if "nodes" in record else objs(record["traces"], "traces")
    for trace in traces:
        nodes = objs(trace.get("nodes"), "nodes")
        for number, node in enumerate(nodes):
            if node.get("sampled"):
                session = optional_text(trace.get("id"), "id")
                yield _turn(session, _path(nodes, number), _calls(trace, number))


def _calls(trace: Json, number: int) -> Json:
    """Return the model call that produced a node."""
    for call in objs(trace.get("calls"), "calls"):
        if call.get("node") == number:
            return call
    return {}


def _path(nodes: list[Json], number: int) -> list[Json]:
    path = [nodes[number]]
    while (parent := path[-1].get("parent")) is not None:
        if type(parent) is not int or not 0 <= parent < number:
            raise BadRecord("has a node whose `parent` is no earlier node")
        number = parent
        path.append(nodes[parent])
    return path[::-1]


def _turn(session: str | None, path: list[Json], call: Json) -> Turn:
    *before, node = path
    message = _message(node)
    tokens = ids(node.get("token_ids"), "token_ids") or []
    mask = _mask(node, len(tokens))
    prompt = [
        one for past in before for one in ids(past.get("token_ids"), "token_ids") or ()
    ]
    prompt += compress(tokens, (not sampled for sampled in mask))
    usage = obj(call.get("usage"), "calls[].usage")
    history = [_message(past) for past in before]
    logprobs = numbers(node.get("logprobs"), "logprobs")
    return Turn(
        shape="verifiers",
        session=session,
        history=History.of(history, path[0].get("tools")),
        prompt=prompt or None,
        answers=(
            Answer(
                text=message.text,
                reasoning=message.reasoning,
                calls=message.calls,
                ids=list(compress(tokens, mask)) or None,
                logprobs=logprobs or None,
                tokens=count(usage.get("completion_tokens"), "completion_tokens"),
                finish=str(call.get("finish_reason") or ""),
            ),
        ),
    )


def _message(node: Json) -> Message:
    [message] = fields.chat([obj(node.get("message"), "message")], "nodes[].message")
    return message


def _mask(node: Json, length: int) -> list[Any]:
    mask = node.get("mask")
    if not isinstance(mask, list) or len(mask) != length:
        if not length:
            return []
        raise BadRecord("has a node whose `mask` and `token_ids` differ in length")
    return mask

"""Saved rollouts of verifiers: `results.jsonl` of 0.1, `traces.jsonl` of 0.4."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress
from typing import Any

from ..turns import Answer, History, Message, Turn, joined
from .fields import BadRecord, Record


def turns_of_rollout(record: Record) -> Iterator[Turn]:
    """Yield the turns in a line of `results.jsonl`.

    Without the column `trajectory`, which has the IDs, each answer is a turn.
    """
    if record.get("trajectory") is None:
        for message in _messages(record, "completion"):
            if message.role == "assistant":
                yield Turn("verifiers", None, None, None, (Answer(**vars(message)),))
        return
    for step in record.objs("trajectory"):
        tokens = step.obj("tokens")
        n_tokens = step.obj("response").obj("usage").count("completion_tokens")
        # verifiers truncates turns beyond the model's length, and records that.
        is_cut = step.get("is_truncated") or tokens.get("is_truncated")
        answer = Answer(
            **vars(joined(_messages(step, "completion"))),
            ids=tokens.ids("completion_ids"),
            logprobs=tokens.numbers("completion_logprobs"),
            tokens=None if is_cut else n_tokens,
        )
        prompt = _messages(step, "prompt", role="user")
        yield Turn(
            shape="verifiers",
            session=step.optional_text("trajectory_id"),
            history=History.of(prompt, record.get("tool_defs")),
            prompt=tokens.ids("prompt_ids"),
            answers=(answer,),
        )


def _messages(holder: Record, key: str, role: str = "assistant") -> list[Message]:
    """Return messages, or the text of an environment without chat."""
    if isinstance(holder.get(key), str):
        return [Message(role, holder.text(key))]
    return holder.messages(key)


def turns_of_traces(record: Record) -> Iterator[Turn]:
    for trace in [record] if "nodes" in record else record.objs("traces"):
        nodes = trace.objs("nodes")
        for number, node in enumerate(nodes):
            if node.get("sampled"):
                calls = (
                    one for one in trace.objs("calls") if one.get("node") == number
                )
                session = trace.optional_text("id")
                yield _turn(session, _path(nodes, number), next(calls, Record({})))


def _path(nodes: list[Record], number: int) -> list[Record]:
    path = [nodes[number]]
    while (parent := path[-1].get("parent")) is not None:
        if type(parent) is not int or not 0 <= parent < number:
            raise BadRecord("has a node whose `parent` is no earlier node")
        number = parent
        path.append(nodes[parent])
    return path[::-1]


def _turn(session: str | None, path: list[Record], call: Record) -> Turn:
    """Return the turn that ends a path of nodes; `call` produced the last one."""
    node = path[-1]
    tokens = node.ids("token_ids") or []
    mask = _mask(node, len(tokens))
    prompt = [one for past in path[:-1] for one in past.ids("token_ids") or ()]
    prompt += compress(tokens, (not sampled for sampled in mask))
    *history, said = [_message(one) for one in path]
    answer = Answer(
        **vars(said),
        ids=list(compress(tokens, mask)) or None,
        logprobs=node.numbers("logprobs") or None,
        tokens=call.obj("usage").count("completion_tokens"),
        finish=str(call.get("finish_reason") or ""),
    )
    return Turn(
        shape="verifiers",
        session=session,
        history=History.of(history, path[0].get("tools")),
        prompt=prompt or None,
        answers=(answer,),
    )


def _message(node: Record) -> Message:
    message = node.obj("message")
    return Record({"message": [message.values]}, node.name).messages("message")[0]


def _mask(node: Record, length: int) -> list[Any]:
    mask = node.get("mask")
    if not isinstance(mask, list) or len(mask) != length:
        if not length:
            return []
        raise BadRecord("has a node whose `mask` and `token_ids` differ in length")
    return mask

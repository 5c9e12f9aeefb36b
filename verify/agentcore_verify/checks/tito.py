"""Token in, token out: a prompt given as `input_ids` is the one that is prefilled.

With the IDs of an earlier prompt in `input_ids` and any messages beside them, the
answer is that of the earlier prompt, tools included; `return_prompt_token_ids` gives
them back on every choice, on /generate too, and `return_meta_info` the engine's own
word. If not, a trainer's next turn starts from other tokens than the last one ended on.
"""

from __future__ import annotations

from typing import Any

from agentcore_verify.client import Json
from agentcore_verify.differences import id_difference
from agentcore_verify.invariants import assert_whole
from agentcore_verify.results import Failed
from agentcore_verify.subject import Reply, Subject

PATCHES = ("tito", "token-ids")

IGNORED = [{"role": "user", "content": "These words are not the prompt."}]


def check(subject: Subject) -> str:
    for question, tools in (
        ("plain", False),
        ("second_turn_bob", False),
        ("tool", True),
    ):
        by_messages = subject.reference(question, tools=tools)
        assert_whole(subject, by_messages)
        for stream in (False, True):
            _assert_round_trip(subject, question, by_messages, tools, stream)
    _assert_told(subject, subject.reference("plain").prompt_ids)
    _assert_generate(
        subject, [subject.reference(q).prompt_ids for q in ("plain", "cjk")]
    )
    return "3 prompts as IDs, answered as by messages"


def _assert_round_trip(
    subject: Subject, question: str, by_messages: Reply, tools: bool, stream: bool
) -> None:
    by_ids = subject.ask(
        question,
        tools=tools,
        stream=stream,
        messages=IGNORED,
        input_ids=list(by_messages.prompt_ids),
    )
    what = f"{by_ids.where} with input_ids"
    if by_ids.prompt_ids != by_messages.prompt_ids:
        raise Failed(
            f"{what}: the prompt that was prefilled is another one.",
            difference=id_difference(
                *(subject, "input_ids", by_messages.prompt_ids),
                *("prompt_token_ids", by_ids.prompt_ids),
            ),
        )
    if by_ids.ids() != by_messages.ids():
        raise Failed(
            f"{what}: the answer is not the one that the messages get.",
            difference=id_difference(
                *(subject, "by messages", by_messages.ids()),
                *("by input_ids", by_ids.ids()),
            ),
        )
    assert_whole(subject, by_ids)


def _assert_told(subject: Subject, prompt: tuple[int, ...]) -> None:
    """Choices have what was asked for, and nothing that was not."""
    fields = ("prompt_token_ids", "meta_info")
    silent = subject.ask("plain")
    for field in fields:
        if field in silent.completions[0].raw:
            raise Failed(
                f"{silent.where}: a choice has {field} although none was asked."
            )
    reply = subject.ask(
        "plain", n=2, return_prompt_token_ids=True, return_meta_info=True
    )
    where = f"{reply.where} with return_prompt_token_ids and return_meta_info"
    for completion in reply.completions:
        told: Json = completion.raw
        if tuple(told.get("prompt_token_ids") or ()) != prompt:
            raise Failed(
                f"{where}: prompt_token_ids of choice {completion.index} are not those "
                "of the prompt."
            )
        meta: Any = told.get("meta_info")
        if not isinstance(meta, dict) or meta.get("completion_tokens") != len(
            completion.token_ids or ()
        ):
            raise Failed(
                f"{where}: meta_info of choice {completion.index} is not the engine's: "
                f"{meta!r}"
            )


def _assert_generate(subject: Subject, prompts: list[tuple[int, ...]]) -> None:
    """/generate gives the prompt beside `output_ids`, alone and in a batch."""
    sampling = {"temperature": 0, "max_new_tokens": 8}
    ids = [list(prompt) for prompt in prompts]
    asked = {"sampling_params": sampling, "return_prompt_token_ids": True}
    outputs = [
        subject.generate(input_ids=ids[0], **asked),
        *subject.generate(input_ids=ids, **asked),
    ]
    for output, prompt in zip(outputs, [ids[0], *ids], strict=True):
        if output.get("prompt_token_ids") != prompt or not output.get("output_ids"):
            raise Failed(
                "/generate with return_prompt_token_ids: prompt_token_ids are not "
                "those of the prompt."
            )

"""Token in, token out: input_ids are the prompt that is prefilled.

With the IDs of an earlier prompt as `input_ids`, the answer equals the answer to that
prompt, tools included, for any `messages`. `return_prompt_token_ids` returns the IDs on
every choice, also on /generate, and `return_meta_info` returns the engine's own dict. If
not, a trainer's next turn starts with other tokens than the last one ended with.
"""

from __future__ import annotations

from typing import Any

from agentcore_verify.checks.registry import check
from agentcore_verify.client import Json
from agentcore_verify.invariants import assert_input_ids, assert_whole
from agentcore_verify.results import Failed
from agentcore_verify.scoring import score
from agentcore_verify.subject import Exchange, Subject

PROMPT: tuple[int, ...] = (5, 6, 7, 5, 6, 8)
"""A prompt where no answer has the IDs of its own."""

IGNORED = [{"role": "user", "content": "These words are not the prompt."}]


@check(15)
def tito(subject: Subject) -> str:
    if not subject.is_patched:
        return _check_prompt_of_ids(subject)
    for question, tools in (
        ("plain", False),
        ("second_turn_bob", False),
        ("tool", True),
    ):
        by_messages = subject.reference(question, tools=tools)
        assert_whole(subject, by_messages)
        for stream in (False, True):
            _assert_round_trip(subject, question, by_messages, tools, stream)
    _assert_extra_fields(subject, subject.reference("plain").prompt_ids)
    if not subject.is_routed:  # It may hide /generate.
        _assert_generate(
            subject, [subject.reference(q).prompt_ids for q in ("plain", "cjk")]
        )
    return "3 prompts as input_ids, answered like their messages"


def _check_prompt_of_ids(subject: Subject) -> str:
    """Check that a chat's prompt, given as IDs, is prefilled and answered the same."""
    chat = subject.reference("plain") if subject.profile.prompt else None
    asked, expected = (chat.prompt_ids, chat.ids()) if chat else (PROMPT, ())
    scored = score(subject, asked, tokens=max(1, len(expected)))
    for name, sent, got, known in (
        ("IDs that were prefilled", asked, scored.prompt, None),
        ("tokens of the answer", expected, scored.tokens[: len(expected)], chat),
    ):
        message = f"{subject.profile.scores}: the {name} differ from those of the chat."
        subject.assert_ids(message, "chat", sent, "by IDs", got, known=known)
    return f"a prompt of {len(asked)} IDs, prefilled unchanged"


def _assert_round_trip(
    subject: Subject, question: str, by_messages: Exchange, tools: bool, stream: bool
) -> None:
    by_ids = subject.ask(
        question,
        tools=tools,
        stream=stream,
        messages=IGNORED,
        input_ids=list(by_messages.prompt_ids),
    )
    assert_input_ids(subject, by_ids)
    subject.assert_ids(
        f"{by_ids.where} with input_ids: the answer differs from the one to the messages.",
        *("by messages", by_messages.ids(), "by input_ids", by_ids.ids()),
        known=by_messages,
    )
    assert_whole(subject, by_ids)


def _assert_extra_fields(subject: Subject, prompt: tuple[int, ...]) -> None:
    """Check that choices have the requested fields and no others."""
    fields = ("prompt_token_ids", "meta_info")
    plain = subject.ask("plain")
    for field in fields:
        # A gateway may ask for them.
        if field in plain.completions[0].raw and not subject.is_routed:
            raise Failed(
                f"{plain.where}: a choice has {field}, which was not requested."
            )
    reply = subject.ask(
        "plain", n=2, return_prompt_token_ids=True, return_meta_info=True
    )
    where = f"{reply.where} with return_prompt_token_ids and return_meta_info"
    for completion in reply.completions:
        choice: Json = completion.raw
        if tuple(choice.get("prompt_token_ids") or ()) != prompt:
            raise Failed(
                f"{where}: prompt_token_ids of choice {completion.index} differ from "
                "those of the prompt."
            )
        meta: Any = choice.get("meta_info")
        if not isinstance(meta, dict) or meta.get("completion_tokens") != len(
            completion.token_ids or ()
        ):
            raise Failed(
                f"{where}: meta_info of choice {completion.index} is missing or does not "
                f"count its tokens: {meta!r}"
            )


def _assert_generate(subject: Subject, prompts: list[tuple[int, ...]]) -> None:
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
                "/generate with return_prompt_token_ids: prompt_token_ids differ from "
                "the input_ids."
            )

"""Prompt and completion token IDs in chat, one logprob each, streaming or not.

Without streaming, the engine returns everything, and only the protocol lacks the
fields. In streams, SGLang drops the logprobs of every token whose text is held back. A
trace keeps token IDs and logprobs until the next line of their choice is sent.
"""

from __future__ import annotations

from agentcore_patches.edits import AddField, AddKeyword, AddMethod, Insert, Replace
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import CHAT_AND_COMPLETIONS, PROTOCOL, SERVING_CHAT

_CHAT = "OpenAIServingChat"
_UPSTREAM = "PR 30917, 0.5.17, for non-streaming responses"

HOOKS: tuple[Hook, ...] = (
    Hook(
        "token-ids/request",
        "return token IDs unless this is false",
        AddField(
            PROTOCOL,
            "ChatCompletionRequest",
            "return_token_ids: Optional[bool] = None",
            native="return_token_ids: bool = False",
        ),
        upstream=f"{_UPSTREAM}; PR 37365, open, for streams",
    ),
    Hook(
        "token-ids/completion-request",
        "return_token_ids: true adds token IDs; null counts as absent",
        AddField(
            PROTOCOL,
            "CompletionRequest",
            "return_token_ids: Optional[bool] = None",
            native="return_token_ids: bool = False",
        ),
        upstream="PR 30917, 0.5.17",
    ),
    Hook(
        "token-ids/completion-prompt-flag",
        "return_prompt_token_ids: false omits the prompt's token IDs",
        AddField(
            PROTOCOL,
            "CompletionRequest",
            "return_prompt_token_ids: Optional[bool] = None",
        ),
    ),
    Hook(
        "token-ids/completion-choice",
        "hold the token IDs of the prompt and of this choice",
        AddField(
            PROTOCOL,
            "CompletionResponseChoice",
            "prompt_token_ids: Optional[List[int]] = None\n"
            "token_ids: Optional[List[int]] = None",
        ),
        since={
            "0.5.17": absent("SGLang has the fields"),
        },
        upstream="PR 30917, 0.5.17; PR 38459, open, renames token_ids",
    ),
    Hook(
        "token-ids/choice",
        "hold the token IDs generated for this choice",
        # Only SGLang 0.5.17 has the field; `list` distinguishes this declaration.
        AddField(
            PROTOCOL,
            "ChatCompletionResponseChoice",
            "token_ids: Optional[list[int]] = None",
            native="token_ids: Optional[List[int]] = None",
        ),
        upstream="PR 30917, 0.5.17; called response_token_ids from 0.5.18 on",
    ),
    Hook(
        "token-ids/prompt",
        "hold the token IDs that the engine prefilled",
        AddField(
            PROTOCOL,
            "ChatCompletionResponse",
            "prompt_token_ids: Optional[List[int]] = None",
        ),
    ),
    Hook(
        "token-ids/prompt-json",
        "omit the added fields from the JSON if they are None",
        AddMethod(
            PROTOCOL,
            "ChatCompletionResponse",
            '@model_serializer(mode="wrap")\n'
            "def _serialize(self, handler):\n"
            "    return agentcore.http.prompts.drop_none(\n"
            '        handler(self), "prompt_token_ids", "weight_version"\n'
            "    )",
        ),
        since={
            "0.5.9": Insert(
                PROTOCOL,
                "ChatCompletionResponse._serialize",
                "agentcore.http.prompts.drop_none("
                'data, "prompt_token_ids", "weight_version")',
                before="return data",
            ),
        },
    ),
    *(
        Hook(
            f"token-ids/ask-{endpoint}",
            "ask the engine for prompt IDs, logprobs and routed experts",
            Insert(
                file,
                f"{serving}._convert_to_internal_request",
                "agentcore.http.traces.ask(self, request, adapted_request)",
                before="return adapted_request, request",
            ),
        )
        for endpoint, file, serving in CHAT_AND_COMPLETIONS
    ),
    Hook(
        "token-ids/stream-is-no-error",
        "allow return_token_ids while streaming: chunks carry the IDs",
        absent("SGLang has no return_token_ids to reject"),
        since={
            "0.5.17": Replace(
                SERVING_CHAT,
                f"{_CHAT}._convert_to_internal_request",
                "raise ValueError(\n"
                '    "return_token_ids is not supported with streaming on "\n'
                '    "/v1/chat/completions. Please set stream=false when using "\n'
                '    "return_token_ids=true."\n'
                ")",
                "pass",
            ),
        },
        upstream="PR 37365, open",
    ),
    *(
        Hook(
            f"token-ids/whole-{endpoint}",
            "add the fields of a choice that the request asks for",
            Insert(
                file,
                f"{serving}._build_{endpoint}_response",
                f"agentcore.http.traces.add_to_{endpoint}(\n"
                "    self, choice_data, request, ret_item\n"
                ")",
                before="choices.append(choice_data)",
            ),
            upstream="PR 30917, 0.5.17, in part; PR 23751, 0.5.13, in part",
        )
        for endpoint, file, serving in CHAT_AND_COMPLETIONS
    ),
    Hook(
        "token-ids/whole-prompt",
        "return the prompt's token IDs unless the request says false",
        AddKeyword(
            SERVING_CHAT,
            f"{_CHAT}._build_chat_response",
            "ChatCompletionResponse",
            "prompt_token_ids=agentcore.http.traces.get_prompt_token_ids(\n"
            "    request, ret[0]\n"
            ")",
        ),
    ),
)

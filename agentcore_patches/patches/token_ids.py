"""prompt and completion token IDs in chat, one logprob each, streaming or not

Without streaming, the engine returns everything, and only the protocol lacks the
fields. In streams, SGLang drops the logprobs of every token whose text is held back. A
trace keeps token IDs and logprobs until the next line of their choice is sent.
"""

from __future__ import annotations

from agentcore_patches.edits import AddField, AddKeyword, AddMethod, Insert, Replace
from agentcore_patches.patches._adapters import ADAPTERS
from agentcore_patches.patches._chat_streams import CHAT_STREAMS
from agentcore_patches.patches._completions import COMPLETIONS
from agentcore_patches.patches._crash_fixes import CRASH_FIXES
from agentcore_patches.patches._defaults import DEFAULTS
from agentcore_patches.patches._ended_requests import (
    ABORTED_STREAMS,
    ENDED_REQUESTS,
    PAUSES,
)
from agentcore_patches.patches._logprobs import LOGPROBS
from agentcore_patches.patches._messages import MESSAGES
from agentcore_patches.patches._prompts import (
    CHOICE_PROMPT_TOKEN_IDS,
    DROPPED_FIELDS,
    PROMPT_FLAG,
    PROMPT_TOKEN_IDS,
)
from agentcore_patches.patches._release_checks import RELEASE_CHECKS
from agentcore_patches.patches._requests import CHECKED_REQUESTS
from agentcore_patches.patches._responses import RESPONSES
from agentcore_patches.patches._routed_experts import ROUTED_EXPERTS
from agentcore_patches.patches._server import SERVER
from agentcore_patches.patches._stream_output import WHOLE_STREAM_OUTPUT
from agentcore_patches.patches._token_names import TOKENS_AS_TOKEN_IDS
from agentcore_patches.patches._whole_answers import ANSWER_BY_ORJSON
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import PROTOCOL, SERVING_CHAT

RESPONSE_FIELDS = (
    "prompt_token_ids",
    "token_ids",
    "routed_experts_start_len",
)
REQUEST_FLAGS = (
    "return_token_ids",
    "return_tokens_as_token_ids",
    "return_prompt_token_ids",
)

_CHAT = "OpenAIServingChat"
_UPSTREAM = "PR 30917, 0.5.17, for non-streaming responses"

_GIVE_IDS = AddKeyword(
    SERVING_CHAT,
    f"{_CHAT}._build_chat_response",
    "ChatCompletionResponseChoice",
    "token_ids=agentcore.traces.get_token_ids(request, ret_item)",
)

# The request field.
REQUEST_FLAG: tuple[Hook, ...] = (
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
)

CHAT: tuple[Hook, ...] = (
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
            "    return agentcore.prompts.drop_none(\n"
            '        handler(self), "prompt_token_ids", "weight_version"\n'
            "    )",
        ),
        since={
            "0.5.9": Insert(
                PROTOCOL,
                "ChatCompletionResponse._serialize",
                "agentcore.prompts.drop_none("
                'data, "prompt_token_ids", "weight_version")',
                before="return data",
            ),
        },
    ),
    Hook(
        "token-ids/ask-engine",
        "ask the engine for prompt IDs, and for logprobs without text",
        Insert(
            SERVING_CHAT,
            f"{_CHAT}._convert_to_internal_request",
            "if request.return_token_ids is not False:\n"
            "    adapted_request.return_prompt_token_ids = True\n"
            "if request.return_tokens_as_token_ids:\n"
            "    adapted_request.return_text_in_logprobs = False",
            before="return adapted_request, request",
        ),
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
    Hook(
        "token-ids/whole-ids",
        "return token IDs unless the request says false",
        _GIVE_IDS,
        since={
            "0.5.17": Replace(
                SERVING_CHAT,
                f"{_CHAT}._build_chat_response",
                "choice_token_ids = "
                'ret_item["output_ids"] if request.return_token_ids else None',
                "choice_token_ids = agentcore.traces.get_token_ids(request, ret_item)",
            ),
            "0.5.18": _GIVE_IDS,
        },
        upstream="PR 30917, 0.5.17; called response_token_ids from 0.5.18 on",
    ),
    Hook(
        "token-ids/whole",
        "add the fields of a choice that the request asks for",
        Insert(
            SERVING_CHAT,
            f"{_CHAT}._build_chat_response",
            "agentcore.traces.add_to_chat_choice(self, choice_data, request, ret_item)",
            before="choices.append(choice_data)",
        ),
    ),
    Hook(
        "token-ids/whole-prompt",
        "return the prompt's token IDs unless the request says false",
        AddKeyword(
            SERVING_CHAT,
            f"{_CHAT}._build_chat_response",
            "ChatCompletionResponse",
            "prompt_token_ids=agentcore.traces.get_prompt_token_ids(request, ret[0])",
        ),
    ),
)

HOOKS: tuple[Hook, ...] = (
    *RELEASE_CHECKS,
    *SERVER,
    *DEFAULTS,
    *CHECKED_REQUESTS,
    *PROMPT_TOKEN_IDS,
    *PROMPT_FLAG,
    *ADAPTERS,
    *CHOICE_PROMPT_TOKEN_IDS,
    *DROPPED_FIELDS,
    *WHOLE_STREAM_OUTPUT,
    *ANSWER_BY_ORJSON,
    *ENDED_REQUESTS,
    *ABORTED_STREAMS,
    *PAUSES,
    *LOGPROBS,
    *REQUEST_FLAG,
    *CHAT,
    *CHAT_STREAMS,
    *TOKENS_AS_TOKEN_IDS,
    *COMPLETIONS,
    *MESSAGES,
    *RESPONSES,
    *ROUTED_EXPERTS,
    *CRASH_FIXES,
)

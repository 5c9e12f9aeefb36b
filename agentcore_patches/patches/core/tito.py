"""Token-in, token-out chat: `input_ids`, `return_prompt_token_ids`, `return_meta_info`.

Upstream merged the fields as PR 23751. SGLang checks no token ID before the embedding
lookup, and a stream has sent its status before the engine can reject a prompt.
`input_ids` are therefore checked when the request is validated.
"""

from __future__ import annotations

from agentcore_patches.edits import AddCondition, AddField, Insert
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import PROTOCOL, SERVING_CHAT

_CHAT = "OpenAIServingChat"
_UPSTREAM = "PR 23751, 0.5.13"

HOOKS: tuple[Hook, ...] = (
    # SGLang's own fields reject null and accept "7" as 7: `prompts` checks elements.
    Hook(
        "tito/request",
        "take and return the prompt as token IDs; null counts as absent",
        AddField(
            PROTOCOL,
            "ChatCompletionRequest",
            "input_ids: Optional[List[Any]] = None\n"
            "return_prompt_token_ids: Optional[bool] = None\n"
            "return_meta_info: Optional[bool] = None",
            native=(
                "input_ids: Optional[List[int]] = None\n"
                "return_prompt_token_ids: bool = False\n"
                "return_meta_info: bool = False"
            ),
        ),
        upstream=_UPSTREAM,
    ),
    Hook(
        "tito/choice",
        "hold the prompt's token IDs and the engine's meta_info on request",
        AddField(
            PROTOCOL,
            "ChatCompletionResponseChoice",
            "prompt_token_ids: Optional[List[int]] = None\n"
            "meta_info: Optional[Dict[str, Any]] = None",
        ),
        since={
            "0.5.13": absent("SGLang has the fields"),
        },
        upstream=_UPSTREAM,
    ),
    Hook(
        "tito/check",
        "reject flags that streams do not support",
        Insert(
            SERVING_CHAT,
            f"{_CHAT}._validate_request",
            "agentcore_flag_error = agentcore.http.prompts.check_flags(request)\n"
            "if agentcore_flag_error is not None:\n"
            "    return agentcore_flag_error",
            before="return None",
        ),
        since={
            "0.5.13": absent("SGLang does it, in words of its own"),
        },
        upstream=_UPSTREAM,
    ),
    Hook(
        "tito/process",
        "apply images and the template's stop strings to input_ids",
        Insert(
            SERVING_CHAT,
            f"{_CHAT}._process_messages",
            "if request.input_ids is not None:\n"
            "    return agentcore.http.prompts.process_token_ids(\n"
            "        self, request, tool_call_constraint\n"
            "    )",
            before="if self.template_manager.chat_template_name is None: ...",
        ),
        since={
            "0.5.13": Insert(
                SERVING_CHAT,
                f"{_CHAT}._process_messages",
                "agentcore.http.prompts.take_images_and_stops(self, request, result)",
                after="result = MessageProcessingResult(...)",
            ),
        },
        upstream="PR 38987, open, moves this function",
    ),
    # Otherwise SGLang passes the text to multimodal models, and there is none.
    Hook(
        "tito/multimodal",
        "pass input_ids to multimodal models too: there is no text",
        AddCondition(
            SERVING_CHAT,
            f"{_CHAT}._convert_to_internal_request",
            "if is_multimodal: ...",
            "request.input_ids is None",
        ),
        since={
            "0.5.13": absent("SGLang does it"),
        },
        upstream=_UPSTREAM,
    ),
    Hook(
        "tito/finish-reason",
        "copy finish_reason: _process_tool_calls writes into it",
        Insert(
            SERVING_CHAT,
            f"{_CHAT}._build_chat_response",
            "if request.return_meta_info and finish_reason:\n"
            "    finish_reason = dict(finish_reason)",
            after='finish_reason = ret_item["meta_info"]["finish_reason"]',
        ),
    ),
)

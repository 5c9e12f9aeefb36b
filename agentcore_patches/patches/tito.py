"""token-in, token-out chat: `input_ids`, `return_prompt_token_ids`, `return_meta_info`

What upstream merged as its PR 23751. In v0.5.9 no token ID is checked before the
embedding lookup, and a streamed answer has sent its status before the engine can refuse
a prompt, so what is wrong with `input_ids` is found when the request is validated.
"""

from __future__ import annotations

from agentcore_patches.edits import (
    AddField,
    AddKeyword,
    Edit,
    Graft,
    Insert,
    Narrow,
    Replace,
)
from agentcore_patches.grafts.token_in import _take_images_and_stops
from agentcore_patches.patches._ended_requests import ENDED_REQUESTS
from agentcore_patches.patches._files import PROTOCOL, SERVING_CHAT
from agentcore_patches.patches._images import IMAGES
from agentcore_patches.patches._prompts import (
    CHECKED_PROMPTS,
    CHOICE_PROMPT_TOKEN_IDS,
    PROMPT_TOKEN_IDS,
    checked_input_ids,
)

RESPONSE_FIELDS = ("prompt_token_ids", "meta_info")

_CHAT = "OpenAIServingChat"

# From v0.5.13 on SGLang has the fields itself, but refuses null, and takes "7" for 7.
FIELDS: tuple[Edit, ...] = (
    # Elements are checked by hand: pydantic would take "7" and report every bad one.
    AddField(
        PROTOCOL,
        "ChatCompletionRequest",
        "input_ids: Optional[List[Any]] = None",
        note="the prompt as token IDs, taken as it is instead of the messages",
        until="0.5.12",
    ),
    AddField(
        PROTOCOL,
        "ChatCompletionRequest",
        "return_prompt_token_ids: Optional[bool] = None",
        note="whether each choice has the token IDs of the prompt",
        until="0.5.12",
    ),
    AddField(
        PROTOCOL,
        "ChatCompletionRequest",
        "return_meta_info: Optional[bool] = None",
        note="whether each choice has the engine's meta info",
        until="0.5.12",
    ),
    Replace(
        PROTOCOL,
        "ChatCompletionRequest",
        "input_ids: Optional[List[int]] = None",
        "input_ids: Optional[List[Any]] = None",
        note="checked when the request is validated",
        since="0.5.13",
    ),
    *(
        Replace(
            PROTOCOL,
            "ChatCompletionRequest",
            f"{field}: bool = False",
            f"{field}: Optional[bool] = None",
            note="a flag that is null is one that is not there",
            since="0.5.13",
        )
        for field in ("return_prompt_token_ids", "return_meta_info")
    ),
    AddField(
        PROTOCOL,
        "ChatCompletionResponseChoice",
        "meta_info: Optional[Dict[str, Any]] = None",
        note="return_meta_info",
        until="0.5.12",
    ),
    # The engine has it in v0.5.8, too; from v0.5.9 on chat requests do.
    AddField(
        PROTOCOL,
        "ChatCompletionRequest",
        "return_routed_experts: Optional[bool] = None",
        note="whether return_meta_info has the experts of each token",
        until="0.5.8",
    ),
    Insert(
        PROTOCOL,
        "ChatCompletionResponseChoice._serialize",
        'if self.meta_info is None:\n    data.pop("meta_info", None)',
        before="return data",
        until="0.5.12",
    ),
)

# From v0.5.13 on SGLang refuses the flags itself, and `CHECKED_PROMPTS` the IDs.
VALIDATION: tuple[Edit, ...] = (
    Insert(
        SERVING_CHAT,
        f"{_CHAT}._validate_request",
        'for field in ("return_prompt_token_ids", "return_meta_info"):\n'
        "    if request.stream and getattr(request, field):\n"
        '        return f"{field} is not supported while streaming: set stream=false."',
        before="return None",
        note="token-in, token-out requests",
        until="0.5.12",
    ),
    *checked_input_ids(until="0.5.12"),
)

PROMPT: tuple[Edit, ...] = (
    Graft(SERVING_CHAT, _CHAT, _take_images_and_stops, inside=True, note="input_ids"),
    Insert(
        SERVING_CHAT,
        f"{_CHAT}._process_messages",
        "if request.input_ids is not None:\n"
        "    result = MessageProcessingResult(\n"
        '        prompt="",\n'
        "        prompt_ids=request.input_ids,\n"
        "        image_data=None,\n"
        "        audio_data=None,\n"
        "        video_data=None,\n"
        "        modalities=[],\n"
        "        stop=[],\n"
        "        tool_call_constraint=tool_call_constraint,\n"
        "    )\n"
        "    self._take_images_and_stops(request, result)\n"
        "    return result",
        before="if self.template_manager.chat_template_name is None: ...",
        note="a prompt given as IDs has its template applied",
        until="0.5.12",
    ),
    Insert(
        SERVING_CHAT,
        f"{_CHAT}._process_messages",
        "self._take_images_and_stops(request, result)",
        after="result = MessageProcessingResult(...)",
        note="images and the template's stop strings count",
        since="0.5.13",
    ),
    # What is left for a multimodal model is a text, and there is none.
    Narrow(
        SERVING_CHAT,
        f"{_CHAT}._convert_to_internal_request",
        "if is_multimodal: ...",
        "request.input_ids is None",
        until="0.5.12",
    ),
)

ANSWER: tuple[Edit, ...] = (
    AddKeyword(
        SERVING_CHAT,
        f"{_CHAT}._convert_to_internal_request",
        "GenerateReqInput",
        "return_routed_experts=bool(request.return_routed_experts)",
        until="0.5.8",
    ),
    Insert(
        SERVING_CHAT,
        f"{_CHAT}._convert_to_internal_request",
        "if request.return_prompt_token_ids:\n"
        "    adapted_request.return_prompt_token_ids = True",
        before="return adapted_request, request",
        note="return_prompt_token_ids",
        until="0.5.12",
    ),
    Insert(
        SERVING_CHAT,
        f"{_CHAT}._build_chat_response",
        "if request.return_meta_info and finish_reason:\n"
        "    finish_reason = dict(finish_reason)",
        after='finish_reason = ret_item["meta_info"]["finish_reason"]',
        note="_process_tool_calls writes into it",
    ),
    AddKeyword(
        SERVING_CHAT,
        f"{_CHAT}._build_chat_response",
        "ChatCompletionResponseChoice",
        "prompt_token_ids=(\n"
        '    ret_item.get("prompt_token_ids")\n'
        "    if request.return_prompt_token_ids\n"
        "    else None\n"
        ")",
        until="0.5.12",
    ),
    AddKeyword(
        SERVING_CHAT,
        f"{_CHAT}._build_chat_response",
        "ChatCompletionResponseChoice",
        'meta_info=ret_item["meta_info"] if request.return_meta_info else None',
        until="0.5.12",
    ),
    Insert(
        SERVING_CHAT,
        f"{_CHAT}._build_chat_response",
        "if choice_data.message.content is None and (\n"
        "    request.return_meta_info or request.input_ids is not None\n"
        "):\n"
        '    choice_data.message.content = ""',
        before="choices.append(choice_data)",
        note="trainers refuse null",
        until="0.5.12",
    ),
)

EDITS: tuple[Edit, ...] = (
    *CHECKED_PROMPTS,
    *PROMPT_TOKEN_IDS,
    *CHOICE_PROMPT_TOKEN_IDS,
    *ENDED_REQUESTS,
    *FIELDS,
    *VALIDATION,
    *PROMPT,
    *IMAGES,
    *ANSWER,
)
